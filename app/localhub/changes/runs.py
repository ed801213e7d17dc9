"""A workflow run's own state, and the webhooks that tell of it."""

from app.localhub import events
from app.localhub.clock import stamp
from app.localhub.payloads import workflows as payloads
from app.localhub.tables import WorkflowRun
from app.localhub.transaction import Transaction


def send(tx: Transaction, run: WorkflowRun, action: str) -> None:
    """Send `workflow_run` with that action."""
    body = {
        "workflow": payloads.workflow(tx, run.repository, run.path, run.name),
        "workflow_run": payloads.workflow_run(tx, run),
    }
    events.emit(tx, "workflow_run", action, run.repository, body, sender=run.actor)


def advance(tx: Transaction, run: WorkflowRun, status: str, conclusion: str | None = None) -> None:
    """Move a run on: `in_progress`, or `completed` with a conclusion."""
    run.status, run.conclusion = status, conclusion
    run.updated_at = stamp()
    tx.session.flush()
    if status in ("in_progress", "completed"):
        send(tx, run, status)
