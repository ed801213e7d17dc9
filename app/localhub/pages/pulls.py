"""Pages of one pull request: conversation, commits, checks, files; merging, closing, reviewing."""

from typing import Annotated, Any

from fastapi import APIRouter, Form, Request
from fastapi.responses import PlainTextResponse, Response

from app.localhub.changes import pulls as changes
from app.localhub.changes.merging import merge_pull
from app.localhub.errors import not_found
from app.localhub.pages.checks import checks_of, verdict
from app.localhub.pages.conversation import EMOJI, entries
from app.localhub.pages.diff import rows_of
from app.localhub.pages.issues import open_counts
from app.localhub.pages.viewer import (
    CheckedViewer,
    ViewerHere,
    back,
    may_write,
    page_transaction,
    render,
)
from app.localhub.payloads.pulls import mergeable
from app.localhub.tables import Issue, Repository
from app.localhub.transaction import Transaction

router = APIRouter()
TABS = ("conversation", "commits", "checks", "files")


def _pull(tx: Transaction, owner: str, name: str, number: int) -> tuple[Repository, Issue]:
    repository = tx.repository(owner, name)
    issue = tx.issue(repository, number)
    if issue.pull is None:
        raise not_found()
    return repository, issue


def _start(tx: Transaction, issue: Issue) -> str:
    pull = changes.pull_of(issue)
    return tx.git.merge_base(issue.repository_id, pull.base_sha, pull.head_sha) or pull.base_sha


def _state(issue: Issue) -> tuple[str, str]:
    pull = changes.pull_of(issue)
    if pull.merged_at:
        return "merged", "Merged"
    if issue.state == "closed":
        return "closed", "Closed"
    return ("draft", "Draft") if pull.draft else ("open", "Open")


@router.get("/{owner}/{name}/pull/{number}.diff")
def pull_diff(request: Request, viewer: ViewerHere, owner: str, name: str, number: int) -> Response:
    with page_transaction(request, viewer) as tx:
        _, issue = _pull(tx, owner, name, number)
        return PlainTextResponse(
            tx.git.diff_text(issue.repository_id, _start(tx, issue), changes.pull_of(issue).head_sha)
        )


@router.get("/{owner}/{name}/pull/{number}")
@router.get("/{owner}/{name}/pull/{number}/{tab}")
def pull_page(
    request: Request, viewer: ViewerHere, owner: str, name: str, *, number: int, tab: str = "conversation"
) -> Response:
    if tab not in TABS:
        raise not_found()
    with page_transaction(request, viewer) as tx:
        repository, issue = _pull(tx, owner, name, number)
        pull = changes.pull_of(issue)
        start = _start(tx, issue)
        files = tx.git.changes(repository.id, start, pull.head_sha)
        checks = checks_of(tx, repository.id, pull.head_sha)
        state, word = _state(issue)
        values: dict[str, Any] = {
            "repository": repository,
            "counts": open_counts(tx, repository),
            "issue": issue,
            "pull": pull,
            "tab": tab,
            "state": state,
            "word": word,
            "files": files,
            "additions": sum(item.additions for item in files),
            "deletions": sum(item.deletions for item in files),
            "commits": tx.git.commits(repository.id, pull.head_sha, start)[::-1],
            "checks": checks,
            "verdict": verdict(checks),
            "emoji": EMOJI,
            "writer": may_write(tx, repository),
            "may_close": may_write(tx, repository)
            or (tx.actor.account is not None and tx.actor.account.id == issue.author_id),
        }
        if tab == "conversation":
            values["entries"] = entries(tx, issue)
            values["clean"] = mergeable(tx, issue)
        if tab == "files":
            values["diffs"] = [(item, rows_of(item)) for item in files]
        return render(request, tx, viewer, "pull.html", **values)


@router.post("/{owner}/{name}/pull/{number}/merge")
def merge(
    request: Request,
    viewer: CheckedViewer,
    owner: str,
    name: str,
    *,
    number: int,
    method: Annotated[str, Form()] = "merge",
) -> Response:
    with page_transaction(request, viewer, write=True) as tx:
        tx.repository(owner, name, "contents", write=True, role="write")
        merge_pull(tx, _pull(tx, owner, name, number)[1], method=method)
    return back(f"/{owner}/{name}/pull/{number}")


@router.post("/{owner}/{name}/pull/{number}/ready")
def ready(request: Request, viewer: CheckedViewer, owner: str, name: str, number: int) -> Response:
    with page_transaction(request, viewer, write=True) as tx:
        tx.repository(owner, name, "pull_requests", write=True, role="write")
        changes.set_draft(tx, _pull(tx, owner, name, number)[1], draft=False)
    return back(f"/{owner}/{name}/pull/{number}")


@router.post("/{owner}/{name}/pull/{number}/reviews")
def review(
    request: Request,
    viewer: CheckedViewer,
    owner: str,
    name: str,
    *,
    number: int,
    event: Annotated[str, Form()] = "COMMENT",
    body: Annotated[str, Form()] = "",
) -> Response:
    with page_transaction(request, viewer, write=True) as tx:
        tx.repository(owner, name, "pull_requests", write=True)
        changes.create_review(tx, _pull(tx, owner, name, number)[1], event, body)
    return back(f"/{owner}/{name}/pull/{number}")
