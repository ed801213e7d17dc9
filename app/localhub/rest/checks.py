"""Routes of check runs and check suites."""

from typing import Any, Literal

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from app.localhub.changes import checks as changes
from app.localhub.errors import ApiError, not_found
from app.localhub.payloads import checks as payloads
from app.localhub.rest.commits import commit_named
from app.localhub.rest.dependencies import Paged, Read, Write
from app.localhub.tables import App, CheckRun, CheckSuite, Repository
from app.localhub.transaction import Transaction

router = APIRouter(prefix="/repos/{owner}/{repo}")
# waiting, requested and pending are GitHub Actions' own; `stale` only GitHub sets.
Status = Literal["queued", "in_progress", "completed"]
Conclusion = Literal["action_required", "cancelled", "failure", "neutral", "success", "skipped", "timed_out"]


class Annotation(BaseModel):
    """A remark on lines of a file."""

    path: str
    start_line: int
    end_line: int
    start_column: int | None = None
    end_column: int | None = None
    annotation_level: Literal["notice", "warning", "failure"]
    message: str
    title: str | None = None
    raw_details: str | None = None


class Image(BaseModel):
    """A picture below the output; it must lie at a public address."""

    alt: str
    image_url: str
    caption: str | None = None


class Output(BaseModel):
    """What a check run shows."""

    title: str | None = None
    summary: str | None = None
    text: str | None = None
    annotations: list[Annotation] = []
    images: list[Image] = []


class Action(BaseModel):
    """A button of a check run; limits are checked where it is stored."""

    label: str
    description: str
    identifier: str


class RunValues(BaseModel):
    """What can be set of a check run at any time."""

    external_id: str | None = None
    details_url: str | None = None
    status: Status | None = None
    conclusion: Conclusion | None = None
    started_at: str | None = None
    completed_at: str | None = None
    output: Output | None = None
    actions: list[Action] | None = None


class RunUpdate(RunValues):
    """What to change of a check run."""

    name: str | None = None


class NewRun(RunValues):
    """A check run to make."""

    name: str
    head_sha: str


def _writer(tx: Transaction, owner: str, repo: str) -> tuple[Repository, App]:
    repository = tx.repository(owner, repo, "checks", write=True)
    if tx.actor.app is None:
        raise ApiError(403, "You must authenticate via a GitHub App.")
    return repository, tx.actor.app


def _run(tx: Transaction, repository: Repository, number: int) -> CheckRun:
    row = tx.session.get(CheckRun, number)
    if row is None or row.suite.repository_id != repository.id:
        raise not_found()
    return row


def _require_output(body: NewRun) -> None:
    if body.output is None:
        return
    for name in ("title", "summary"):
        if getattr(body.output, name) is None:
            raise ApiError(422, f'Invalid request.\n\n"{name}" wasn\'t supplied.')


@router.post("/check-runs", status_code=201)
def create_check_run(tx: Write, owner: str, repo: str, body: NewRun) -> dict[str, Any]:
    repository, app = _writer(tx, owner, repo)
    _require_output(body)
    values = body.model_dump(exclude_none=True)
    return payloads.check_run(tx, changes.create_run(tx, repository, app, body.head_sha, values))


@router.patch("/check-runs/{run_id}")
def update_check_run(tx: Write, owner: str, repo: str, run_id: int, body: RunUpdate) -> dict[str, Any]:
    repository, app = _writer(tx, owner, repo)
    run = _run(tx, repository, run_id)
    if run.suite.app_id != app.id:
        raise ApiError(
            403,
            f"Invalid app_id `{run.suite.app_id}` - check run can only be modified by the GitHub App that created it.",
        )
    changes.update_run(tx, run, body.model_dump(exclude_none=True))
    return payloads.check_run(tx, run)


@router.get("/check-runs/{run_id}")
def get_check_run(tx: Read, owner: str, repo: str, run_id: int) -> dict[str, Any]:
    return payloads.check_run(tx, _run(tx, tx.repository(owner, repo, "checks"), run_id))


