"""What our tables say about a request, as people are shown it: in its status comment and on its page. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from agents.command_agent import read_profile
from agents.dev.schedule_table import ScheduleTable
from app.comments.status import GateLine, StageLine, StatusView
from app.comments.wording import wording
from app.policy import REPAIR_ROUNDS
from app.states import ENDED, RUNNING, Stage, State
from app.tables import Approval, Event, Profile, Request, StoredJob
from runners.protocol import Gate

_DONE_AT: dict[Stage, frozenset[State]] = {
    Stage.understand: frozenset(
        {
            State.awaiting_approval,
            State.acting,
            State.verifying,
            State.repairing,
            State.in_review,
            State.merged,
            State.closed,
        }
    ),
    Stage.act: frozenset({State.verifying, State.repairing, State.in_review, State.merged, State.closed}),
    Stage.verify: frozenset({State.in_review, State.merged, State.closed}),
}


def command_of(request: Request) -> str:
    """The request's command as it was typed, on one line."""
    op = request.op_text or (wording(request.verb).block if request.block else "")
    return f"/liger {request.verb} {op}".strip()


def stage_seconds(events: Sequence[Event], now: datetime) -> dict[Stage, float]:
    """How long each stage took, or has taken so far, in its last run."""
    moves = [(State(event.state), event.at) for event in events if event.state]
    seconds: dict[Stage, float] = {}
    started = now
    for number, (state, at) in enumerate(moves):
        stage = RUNNING.get(state)
        if stage is None:
            continue
        before = RUNNING.get(moves[number - 1][0]) if number else None
        if before is not stage:
            started = at
        until = moves[number + 1][1] if number + 1 < len(moves) else now
        seconds[stage] = (until - started).total_seconds()
    return seconds


def running_since(events: Sequence[Event]) -> datetime | None:
    """When the stage began that a request is in; None when it is in none."""
    since, stage = None, None
    for event in events:
        if event.state:
            now_in = RUNNING.get(State(event.state))
            if now_in is not stage:
                since, stage = event.at, now_in
    return since if stage else None


def furthest_state(request: Request, events: Sequence[Event]) -> State:
    """The request's state; for one that was given up, the last state before that."""
    state = State(request.state)
    if state in ENDED - {State.merged, State.closed}:
        for event in reversed(events):
            if event.state and State(event.state) not in ENDED:
                return State(event.state)
    return state


def stage_lines(request: Request, events: Sequence[Event], now: datetime, note: str = "") -> list[StageLine]:
    """The checklist of a request."""
    state = furthest_state(request, events)
    running = RUNNING.get(State(request.state))
    seconds = stage_seconds(events, now)
    lines = []
    for stage in Stage:
        is_running = running is stage
        done = stage_is_done(stage, state)
        lines.append(
            StageLine(
                stage, done, is_running, seconds.get(stage) if done else None, note if is_running else ""
            )
        )
    return lines


def stage_is_done(stage: Stage, state: State) -> bool:
    """Whether a request that came to that state has a stage behind it."""
    return state in _DONE_AT[stage]


def gates_now(request: Request, jobs: Sequence[StoredJob]) -> list[StoredJob]:
    """The jobs of the newest attempt and round, in the gates' order."""
    newest = [job for job in jobs if (job.attempt, job.round) == (request.attempt, request.round)]
    return sorted(newest, key=lambda job: list(Gate).index(Gate(job.gate)))


def gate_lines(request: Request, jobs: Sequence[StoredJob]) -> list[GateLine]:
    """The gates of the newest attempt and round."""
    newest = gates_now(request, jobs)
    lines = [
        GateLine(job.gate, None if job.state == "running" else job.conclusion, job.title or "running")
        for job in newest
    ]
    if request.round:
        lines = [
            GateLine(f"{one.name} (repair {request.round} of {REPAIR_ROUNDS})", one.conclusion, one.title)
            for one in lines
        ]
    return lines


def status_view(
    request: Request,
    events: Sequence[Event],
    *,
    profile: Profile | None,
    approval: Approval | None,
    jobs: Sequence[StoredJob],
    page_url: str,
    now: datetime,
    approval_days: float,
    requester_may_approve: bool,
    note: str = "",
    state: State | None = None,
) -> StatusView:
    """The status comment's contents. state: shown instead of the stored one, when a move is about to happen."""
    shown = state or State(request.state)
    lines = stage_lines(request, events, now, note)
    if shown is State.awaiting_approval:
        # the date is fixed by the profile, so that showing it twice makes the same text
        expires = (profile.created_at if profile else now) + timedelta(days=approval_days)
        lines = [
            StageLine(
                one.stage,
                one.stage is Stage.understand,
                False,
                one.elapsed_s if one.stage is Stage.understand else None,
            )
            for one in lines
        ]
    else:
        expires = None
    return StatusView(
        request_id=request.id,
        command=command_of(request),
        requester=request.requester,
        state=shown,
        page_url=page_url,
        stages=lines,
        profile=read_profile(profile.body) if profile else None,
        schedules=ScheduleTable.model_validate(profile.schedules) if profile and profile.schedules else None,
        expires=expires,
        approved_by=approval.login if approval else None,
        requester_may_approve=requester_may_approve,
        pull_number=request.pull_number,
        gates=gate_lines(request, jobs),
        failure=request.failure if shown in {State.failed, State.rejected} else None,
        ended_by=request.ended_by or "",
        verb=request.verb,
    )
