"""Jobs of workflow runs: queued with their run, taken by a runner, ended by it, by a cancel, or by losing the runner."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import select

from app.localhub import events
from app.localhub.changes import runs
from app.localhub.clock import stamp
from app.localhub.expressions import ExpressionError, text_of, value_of
from app.localhub.payloads import workflows as payloads
from app.localhub.tables import Repository, SelfHostedRunner, WorkflowJob, WorkflowRun
from app.localhub.transaction import Transaction

LOST = "The self-hosted runner lost communication with the server."


def contexts_of(run: WorkflowRun) -> dict[str, Any]:
    """What expressions of the run's workflow file may name, but for the runner's own."""
    return {
        "inputs": run.inputs,
        "github": {
            "actor": run.actor.login,
            "event_name": run.event,
            "ref": f"refs/heads/{run.head_branch}",
            "ref_name": run.head_branch,
            "repository": run.repository.full_name,
            "run_id": str(run.id),
            "sha": run.head_sha,
        },
    }


def queue_jobs(tx: Transaction, run: WorkflowRun, workflow: dict[str, Any]) -> None:
    """Queue the jobs of a new run; a run of the same concurrency group is cancelled where the file says so."""
    contexts = contexts_of(run)
    concurrency = workflow.get("concurrency") or {}
    if isinstance(concurrency, str):
        concurrency = {"group": concurrency}
    try:
        group = text_of(concurrency.get("group", ""), contexts)
        if group and concurrency.get("cancel-in-progress") is True:
            _cancel_group(tx, run, group)
        for key, job in (workflow.get("jobs") or {}).items():
            labels = value_of((job or {}).get("runs-on"), contexts)
            row = WorkflowJob(
                run_id=run.id,
                key=key,
                name=text_of(job.get("name") or key, contexts),
                labels=[labels] if isinstance(labels, str) else list(labels or []),
                concurrency=group,
            )
            tx.session.add(row)
            tx.session.flush()
            send(tx, row, "queued")
    except ExpressionError:
        runs.advance(tx, run, "completed", "startup_failure")


def _cancel_group(tx: Transaction, run: WorkflowRun, group: str) -> None:
    query = select(WorkflowJob).where(WorkflowJob.concurrency == group, WorkflowJob.status != "completed")
    for row in tx.session.scalars(query).all():
        if row.run_id != run.id and row.run.repository_id == run.repository_id:
            end_run(tx, row.run, "cancelled")


def jobs_of(tx: Transaction, run: WorkflowRun) -> Sequence[WorkflowJob]:
    """The jobs of a run."""
    return tx.session.scalars(
        select(WorkflowJob).where(WorkflowJob.run_id == run.id).order_by(WorkflowJob.id)
    ).all()


def send(tx: Transaction, row: WorkflowJob, action: str) -> None:
    """Send `workflow_job` with that action."""
    body = {"workflow_job": payloads.workflow_job(tx, row)}
    events.emit(tx, "workflow_job", action, row.run.repository, body, sender=row.run.actor)


def take(tx: Transaction, name: str, labels: Sequence[str]) -> WorkflowJob | None:
    """The oldest queued job that a runner with those labels may have, now its own."""
    query = select(WorkflowJob).where(WorkflowJob.status == "queued").order_by(WorkflowJob.id)
    held = {label.lower() for label in labels}
    for row in tx.session.scalars(query).all():
        if row.labels and {str(label).lower() for label in row.labels} <= held:
            row.status, row.runner_name, row.started_at = "in_progress", name, stamp()
            _know(tx, row.run.repository, name, labels)
            tx.session.flush()
            send(tx, row, "in_progress")
            if row.run.status == "queued":
                runs.advance(tx, row.run, "in_progress")
            return row
    return None


def _know(tx: Transaction, repository: Repository, name: str, labels: Sequence[str]) -> None:
    query = select(SelfHostedRunner).where(
        SelfHostedRunner.repository_id == repository.id, SelfHostedRunner.name == name
    )
    if tx.session.scalar(query) is None:
        row = SelfHostedRunner(repository_id=repository.id, name=name, labels=list(labels), status="online")
        tx.session.add(row)


def end_job(tx: Transaction, row: WorkflowJob, conclusion: str) -> None:
    """A job has ended; with the last one its run ends."""
    if row.status == "completed":
        return
    row.status, row.conclusion, row.completed_at = "completed", conclusion, stamp()
    tx.session.flush()
    send(tx, row, "completed")
    conclusions = [one.conclusion for one in jobs_of(tx, row.run)]
    if None not in conclusions and row.run.status != "completed":
        worst = next((one for one in ("failure", "cancelled") if one in conclusions), "success")
        runs.advance(tx, row.run, "completed", worst)


def end_run(tx: Transaction, run: WorkflowRun, conclusion: str) -> None:
    """End a run and what is left of its jobs."""
    for row in jobs_of(tx, run):
        end_job(tx, row, conclusion)
    if run.status != "completed":
        runs.advance(tx, run, "completed", conclusion)


def lose_runner(tx: Transaction, name: str) -> int:
    """A runner is gone: its jobs have failed. Returns how many."""
    query = select(WorkflowJob).where(WorkflowJob.runner_name == name, WorkflowJob.status == "in_progress")
    rows = tx.session.scalars(query).all()
    for row in rows:
        row.steps = [*row.steps, {"name": LOST, "conclusion": "failure"}]
        end_job(tx, row, "failure")
    return len(rows)
