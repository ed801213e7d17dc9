"""Check suites and check runs."""

from typing import Any

from sqlalchemy import select

from app.localhub import events
from app.localhub.clock import stamp
from app.localhub.errors import ApiError, invalid
from app.localhub.payloads import checks as payloads
from app.localhub.tables import App, CheckRun, CheckSuite, Repository
from app.localhub.transaction import Transaction

OUTPUT_LIMIT = 65_535
ANNOTATION_LIMIT = 50
ACTION_LIMITS = {"label": 20, "description": 40, "identifier": 20}
ACTIONS_LIMIT = 3


def ensure_suite(
    tx: Transaction,
    repository: Repository,
    app: App,
    sha: str,
    branch: str | None = None,
    *,
    before: str | None = None,
) -> CheckSuite:
    """The App's suite on a commit, made if missing."""
    query = select(CheckSuite).where(
        CheckSuite.repository_id == repository.id, CheckSuite.app_id == app.id, CheckSuite.head_sha == sha
    )
    found = tx.session.scalar(query)
    if found is not None:
        return found
    if branch is None:
        heads = {
            value: ref for ref, value in tx.git.refs(repository.id).items() if ref.startswith("refs/heads/")
        }
        branch = heads[sha].removeprefix("refs/heads/") if sha in heads else None
    row = CheckSuite(
        repository_id=repository.id, app_id=app.id, head_sha=sha, head_branch=branch, before=before
    )
    tx.session.add(row)
    tx.session.flush()
    return row


def request_suites(tx: Transaction, repository: Repository, branch: str, before: str, after: str) -> None:
    """Make a suite for every App that writes checks, and ask each App to fill it."""
    for target in events.receivers(tx, repository, "check_suite"):
        if target.permissions.get("checks") == "write":
            suite = ensure_suite(tx, repository, target.app, after, branch, before=before)
            send_suite(tx, suite, "requested")


def send_suite(tx: Transaction, suite: CheckSuite, action: str) -> None:
    """Send `check_suite` with that action to the suite's App."""
    shown = payloads.check_suite(tx, suite)
    del shown["repository"]
    events.emit(tx, "check_suite", action, suite.repository, {"check_suite": shown}, only_app=suite.app)


def send_run(tx: Transaction, run: CheckRun, action: str, **extra: object) -> None:
    """Send `check_run` with that action; requests to run again or to act go to the run's own App alone."""
    shown = payloads.check_run(tx, run)
    suite = payloads.check_suite(tx, run.suite)
    shown["check_suite"] = {
        key: suite[key]
        for key in (
            "id",
            "node_id",
            "head_branch",
            "head_sha",
            "status",
            "conclusion",
            "url",
            "before",
            "after",
            "pull_requests",
            "app",
            "created_at",
            "updated_at",
        )
    }
    only = run.suite.app if action in ("rerequested", "requested_action") else None
    events.emit(tx, "check_run", action, run.suite.repository, {"check_run": shown, **extra}, only_app=only)


def _apply_output(run: CheckRun, output: dict[str, Any]) -> None:
    for name in ("summary", "text"):
        value = output.get(name)
        if value is not None and len(value) > OUTPUT_LIMIT:
            raise invalid(
                "CheckRun",
                f"output.{name}",
                "custom",
                f"{name} exceeds a maximum length of {OUTPUT_LIMIT} characters",
            )
    annotations = output.get("annotations") or []
    if len(annotations) > ANNOTATION_LIMIT:
        raise ApiError(
            422,
            f"Invalid request.\n\nNo more than {ANNOTATION_LIMIT} items are allowed; {len(annotations)} were supplied.",
        )
    run.title = output.get("title") if output.get("title") is not None else run.title
    run.summary = output.get("summary") if output.get("summary") is not None else run.summary
    run.text = output.get("text") if output.get("text") is not None else run.text
    run.annotations = [*run.annotations, *annotations]  # a later request adds to those of an earlier one
    run.images = output.get("images") or run.images


def _apply_actions(run: CheckRun, actions: list[dict[str, str]]) -> None:
    if len(actions) > ACTIONS_LIMIT:
        raise ApiError(
            422,
            f"Invalid request.\n\nNo more than {ACTIONS_LIMIT} items are allowed; {len(actions)} were supplied.",
        )
    for action in actions:
        for name, limit in ACTION_LIMITS.items():
            if not action.get(name):
                raise ApiError(422, f'Invalid request.\n\n"{name}" wasn\'t supplied.')
            if len(action[name]) > limit:
                raise ApiError(
                    422,
                    f"Invalid request.\n\nOnly {limit} characters are allowed; {len(action[name])} were supplied.",
                )
    run.actions = list(actions)


def apply(run: CheckRun, values: dict[str, Any]) -> None:
    """Set the given fields of a check run. A conclusion completes it, as on GitHub. Raises ApiError 422."""
    for name in ("name", "external_id", "details_url", "started_at"):
        if values.get(name) is not None:
            setattr(run, name, values[name])
    status, conclusion = values.get("status"), values.get("conclusion")
    if status == "completed" and conclusion is None:
        raise ApiError(
            422, "Invalid request.\n\nMissing required parameter `conclusion` when status is completed."
        )
    if conclusion is not None:
        run.status, run.conclusion = "completed", conclusion
        run.completed_at = values.get("completed_at") or stamp()
    elif status is not None:
        run.status, run.conclusion, run.completed_at = status, None, None
    if values.get("output") is not None:
        _apply_output(run, values["output"])
    if values.get("actions") is not None:
        _apply_actions(run, values["actions"])


def create_run(
    tx: Transaction, repository: Repository, app: App, head_sha: str, values: dict[str, Any]
) -> CheckRun:
    """A new check run of the App. Raises ApiError 422 when there is no such commit."""
    if tx.git.object_type(repository.id, head_sha) != "commit":
        raise ApiError(422, f"No commit found for SHA: {head_sha}")
    suite = ensure_suite(tx, repository, app, head_sha)
    run = CheckRun(
        suite=suite,
        name=values["name"],
        annotations=[],
        images=[],
        actions=[],
        external_id="",
        status="queued",
        started_at=stamp(),
    )
    apply(run, values)
    tx.session.add(run)
    suite.updated_at = stamp()
    tx.session.flush()
    send_run(tx, run, "created")
    if run.status == "completed":
        _completed(tx, run)
    return run


def update_run(tx: Transaction, run: CheckRun, values: dict[str, Any]) -> None:
    """Change a check run. Raises ApiError 422."""
    was = run.status
    apply(run, values)
    run.suite.updated_at = stamp()
    tx.session.flush()
    if run.status == "completed" and was != "completed":
        _completed(tx, run)


def _completed(tx: Transaction, run: CheckRun) -> None:
    send_run(tx, run, "completed")
    tx.session.refresh(run.suite, ["runs"])
    if payloads.suite_state(run.suite)[0] == "completed":
        send_suite(tx, run.suite, "completed")
