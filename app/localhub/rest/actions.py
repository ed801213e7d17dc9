"""Routes of GitHub Actions: workflows, dispatch, runs and artifacts."""

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse
from pydantic import BaseModel
from sqlalchemy import select

from app.localhub.changes import jobs
from app.localhub.changes import workflows as changes
from app.localhub.clock import stamp
from app.localhub.errors import ApiError, not_found
from app.localhub.payloads import workflows as payloads
from app.localhub.rest.dependencies import Paged, Read, Write
from app.localhub.tables import Artifact, Repository, WorkflowJob, WorkflowRun
from app.localhub.transaction import Transaction

router = APIRouter(prefix="/repos/{owner}/{repo}/actions")
ENTERPRISE_INPUT_LIMIT = 10


def _workflows(tx: Transaction, repository: Repository) -> dict[str, str]:
    """Path and name of each workflow on the default branch."""
    tip = tx.git.ref(repository.id, f"refs/heads/{repository.default_branch}")
    files = changes.workflow_files(tx, repository, tip) if tip else {}
    return {path: str(parsed.get("name") or path) for path, parsed in files.items()}


def _path(tx: Transaction, repository: Repository, workflow: str) -> str:
    for path in _workflows(tx, repository):
        if workflow in (path, path.rsplit("/", 1)[-1], str(payloads.workflow_id(repository, path))):
            return path
    raise not_found()


@router.get("/workflows")
def list_workflows(tx: Read, owner: str, repo: str, page: Paged) -> JSONResponse:
    repository = tx.repository(owner, repo, "actions")
    found = list(_workflows(tx, repository).items())
    return page.of(found, lambda item: payloads.workflow(tx, repository, *item), key="workflows")


@router.get("/workflows/{workflow}")
def get_workflow(tx: Read, owner: str, repo: str, workflow: str) -> dict[str, Any]:
    repository = tx.repository(owner, repo, "actions")
    path = _path(tx, repository, workflow)
    return payloads.workflow(tx, repository, path, _workflows(tx, repository)[path])


class Dispatch(BaseModel):
    """A run to start."""

    ref: str
    inputs: dict[str, Any] = {}
    return_run_details: bool | None = None


@router.post("/workflows/{workflow}/dispatches")
def dispatch(
    tx: Write, owner: str, repo: str, *, workflow: str, body: Dispatch, request: Request
) -> Response:
    repository = tx.repository(owner, repo, "actions", write=True, role="write")
    enterprise = request.app.state.enterprise
    if enterprise and body.return_run_details is not None:
        raise ApiError(400, 'Invalid request.\n\n"return_run_details" is not a permitted key.')
    limit = ENTERPRISE_INPUT_LIMIT if enterprise else changes.INPUT_LIMIT
    run = changes.dispatch(
        tx, repository, _path(tx, repository, workflow), body.ref, body.inputs, input_limit=limit
    )
    if tx.legacy and not body.return_run_details:
        return Response(status_code=204)
    shown = payloads.workflow_run(tx, run)
    return JSONResponse({"workflow_run_id": run.id, "run_url": shown["url"], "html_url": shown["html_url"]})


def _runs(
    tx: Transaction, repository: Repository, page: Paged, path: str | None, **wanted: str | None
) -> JSONResponse:
    query = (
        select(WorkflowRun).where(WorkflowRun.repository_id == repository.id).order_by(WorkflowRun.id.desc())
    )
    if path is not None:
        query = query.where(WorkflowRun.path == path)
    if wanted["event"] is not None:
        query = query.where(WorkflowRun.event == wanted["event"])
    if wanted["head_sha"] is not None:
        query = query.where(WorkflowRun.head_sha == wanted["head_sha"])
    if wanted["branch"] is not None:
        query = query.where(WorkflowRun.head_branch == wanted["branch"])
    if wanted["status"] is not None:
        query = query.where(
            (WorkflowRun.status == wanted["status"]) | (WorkflowRun.conclusion == wanted["status"])
        )
    return page.of(
        tx.session.scalars(query).all(), lambda run: payloads.workflow_run(tx, run), key="workflow_runs"
    )


