"""Check runs as pages show them."""

from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response
from sqlalchemy import select

from app.localhub.changes import checks as changes
from app.localhub.clock import parse_stamp
from app.localhub.errors import not_found
from app.localhub.pages.viewer import CheckedViewer, ViewerHere, back, page_transaction
from app.localhub.payloads.checks import latest_runs, run_state, suites_of
from app.localhub.payloads.issues import issue_page
from app.localhub.tables import CheckRun, Issue, PullRequest
from app.localhub.transaction import Transaction

router = APIRouter()

ICONS = {
    "success": ("✓", "good", "Successful"),
    "failure": ("✕", "bad", "Failing"),
    "timed_out": ("✕", "bad", "Timed out"),
    "cancelled": ("⊘", "quiet", "Cancelled"),
    "skipped": ("⊘", "quiet", "Skipped"),
    "neutral": ("◼", "quiet", "Neutral"),
    "stale": ("◼", "quiet", "Stale"),
    "action_required": ("!", "warn", "Action required"),
    "queued": ("●", "busy", "Queued"),
    "in_progress": ("●", "busy spin", "In progress"),
}


@dataclass(frozen=True)
class ShownCheck:
    """One check run with its icon."""

    run: CheckRun
    icon: str
    tone: str
    word: str
    duration: str


def _duration(run: CheckRun) -> str:
    if run.completed_at is None:
        return ""
    try:
        seconds = int((parse_stamp(run.completed_at) - parse_stamp(run.started_at)).total_seconds())
    except ValueError:
        return ""
    return f"{seconds // 60}m {seconds % 60}s" if seconds >= 60 else f"{max(seconds, 0)}s"


def shown(run: CheckRun) -> ShownCheck:
    """The run as a page shows it."""
    status, conclusion = run_state(run)
    icon, tone, word = ICONS[conclusion or status]
    return ShownCheck(run, icon, tone, word, _duration(run))


def checks_of(tx: Transaction, repository_id: int, sha: str) -> list[ShownCheck]:
    """The newest run of each check on a commit."""
    return [shown(run) for suite in suites_of(tx, repository_id, sha) for run in latest_runs(suite)]


def verdict(checks: list[ShownCheck]) -> dict[str, Any]:
    """The line above the list of checks."""
    busy = sum(check.tone.startswith("busy") for check in checks)
    bad = sum(check.tone in ("bad", "warn") for check in checks)
    quiet = sum(check.tone == "quiet" for check in checks)
    good = len(checks) - busy - bad - quiet
    counts = [
        f"{number} {word}"
        for number, word in (
            (bad, "failing"),
            (busy, "in progress"),
            (quiet, "neutral or skipped"),
            (good, "successful"),
        )
        if number
    ]
    if bad:
        title, tone = "Some checks were not successful", "bad"
    elif busy:
        title, tone = "Some checks haven't completed yet", "busy"
    else:
        title, tone = "All checks have passed", "good"
    return {
        "title": title,
        "tone": tone,
        "counts": ", ".join(counts) + (" checks" if len(checks) != 1 else " check"),
    }


def _run(tx: Transaction, owner: str, name: str, run_id: int) -> CheckRun:
    repository = tx.repository(owner, name, "checks")
    run = tx.session.get(CheckRun, run_id)
    if run is None or run.suite.repository_id != repository.id:
        raise not_found()
    return run


@router.get("/{owner}/{name}/runs/{run_id}")
def check_run_page(request: Request, viewer: ViewerHere, owner: str, name: str, run_id: int) -> Response:
    with page_transaction(request, viewer) as tx:
        run = _run(tx, owner, name, run_id)
        query = (
            select(Issue)
            .join(PullRequest, PullRequest.issue_id == Issue.id)
            .where(Issue.repository_id == run.suite.repository_id, PullRequest.head_sha == run.suite.head_sha)
            .order_by(Issue.number.desc())
        )
        pull = tx.session.scalar(query)
        if pull is None:
            return RedirectResponse(f"/{owner}/{name}/commit/{run.suite.head_sha}", status_code=302)
        return RedirectResponse(f"/{issue_page(pull)}/checks#run-{run.id}", status_code=302)


@router.post("/{owner}/{name}/runs/{run_id}/rerequest")
def rerequest(request: Request, viewer: CheckedViewer, owner: str, name: str, run_id: int) -> Response:
    with page_transaction(request, viewer, write=True) as tx:
        tx.repository(owner, name, "checks", write=True, role="write")
        changes.send_run(tx, _run(tx, owner, name, run_id), "rerequested")
    return back(f"/{owner}/{name}/runs/{run_id}")


@router.post("/{owner}/{name}/runs/{run_id}/actions/{identifier}")
def requested_action(
    request: Request, viewer: CheckedViewer, owner: str, name: str, *, run_id: int, identifier: str
) -> Response:
    with page_transaction(request, viewer, write=True) as tx:
        tx.repository(owner, name, "checks", write=True, role="write")
        run = _run(tx, owner, name, run_id)
        if identifier not in [action["identifier"] for action in run.actions]:
            raise not_found()
        changes.send_run(tx, run, "requested_action", requested_action={"identifier": identifier})
    return back(f"/{owner}/{name}/runs/{run_id}")
