"""Verify: one job a gate, its report as a check run on the pull request; repair, at most three rounds."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from agents.command_agent import AnyCandidate, AnyProfile, nothing_to_judge
from agents.dev.check_result import CheckResult
from agents.ports import ModelError
from agents.registry import agent_of
from app.check_runs import finished_check, running_check
from app.github import GitHubError
from app.ports import Ports
from app.stages.act import approved_profile, candidate_of
from app.stages.progress import on_progress
from app.stages.target import checkout, place
from app.states import State
from app.store import now
from app.tables import Request, StoredCandidate, StoredJob
from runners.protocol import Gate, Job, Report

BLOCKING = frozenset({"failure", "timed_out", "action_required"})


async def begin(ports: Ports, request_id: str) -> None:
    """Show that verification has started."""
    ports.store.move(request_id, State.verifying)
    await ports.status.put(request_id)


async def run_gate(ports: Ports, request_id: str, gate: str) -> str:
    """Run one gate of the newest candidate and report it as a check run; returns its conclusion."""
    request = ports.store.request(request_id)
    stored, candidate, profile = _candidate(ports, request)
    job_id = f"{request_id}-{request.attempt}-{request.round}-{gate}"
    nonce = secrets.token_hex(16)
    row = ports.store.start_job(
        StoredJob(
            id=job_id,
            request_id=request_id,
            attempt=request.attempt,
            round=request.round,
            gate=gate,
            nonce=nonce,
            head_sha=stored.head_sha,
            check_run_id=None,
            state="running",
            conclusion=None,
            title="",
            report=None,
            created_at=now(),
            finished_at=None,
        )
    )
    if row.state == "done":
        return row.conclusion or "neutral"
    # a job that is sent again is another dispatch: an old runner's late report must not pass for it
    ports.store.update_job(job_id, nonce=nonce)
    repository = ports.repository(request)
    running = running_check(Gate(gate), job_id, ports.page_url(request_id))
    check_id = await repository.put_check(stored.head_sha, running, row.check_run_id)
    ports.store.update_job(job_id, check_run_id=check_id)
    await ports.status.progress(request_id, f"{gate} has started")

    path = await checkout(ports, request, stored.head_sha)
    seed = int(nonce[:8], 16)  # unknown to whoever wrote the candidate
    agent = agent_of(request.verb)
    payload = agent.plan(profile, candidate, str(path), stored.head_sha, seed).get(Gate(gate))
    report = None
    if payload is None:
        result: CheckResult = nothing_to_judge(Gate(gate), agent.without_job)
    else:
        job = Job(id=job_id, nonce=nonce, deadline_s=ports.settings.job_deadline_seconds, payload=payload)
        report = await ports.bench.run(job, on_progress(ports, request_id, gate))
        result = agent.judge(Gate(gate), report, profile)
    await repository.put_check(
        stored.head_sha, finished_check(result, job_id, ports.page_url(request_id)), check_id
    )
    ports.store.update_job(
        job_id,
        state="done",
        conclusion=result.conclusion,
        title=result.title,
        report=report.model_dump(mode="json") if report else None,
        finished_at=now(),
    )
    ports.store.note(request_id, "gate", f"{gate}: {result.conclusion}: {result.title}")
    await ports.status.progress(request_id, f"{gate}: {result.conclusion}")
    return result.conclusion


def _candidate(ports: Ports, request: Request) -> tuple[StoredCandidate, AnyCandidate, AnyProfile]:
    stored = ports.store.candidate(request.id, pushed=True)
    if stored is None:
        raise LookupError(f"request {request.id} has no pushed candidate")
    return stored, candidate_of(request, stored), approved_profile(ports, request)


async def repair(ports: Ports, request_id: str, round_: int) -> bool:
    """Make the next round's candidate from the reports of this one. False when nothing is known to try."""
    request = ports.store.request(request_id)
    _, candidate, profile = _candidate(ports, request)
    jobs = ports.store.jobs(request_id, request.attempt, round_ - 1)
    reports = {Gate(job.gate): Report.model_validate(job.report) for job in jobs if job.report}
    here = await place(ports, request, request.head_sha)
    try:
        repaired = await agent_of(request.verb).repair(profile, candidate, reports, here, round_)
    except ModelError as error:
        ports.store.note(request_id, "error", f"the model could not be asked for a repair: {error}")
        return False
    if repaired is None or repaired.files == candidate.files:
        return False
    ports.store.save_candidate(request_id, request.attempt, round_, repaired)
    ports.store.move(request_id, State.repairing, f"round {round_}")
    await ports.status.put(request_id)
    return True


async def finish(ports: Ports, request_id: str) -> None:
    """Hand the pull request over to people."""
    request = ports.store.request(request_id)
    repository = ports.repository(request)
    pull = await repository.pull(request.pull_number) if request.pull_number else None
    if pull is not None and pull.state == "closed":
        ports.store.move(request_id, State.merged if pull.merged else State.closed)
    else:
        ports.store.move(request_id, State.in_review)
    await ports.status.put(request_id)
    try:
        await repository.react(request.comment_id, "rocket")
    except GitHubError as error:  # a reaction is a courtesy
        ports.store.note(request_id, "error", f"reaction not set: {error}")


def blocks(conclusions: Mapping[Gate, str]) -> bool:
    """Whether a gate's conclusion stands in the way of a merge."""
    return any(one in BLOCKING for one in conclusions.values())
