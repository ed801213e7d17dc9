"""What a runner is handed for one job: the job of the workflow file, the contexts of its expressions, and a token."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import select

from app.localhub.actor import issue_installation_token
from app.localhub.changes.jobs import contexts_of
from app.localhub.changes.workflows import workflow_files
from app.localhub.tables import Installation, Repository, WorkflowJob
from app.localhub.transaction import Transaction


@dataclass(frozen=True)
class JobAtHand:
    """One job as a runner takes it."""

    id: int
    run_id: int
    key: str
    definition: dict[str, Any]  # of the workflow file: env, defaults, steps
    contexts: dict[str, Any]
    server_url: str


def job_at_hand(tx: Transaction, row: WorkflowJob) -> JobAtHand:
    """What the runner that took `row` needs."""
    run = row.run
    workflow = workflow_files(tx, run.repository, run.head_sha).get(run.path, {})
    contexts = contexts_of(run)
    contexts["github"] |= {
        "token": _token(tx, run.repository, workflow.get("permissions")),
        "job": row.key,
        "workflow": run.name,
        "server_url": tx.links.page("").rstrip("/"),
        "api_url": tx.links.api("").rstrip("/"),
        "run_number": str(run.run_number),
    }
    definition = {"env": workflow.get("env") or {}} | dict(workflow["jobs"][row.key])
    return JobAtHand(row.id, run.id, row.key, definition, contexts, tx.links.page("").rstrip("/"))


def _token(tx: Transaction, repository: Repository, declared: Any) -> str:
    """A token with the permissions that the workflow file declares; without any, it can read."""
    installation = tx.session.scalar(
        select(Installation).where(Installation.account_id == repository.owner_id).limit(1)
    )
    if installation is None:
        return ""
    permissions = {"contents": "read"} if not isinstance(declared, dict) else dict(declared)
    signing_key = tx.context.signing_key
    return issue_installation_token(tx.session, installation, permissions, [repository.id], signing_key)[0]