@router.get("/workflows/{workflow}/runs")
def list_workflow_runs(
    tx: Read,
    owner: str,
    repo: str,
    *,
    workflow: str,
    page: Paged,
    event: str | None = None,
    status: str | None = None,
    head_sha: str | None = None,
    branch: str | None = None,
) -> JSONResponse:
    repository = tx.repository(owner, repo, "actions")
    return _runs(
        tx,
        repository,
        page,
        _path(tx, repository, workflow),
        event=event,
        status=status,
        head_sha=head_sha,
        branch=branch,
    )


@router.get("/runs")
def list_runs(
    tx: Read,
    owner: str,
    repo: str,
    *,
    page: Paged,
    event: str | None = None,
    status: str | None = None,
    head_sha: str | None = None,
    branch: str | None = None,
) -> JSONResponse:
    repository = tx.repository(owner, repo, "actions")
    return _runs(tx, repository, page, None, event=event, status=status, head_sha=head_sha, branch=branch)


def _run(tx: Transaction, repository: Repository, number: int) -> WorkflowRun:
    row = tx.session.get(WorkflowRun, number)
    if row is None or row.repository_id != repository.id:
        raise not_found()
    return row


@router.get("/runs/{run_id}")
def get_run(tx: Read, owner: str, repo: str, run_id: int) -> dict[str, Any]:
    return payloads.workflow_run(tx, _run(tx, tx.repository(owner, repo, "actions"), run_id))


@router.post("/runs/{run_id}/cancel", status_code=202)
def cancel_run(tx: Write, owner: str, repo: str, run_id: int) -> dict[str, Any]:
    run = _run(tx, tx.repository(owner, repo, "actions", write=True, role="write"), run_id)
    if run.status == "completed":
        raise ApiError(409, "Cannot cancel a workflow run that is completed.")
    jobs.end_run(tx, run, "cancelled")
    return {}


@router.get("/runs/{run_id}/jobs")
def list_run_jobs(tx: Read, owner: str, repo: str, *, run_id: int, page: Paged) -> JSONResponse:
    run = _run(tx, tx.repository(owner, repo, "actions"), run_id)
    return page.of(jobs.jobs_of(tx, run), lambda row: payloads.workflow_job(tx, row), key="jobs")


@router.get("/jobs/{job_id}")
def get_job(tx: Read, owner: str, repo: str, job_id: int) -> dict[str, Any]:
    repository = tx.repository(owner, repo, "actions")
    row = tx.session.get(WorkflowJob, job_id)
    if row is None or row.run.repository_id != repository.id:
        raise not_found()
    return payloads.workflow_job(tx, row)


@router.get("/runs/{run_id}/artifacts")
def list_run_artifacts(
    tx: Read, owner: str, repo: str, *, run_id: int, page: Paged, name: str | None = None
) -> JSONResponse:
    run = _run(tx, tx.repository(owner, repo, "actions"), run_id)
    rows = tx.session.scalars(select(Artifact).where(Artifact.run_id == run.id).order_by(Artifact.id)).all()
    rows = [row for row in rows if name is None or row.name == name]
    return page.of(rows, lambda row: payloads.artifact(tx, row), key="artifacts")


def _artifact(tx: Transaction, repository: Repository, number: int) -> Artifact:
    row = tx.session.get(Artifact, number)
    if row is None or row.run.repository_id != repository.id:
        raise not_found()
    return row


@router.get("/artifacts/{artifact_id}")
def get_artifact(tx: Read, owner: str, repo: str, artifact_id: int) -> dict[str, Any]:
    return payloads.artifact(tx, _artifact(tx, tx.repository(owner, repo, "actions"), artifact_id))


@router.get("/artifacts/{artifact_id}/zip")
def download_artifact(tx: Read, owner: str, repo: str, artifact_id: int) -> Response:
    row = _artifact(tx, tx.repository(owner, repo, "actions"), artifact_id)
    tx.actor.signed_in()
    if row.expires_at <= stamp():
        raise ApiError(410, "Artifact has expired")
    return RedirectResponse(tx.links.page(f"_artifacts/{row.id}-{row.sha256}.zip"), status_code=302)
