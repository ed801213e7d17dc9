"""Routes of pull requests and their reviews."""

from typing import Any, Literal

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from sqlalchemy import select

from app.localhub.changes import pulls as changes
from app.localhub.changes.issues import edit_issue
from app.localhub.changes.merging import merge_pull
from app.localhub.errors import invalid, not_found
from app.localhub.payloads import git_data
from app.localhub.payloads import pulls as payloads
from app.localhub.rest.dependencies import Paged, Read, Write
from app.localhub.rest.issues import may_edit
from app.localhub.tables import Issue, Repository, Review
from app.localhub.transaction import Transaction

router = APIRouter(prefix="/repos/{owner}/{repo}/pulls")
NEEDS = ("pull_requests",)
FILES_SHOWN = 3000


def _pull(tx: Transaction, repository: Repository, number: int) -> Issue:
    row = tx.issue(repository, number)
    if row.pull is None:
        raise not_found()
    return row


@router.get("")
def list_pulls(
    tx: Read,
    owner: str,
    repo: str,
    *,
    page: Paged,
    state: Literal["open", "closed", "all"] = "open",
    head: str | None = None,
    base: str | None = None,
    sort: Literal["created", "updated", "popularity", "long-running"] = "created",
    direction: Literal["asc", "desc"] | None = None,
) -> JSONResponse:
    repository = tx.repository(owner, repo, *NEEDS)
    head_ref = None
    if head is not None:
        # GitHub ignores a head without `user:`, a classic way to match every pull request.
        who, separator, branch = head.partition(":")
        if separator:
            head_ref = branch if who.lower() == repository.owner.login.lower() else ""
    rows = changes.find_pulls(tx, repository, head_ref, base, state)
    if sort == "updated":
        rows.sort(key=lambda row: row.updated_at, reverse=True)
    if direction == "asc":
        rows.reverse()
    return page.of(rows, lambda row: payloads.pull_simple(tx, row))


class NewPull(BaseModel):
    """A pull request to open."""

    title: str | None = None
    head: str
    base: str
    body: str | None = None
    draft: bool = False
    maintainer_can_modify: bool = True


@router.post("", status_code=201)
def create_pull(tx: Write, owner: str, repo: str, body: NewPull) -> dict[str, Any]:
    repository = tx.repository(owner, repo, *NEEDS, write=True)
    if body.title is None:
        raise invalid("PullRequest", "title", "missing_field")
    row = changes.create_pull(
        tx,
        repository,
        title=body.title,
        head=body.head,
        base=body.base,
        body=body.body,
        draft=body.draft,
        maintainer_can_modify=body.maintainer_can_modify,
    )
    return payloads.pull_request(tx, row)


@router.get("/{number}")
def get_pull(tx: Read, owner: str, repo: str, number: int, request: Request) -> Response:
    row = _pull(tx, tx.repository(owner, repo, *NEEDS), number)
    pull = changes.pull_of(row)
    if ".diff" in request.headers.get("accept", ""):
        start = tx.git.merge_base(row.repository_id, pull.base_sha, pull.head_sha) or pull.base_sha
        return Response(
            tx.git.diff_text(row.repository_id, start, pull.head_sha),
            media_type="application/vnd.github.diff; charset=utf-8",
        )
    return JSONResponse(payloads.pull_request(tx, row))


class PullUpdate(BaseModel):
    """What to change of a pull request."""

    title: str | None = None
    body: str | None = None
    state: Literal["open", "closed"] | None = None
    base: str | None = None
    maintainer_can_modify: bool | None = None


@router.patch("/{number}")
def update_pull(tx: Write, owner: str, repo: str, number: int, body: PullUpdate) -> dict[str, Any]:
    repository = tx.repository(owner, repo, *NEEDS, write=True)
    row = _pull(tx, repository, number)
    may_edit(tx, repository, row.author_id)
    edit_issue(tx, row, title=body.title, body=body.body)
    if body.maintainer_can_modify is not None:
        changes.pull_of(row).maintainer_can_modify = body.maintainer_can_modify
    if body.state == "closed":
        changes.close_pull(tx, row)
    elif body.state == "open":
        changes.reopen_pull(tx, row)
    return payloads.pull_request(tx, row)


@router.get("/{number}/files")
def list_files(tx: Read, owner: str, repo: str, number: int, page: Paged) -> JSONResponse:
    repository = tx.repository(owner, repo, *NEEDS)
    pull = changes.pull_of(_pull(tx, repository, number))
    start = tx.git.merge_base(repository.id, pull.base_sha, pull.head_sha) or pull.base_sha
    found = tx.git.changes(repository.id, start, pull.head_sha)[:FILES_SHOWN]
    return page.of(found, lambda item: git_data.file_change(tx, repository, item, pull.head_sha))


@router.get("/{number}/commits")
def list_commits(tx: Read, owner: str, repo: str, number: int, page: Paged) -> JSONResponse:
    repository = tx.repository(owner, repo, *NEEDS)
    pull = changes.pull_of(_pull(tx, repository, number))
    records = tx.git.commits(repository.id, pull.head_sha, pull.base_sha)[::-1]
    return page.of(records, lambda record: git_data.commit(tx, repository, record))


class MergeRequest(BaseModel):
    """How to merge."""

    commit_title: str | None = None
    commit_message: str | None = None
    sha: str | None = None
    merge_method: Literal["merge", "squash", "rebase"] = "merge"


@router.get("/{number}/merge", status_code=204)
def check_merged(tx: Read, owner: str, repo: str, number: int) -> Response:
    if changes.pull_of(_pull(tx, tx.repository(owner, repo, *NEEDS), number)).merged_at is None:
        raise not_found()
    return Response(status_code=204)


@router.put("/{number}/merge")
def merge(tx: Write, owner: str, repo: str, number: int, body: MergeRequest | None = None) -> dict[str, Any]:
    # Merging writes to the base branch, so GitHub asks an App for `contents`.
    repository = tx.repository(owner, repo, "contents", write=True, role="write")
    wanted = body or MergeRequest()
    sha = merge_pull(
        tx,
        _pull(tx, repository, number),
        method=wanted.merge_method,
        title=wanted.commit_title,
        message=wanted.commit_message,
        expected_head=wanted.sha,
    )
    return {"sha": sha, "merged": True, "message": "Pull Request successfully merged"}


@router.get("/{number}/reviews")
def list_reviews(tx: Read, owner: str, repo: str, number: int, page: Paged) -> JSONResponse:
    row = _pull(tx, tx.repository(owner, repo, *NEEDS), number)
    rows = tx.session.scalars(select(Review).where(Review.issue_id == row.id).order_by(Review.id)).all()
    return page.of(rows, lambda item: payloads.review(tx, item))


class NewReview(BaseModel):
    """A review to submit."""

    event: str = "COMMENT"
    body: str = ""


@router.post("/{number}/reviews")
def create_review(tx: Write, owner: str, repo: str, number: int, body: NewReview) -> dict[str, Any]:
    row = _pull(tx, tx.repository(owner, repo, *NEEDS, write=True), number)
    return payloads.review(tx, changes.create_review(tx, row, body.event, body.body))


@router.get("/{number}/comments")
def list_review_comments(tx: Read, owner: str, repo: str, number: int, page: Paged) -> JSONResponse:
    _pull(tx, tx.repository(owner, repo, *NEEDS), number)
    return page.of([], lambda item: item)