@router.get("/check-runs/{run_id}/annotations")
def list_annotations(tx: Read, owner: str, repo: str, run_id: int, page: Paged) -> JSONResponse:
    run = _run(tx, tx.repository(owner, repo, "checks"), run_id)
    blank = {"start_column": None, "end_column": None, "title": None, "raw_details": None}
    blob = tx.links.page(f"{owner}/{repo}/blob/{run.suite.head_sha}")
    return page.of(run.annotations, lambda item: blank | item | {"blob_href": f"{blob}/{item['path']}"})


@router.post("/check-runs/{run_id}/rerequest", status_code=201)
def rerequest_check_run(tx: Write, owner: str, repo: str, run_id: int) -> dict[str, Any]:
    repository = tx.repository(owner, repo, "checks", write=True, role="write")
    changes.send_run(tx, _run(tx, repository, run_id), "rerequested")
    return {}


def _list(
    tx: Transaction,
    suites: list[CheckSuite],
    page: Paged,
    name: str | None,
    status: str | None,
    *,
    which: str,
    app_id: int | None,
) -> JSONResponse:
    runs = [
        run
        for suite in suites
        if app_id is None or suite.app_id == app_id
        for run in (payloads.latest_runs(suite) if which == "latest" else suite.runs)
        if (name is None or run.name == name) and (status is None or payloads.run_state(run)[0] == status)
    ]
    runs.sort(key=lambda run: run.id, reverse=True)
    return page.of(runs, lambda run: payloads.check_run(tx, run), key="check_runs")


@router.get("/commits/{ref:path}/check-runs")
def list_for_ref(
    tx: Read,
    owner: str,
    repo: str,
    *,
    ref: str,
    page: Paged,
    check_name: str | None = None,
    status: Literal["queued", "in_progress", "completed"] | None = None,
    filter: Literal["latest", "all"] = "latest",  # noqa: A002 - GitHub's parameter
    app_id: int | None = None,
) -> JSONResponse:
    repository = tx.repository(owner, repo, "checks")
    record = commit_named(tx, repository, ref)
    suites = payloads.suites_of(tx, repository.id, record.sha)
    return _list(tx, suites, page, check_name, status, which=filter, app_id=app_id)


@router.get("/commits/{ref:path}/check-suites")
def list_suites_for_ref(
    tx: Read, owner: str, repo: str, *, ref: str, page: Paged, app_id: int | None = None
) -> JSONResponse:
    repository = tx.repository(owner, repo, "checks")
    record = commit_named(tx, repository, ref)
    suites = [
        suite
        for suite in payloads.suites_of(tx, repository.id, record.sha)
        if app_id is None or suite.app_id == app_id
    ]
    return page.of(suites, lambda suite: payloads.check_suite(tx, suite), key="check_suites")


def _suite(tx: Transaction, repository: Repository, number: int) -> CheckSuite:
    row = tx.session.get(CheckSuite, number)
    if row is None or row.repository_id != repository.id:
        raise not_found()
    return row


@router.get("/check-suites/{suite_id}")
def get_check_suite(tx: Read, owner: str, repo: str, suite_id: int) -> dict[str, Any]:
    return payloads.check_suite(tx, _suite(tx, tx.repository(owner, repo, "checks"), suite_id))


@router.get("/check-suites/{suite_id}/check-runs")
def list_for_suite(
    tx: Read,
    owner: str,
    repo: str,
    *,
    suite_id: int,
    page: Paged,
    check_name: str | None = None,
    status: Literal["queued", "in_progress", "completed"] | None = None,
    filter: Literal["latest", "all"] = "latest",  # noqa: A002 - GitHub's parameter
) -> JSONResponse:
    suite = _suite(tx, tx.repository(owner, repo, "checks"), suite_id)
    return _list(tx, [suite], page, check_name, status, which=filter, app_id=None)


@router.post("/check-suites/{suite_id}/rerequest", status_code=201)
def rerequest_suite(tx: Write, owner: str, repo: str, suite_id: int) -> dict[str, Any]:
    repository = tx.repository(owner, repo, "checks", write=True, role="write")
    changes.send_suite(tx, _suite(tx, repository, suite_id), "rerequested")
    return {}
