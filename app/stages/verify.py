"""Verify: one job a gate, its report as a check run on the pull request; repair, at most three rounds."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from agents.command_agent import AnyCandidate, AnyProfile, nothing_to_judge
from agents.dev.check_result import CheckResult
from agents.ports import ModelError
from agents.registry import agent_of
from app.actions.faults import Fault
from app.actions.joined import Part, join, matrix
from app.actions.plots import with_plots
from app.actions.sending import RUNNING, all_settled, dispatch_job
from app.check_runs import check_write, finished_check, running_check, waiting_check
from app.github import Check, GitHubError
from app.ports import Ports
from app.stages.act import approved_profile, candidate_of
from app.stages.progress import on_progress
from app.stages.target import checkout, place
from app.states import State
from app.store import now
from app.store.dispatches import SETTLED
from app.tables import Request, StoredCandidate, StoredJob
from runners.protocol import Gate, Job, Report

BLOCKING = frozenset({"failure", "timed_out", "action_required"})


# What a gate concludes while its report is still to come from elsewhere.
WAITING = "waiting"


async def begin(ports: Ports, request_id: str) -> int:
    """Show that verification goes on; returns the round of repair that it stands at."""
    request = ports.store.move(request_id, State.verifying)
    await ports.status.put(request_id)
    return request.round


async def run_gate(ports: Ports, request_id: str, gate: str) -> str:
    """Run one gate of the newest candidate and report it as a check run; returns its conclusion.

    A gate that runners elsewhere judge is sent to them; it concludes WAITING until all have answered.
    """
    request = ports.store.request(request_id)
    stored, candidate, profile = _candidate(ports, request)
    job_id = f"{request_id}-{request.attempt}-{request.round}-{gate}"
    row = ports.store.start_job(_new_job(request, job_id, gate, stored.head_sha))
    if row.state == "done":
        return row.conclusion or "neutral"
    if row.state == "cancelled":
        return WAITING
    # a job that is sent again is another dispatch: an old runner's late report must not pass for it
    nonce = secrets.token_hex(16)
    row = ports.store.update_job(job_id, nonce=nonce)
    seed = secrets.randbits(32)  # unknown to whoever wrote the candidate
    agent = agent_of(request.verb)
    architectures = await _elsewhere(ports, request, row)
    if architectures:
        payload = agent.plan(profile, candidate, ".", stored.head_sha, seed).get(Gate(gate))
        if payload is not None:
            await dispatch_job(ports, request, row, payload, architectures)
            return await _show_elsewhere(ports, request, row, profile)
    running = running_check(Gate(gate), job_id, ports.page_url(request_id))
    await _put_check(ports, request, row, running)
    await ports.status.progress(request_id, f"{gate} has started")

    path = await checkout(ports, request, stored.head_sha)
    payload = agent.plan(profile, candidate, str(path), stored.head_sha, seed).get(Gate(gate))
    if payload is None:
        return await _finish(ports, request, row, nothing_to_judge(Gate(gate), agent.without_job), {})
    job = Job(id=job_id, nonce=nonce, deadline_s=ports.settings.job_deadline_seconds, payload=payload)
    report = await ports.bench.run(job, on_progress(ports, request_id, gate))
    return await _finish(ports, request, row, agent.judge(Gate(gate), report, profile), {"here": report})


async def _elsewhere(ports: Ports, request: Request, job: StoredJob) -> dict[str, list[str]]:
    """Architecture -> runner labels, where this gate is judged; empty: on this machine."""
    sent = ports.store.dispatches_of_job(job.id)
    if sent:  # what was begun in one place is finished there
        return {one.architecture: one.labels for one in sent}
    if job.gate not in ports.settings.gates_on_actions:
        return {}
    return dict((await ports.config(request)).runners)


async def show_gate(ports: Ports, job_id: str) -> None:
    """Bring the check run of a gate that is judged elsewhere up to date: concluded once every runner has answered."""
    job = ports.store.job(job_id)
    request = ports.store.request(job.request_id) if job else None
    if (
        job is None
        or request is None
        or job.state != "running"
        or State(request.state) is not State.verifying
    ):
        return
    if (job.attempt, job.round) == (request.attempt, request.round):
        _, _, profile = _candidate(ports, request)
        await _show_elsewhere(ports, request, job, profile)


async def _show_elsewhere(ports: Ports, request: Request, job: StoredJob, profile: AnyProfile) -> str:
    """The gate's conclusion when every runner has answered, else WAITING; either is shown."""
    gate, agent = Gate(job.gate), agent_of(request.verb)
    dispatches = ports.store.dispatches_of_job(job.id)
    reports = {one.architecture: Report.model_validate(one.report) for one in dispatches if one.report}
    parts = [
        Part(
            one.architecture,
            one.labels,
            one.run_url,
            result=agent.judge(gate, reports[one.architecture], profile) if one.report else None,
            fault=Fault(one.fault) if one.fault else None,
            detail=one.detail,
            waiting="" if one.state == SETTLED else "running" if one.state == RUNNING else "queued",
        )
        for one in dispatches
    ]
    if all_settled(dispatches):
        return await _finish(ports, request, job, join(gate, parts), reports)
    waiting = waiting_check(gate, job.id, ports.page_url(request.id), matrix(gate, parts))
    await _put_check(ports, request, job, waiting)
    return WAITING


