"""A gate's job as a check run on the pull request: running, finished, or cancelled."""

from __future__ import annotations

from agents.dev.check_result import CheckResult, check_name
from app.actions.sending import withdraw
from app.github import Annotation, Check
from app.ports import Ports
from app.store import now
from runners.protocol import Gate


def running_check(gate: Gate, job_id: str, page_url: str) -> Check:
    """The check run of a job that has started."""
    return Check(check_name(gate), job_id, "running", "The job has started.", details_url=page_url)


def waiting_check(gate: Gate, job_id: str, page_url: str, where: str) -> Check:
    """The check run of a job that runners elsewhere have, or shall take. where: a table of them, Markdown."""
    return Check(check_name(gate), job_id, "waiting for runners", where, details_url=page_url)


def finished_check(result: CheckResult, job_id: str, page_url: str) -> Check:
    """The check run of a job whose report was judged."""
    return Check(
        name=result.name,
        external_id=job_id,
        title=result.title,
        summary=result.summary,
        text=result.text,
        conclusion=result.conclusion,
        details_url=page_url,
        annotations=[
            Annotation(one.path, one.line, one.message, one.level, one.title) for one in result.annotations
        ],
    )


async def cancel_checks(ports: Ports, request_id: str, why: str = "The request was cancelled.") -> None:
    """Complete the check runs that a cancelled request leaves behind, and take back what runners elsewhere have."""
    request = ports.store.request(request_id)
    repository = ports.repository(request)
    await withdraw(ports, request)
    for job in ports.store.jobs(request_id):
        if job.state != "running":
            continue
        async with ports.outbox.making(check_write(job.id)):
            # read again: it may have got its check run, or its conclusion, a moment ago
            known = ports.store.job(job.id)
            if known is None or known.state != "running":
                continue
            ports.store.update_job(
                job.id, state="cancelled", conclusion="cancelled", title="cancelled", finished_at=now()
            )
            if known.check_run_id is not None:
                name = check_name(Gate(job.gate))
                check = Check(name, job.id, "cancelled", why, conclusion="cancelled")
                await repository.put_check(job.head_sha, check, known.check_run_id)


def check_write(job_id: str) -> str:
    """The name under which a job's check run is written by one process at a time."""
    return f"check {job_id}"
