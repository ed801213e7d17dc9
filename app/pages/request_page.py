"""What the pages of one request show of its course: stages, cost, gates, log, history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote

from app.github import redact
from app.request_view import (
    command_of,
    furthest_state,
    gates_now,
    running_since,
    stage_is_done,
    stage_seconds,
)
from app.states import ENDED, RUNNING, Stage, State
from app.store import Store, now
from app.tables import Approval, Event, LogLine, Profile, Request, StoredDispatch, StoredJob

LOG_SHOWN = 80
TABS = {"": "Overview", "profile": "Profile", "diff": "Diff", "reports": "Reports"}

_NEXT = {
    State.received: "Accepted; work starts in a moment.",
    State.understanding: "Reading and deciding. The profile comes as a comment on the issue.",
    State.awaiting_approval: "A maintainer decides: 👍 on the profile's comment, or /liger approve. /liger revise changes a decision.",
    State.revising: "The profile is being revised.",
    State.acting: "Approved. The files are being written on a branch.",
    State.verifying: "The checks are running on the pull request's commit.",
    State.repairing: "A check failed; another candidate is being made.",
    State.in_review: "The draft pull request is ready for a person to review and merge.",
    State.merged: "The pull request was merged.",
    State.closed: "The pull request was closed without merging.",
    State.rejected: "Turned down. /liger retry on the issue takes it up again.",
    State.cancelled: "Cancelled. /liger retry on the issue takes it up again.",
    State.expired: "Nobody decided in time. /liger retry on the issue takes it up again.",
    State.failed: "Stopped. /liger retry on the issue tries again.",
}


@dataclass(frozen=True)
class StageRow:
    """One stage. state: done, running, stopped or ahead; since: when it began, while it runs."""

    name: str
    state: str
    elapsed_s: float | None = None
    since: datetime | None = None


@dataclass(frozen=True)
class GateRow:
    """One gate of the newest candidate; outcome: a conclusion, or `running`."""

    name: str
    outcome: str
    title: str
    elapsed_s: float | None


@dataclass(frozen=True)
class Cost:
    """What a request used so far. model_usd: as far as prices are known; gpu_minutes: of runners elsewhere."""

    elapsed_s: float
    model_usd: float
    gpu_minutes: float
    local_s: float


@dataclass(frozen=True)
class LogRow:
    at: datetime
    kind: str
    text: str


@dataclass(frozen=True)
class RequestPage:
    """One request's course."""

    request: Request
    command: str
    ended: bool
    issue_url: str
    comment_url: str
    next_step: str
    problem: dict[str, str]
    stages: list[StageRow]
    gates: list[GateRow]
    cost: Cost
    log: list[LogRow]
    events: list[Event]
    profile: Profile | None
    approval: Approval | None
    tabs: dict[str, str]


def request_page(store: Store, request: Request, web_url: str) -> RequestPage:
    """The page's contents, read now. web_url: base of GitHub's pages."""
    at = now()
    events, jobs = store.events(request.id), store.jobs(request.id)
    dispatches = store.dispatches(request.id)
    profile = store.profile(request.id)
    state = State(request.state)
    issue_url = f"{web_url.rstrip('/')}/{quote(request.repository)}/issues/{request.issue_number}"
    comment = request.status_comment_id or request.comment_id
    has = {"profile": profile is not None, "diff": bool(request.head_sha), "reports": bool(jobs)}
    return RequestPage(
        request=request,
        command=command_of(request),
        ended=state in ENDED,
        issue_url=issue_url,
        comment_url=f"{issue_url}#issuecomment-{comment}",
        next_step=_NEXT[state],
        problem=_problem(request),
        stages=stage_rows(request, events, at),
        gates=gate_rows(request, jobs),
        cost=_cost(request, jobs, dispatches, store.model_spent_usd(request.id), at),
        log=_log(events, store.log_lines(request.id, LOG_SHOWN)),
        events=events,
        profile=profile,
        approval=store.approval(request.id, profile.sha256) if profile else None,
        tabs={tab: name for tab, name in TABS.items() if has.get(tab, True)},
    )


def stage_rows(request: Request, events: Sequence[Event], at: datetime) -> list[StageRow]:
    """The three stages, in order."""
    seconds = stage_seconds(events, at)
    current, furthest = State(request.state), furthest_state(request, events)
    stopped_in = RUNNING.get(furthest) if current is not furthest else None
    rows = []
    for stage in Stage:
        if RUNNING.get(current) is stage:
            rows.append(StageRow(stage, "running", seconds.get(stage), running_since(events)))
        elif stage_is_done(stage, furthest):
            rows.append(StageRow(stage, "done", seconds.get(stage)))
        elif stage is stopped_in:
            rows.append(StageRow(stage, "stopped", seconds.get(stage)))
        else:
            rows.append(StageRow(stage, "ahead"))
    return rows


def gate_rows(request: Request, jobs: Sequence[StoredJob]) -> list[GateRow]:
    """The gates of the newest attempt and round."""
    return [
        GateRow(
            job.gate,
            "running" if job.state == "running" else job.conclusion or job.state,
            job.title,
            (job.finished_at - job.created_at).total_seconds() if job.finished_at else None,
        )
        for job in gates_now(request, jobs)
    ]


def _problem(request: Request) -> dict[str, str]:
    """Why a request stopped: {"who", "reason", "where"?, "needed"?}; empty when it didn't."""
    failure = request.failure
    if not failure or State(request.state) not in {State.failed, State.rejected}:
        return {}
    if failure.get("kind") == "refused":
        refused = failure.get("refused") or {}
        told = {"who": "Refused", "reason": refused.get("reason") or failure.get("reason", "")}
        return told | {key: str(refused[key]) for key in ("node", "where", "needed") if refused.get(key)}
    who = "To be put right" if failure.get("kind") == "mistake" else "Our fault, not yours"
    return {"who": who, "reason": redact(str(failure.get("reason", "")))}


def _cost(
    request: Request,
    jobs: Sequence[StoredJob],
    dispatches: Sequence[StoredDispatch],
    model_usd: float,
    at: datetime,
) -> Cost:
    until = request.updated_at if State(request.state) in ENDED else at
    gpu = sum(
        ((one.settled_at or at) - one.started_at).total_seconds() for one in dispatches if one.started_at
    )
    elsewhere = {one.job_id for one in dispatches}
    local = sum(float((job.report or {}).get("elapsed_s") or 0.0) for job in jobs if job.id not in elsewhere)
    return Cost((until - request.created_at).total_seconds(), model_usd, gpu / 60, local)


def _log(events: Sequence[Event], lines: Sequence[LogLine]) -> list[LogRow]:
    """The newest lines of both, by time."""
    rows = [LogRow(one.at, one.kind, _said(one)) for one in events]
    rows += [LogRow(one.at, "job", one.text) for one in lines]
    rows.sort(key=lambda row: row.at)
    return [LogRow(row.at, row.kind, redact(row.text)) for row in rows[-LOG_SHOWN:]]


def _said(event: Event) -> str:
    state = event.state.replace("_", " ") if event.state else ""
    return ": ".join(part for part in (state, event.text) if part)