def _new_job(request: Request, job_id: str, gate: str, head_sha: str) -> StoredJob:
    return StoredJob(
        id=job_id,
        request_id=request.id,
        attempt=request.attempt,
        round=request.round,
        gate=gate,
        nonce="",
        head_sha=head_sha,
        check_run_id=None,
        state="running",
        conclusion=None,
        title="",
        report=None,
        created_at=now(),
        finished_at=None,
    )


async def _put_check(ports: Ports, request: Request, job: StoredJob, check: Check, **concluded: Any) -> None:
    """Show a check run, and keep `concluded` of its job in the same breath.

    The service and a worker may be at it at once: word that a gate still runs must not come after its conclusion.
    """
    async with ports.outbox.making(check_write(job.id)):
        known = ports.store.job(job.id)
        if known is not None and (
            known.state == "cancelled" or (known.state != "running" and check.conclusion is None)
        ):
            return
        check_id = known.check_run_id if known else None
        check_id = await ports.repository(request).put_check(job.head_sha, check, check_id)
        ports.store.update_job(job.id, check_run_id=check_id, **concluded)


async def _finish(
    ports: Ports, request: Request, job: StoredJob, result: CheckResult, reports: Mapping[str, Report]
) -> str:
    """Show what a gate concluded and keep it, with the report that a repair would start from."""
    result = await with_plots(ports, request, job, result, reports)
    worst = next((one for one in reports.values() if not one.ok), next(iter(reports.values()), None))
    await _put_check(
        ports,
        request,
        job,
        finished_check(result, job.id, ports.page_url(request.id)),
        state="done",
        conclusion=result.conclusion,
        title=result.title,
        report=worst.model_dump(mode="json") if worst else None,
        finished_at=now(),
    )
    ports.store.note(request.id, "gate", f"{job.gate}: {result.conclusion}: {result.title}")
    await ports.status.progress(request.id, f"{job.gate}: {result.conclusion}")
    return result.conclusion


def _candidate(ports: Ports, request: Request) -> tuple[StoredCandidate, AnyCandidate, AnyProfile]:
    stored = ports.store.candidate(request.id, pushed=True)
    if stored is None:
        raise LookupError(f"request {request.id} has no pushed candidate")
    return stored, candidate_of(request, stored), approved_profile(ports, request)


async def repair(ports: Ports, request_id: str, round_: int) -> bool:
    """Make the next round's candidate from the reports of this one. False when nothing is known to try."""
    request = ports.store.request(request_id)
    stored, candidate, profile = _candidate(ports, request)
    if stored.pushed_by:
        return False  # the code is a person's, and so is the next step
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


def waits(conclusions: Mapping[Gate, str]) -> bool:
    """Whether a gate's report is still to come."""
    return WAITING in conclusions.values()
