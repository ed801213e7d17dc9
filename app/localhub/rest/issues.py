"""Routes of issues, comments, their labels and reactions."""

from typing import Any, Literal

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from sqlalchemy import select

from app.localhub.actor import level
from app.localhub.changes import issues as changes
from app.localhub.changes.pulls import close_pull, reopen_pull
from app.localhub.clock import parse_stamp, stamp
from app.localhub.errors import ApiError, not_found
from app.localhub.payloads import issues as payloads
from app.localhub.rest.dependencies import Paged, Read, Write
from app.localhub.tables import Comment, Issue, Repository
from app.localhub.transaction import Transaction

router = APIRouter(prefix="/repos/{owner}/{repo}")
# A pull request's conversation is open to either permission.
EITHER = ("issues", "pull_requests")
Content = Literal["+1", "-1", "laugh", "confused", "heart", "hooray", "rocket", "eyes"]


def _since(text: str) -> str:
    try:
        return stamp(parse_stamp(text))
    except ValueError as error:
        raise ApiError(422, 'Invalid request.\n\n"since" is not a timestamp.') from error


def may_edit(tx: Transaction, repository: Repository, author_id: int) -> None:
    """Raise ApiError 403 unless the caller wrote it or may write to the repository."""
    account = tx.actor.signed_in()
    if (
        tx.actor.kind == "user"
        and account.id != author_id
        and level(tx.session, tx.actor, repository) not in ("write", "admin")
    ):
        raise ApiError(403, "Must have admin rights to Repository.")


@router.get("/issues")
def list_issues(
    tx: Read,
    owner: str,
    repo: str,
    *,
    page: Paged,
    state: Literal["open", "closed", "all"] = "open",
    since: str | None = None,
    sort: Literal["created", "updated", "comments"] = "created",
    direction: Literal["asc", "desc"] = "desc",
    labels: str | None = None,
    creator: str | None = None,
) -> JSONResponse:
    repository = tx.repository(owner, repo, *EITHER)
    query = select(Issue).where(Issue.repository_id == repository.id)
    if state != "all":
        query = query.where(Issue.state == state)
    if since is not None:
        query = query.where(Issue.updated_at >= _since(since))
    if creator is not None:
        query = query.where(Issue.author_id == tx.account(creator).id)
    column = Issue.updated_at if sort == "updated" else Issue.id
    rows = tx.session.scalars(query.order_by(column.desc() if direction == "desc" else column)).all()
    wanted = {name.strip().lower() for name in labels.split(",")} if labels else set()
    rows = [row for row in rows if wanted <= {label.name.lower() for label in row.labels}]
    return page.of(rows, lambda row: payloads.issue(tx, row))


class IssueRequest(BaseModel):
    """An issue to open."""

    title: str | int
    body: str | None = None
    labels: list[str | dict[str, Any]] = []


def _names(labels: list[str | dict[str, Any]]) -> list[str]:
    return [item if isinstance(item, str) else str(item.get("name", "")) for item in labels]


@router.post("/issues", status_code=201)
def create_issue(tx: Write, owner: str, repo: str, body: IssueRequest) -> dict[str, Any]:
    repository = tx.repository(owner, repo, "issues", write=True)
    row = changes.create_issue(tx, repository, str(body.title), body.body, _names(body.labels))
    return payloads.issue(tx, row)


@router.get("/issues/comments")
def list_repository_comments(
    tx: Read,
    owner: str,
    repo: str,
    *,
    page: Paged,
    since: str | None = None,
    sort: Literal["created", "updated"] = "created",
    direction: Literal["asc", "desc"] = "asc",
) -> JSONResponse:
    repository = tx.repository(owner, repo, *EITHER)
    query = (
        select(Comment).join(Issue, Issue.id == Comment.issue_id).where(Issue.repository_id == repository.id)
    )
    if since is not None:
        query = query.where(Comment.updated_at >= _since(since))
    column = Comment.updated_at if sort == "updated" else Comment.id
    rows = tx.session.scalars(query.order_by(column.desc() if direction == "desc" else column)).all()
    return page.of(rows, lambda row: payloads.comment(tx, row))


def comment_row(tx: Transaction, repository: Repository, number: int) -> Comment:
    """The comment of that id in the repository. Raises ApiError 404."""
    row = tx.session.get(Comment, number)
    if row is None or row.issue.repository_id != repository.id:
        raise not_found()
    return row


class BodyRequest(BaseModel):
    """Text."""

    body: str


@router.get("/issues/comments/{comment_id}")
def get_comment(tx: Read, owner: str, repo: str, comment_id: int) -> dict[str, Any]:
    return payloads.comment(tx, comment_row(tx, tx.repository(owner, repo, *EITHER), comment_id))


@router.patch("/issues/comments/{comment_id}")
def update_comment(tx: Write, owner: str, repo: str, comment_id: int, body: BodyRequest) -> dict[str, Any]:
    repository = tx.repository(owner, repo, *EITHER, write=True)
    row = comment_row(tx, repository, comment_id)
    may_edit(tx, repository, row.author_id)
    changes.edit_comment(tx, row, body.body)
    return payloads.comment(tx, row)


@router.delete("/issues/comments/{comment_id}", status_code=204)
def delete_comment(tx: Write, owner: str, repo: str, comment_id: int) -> Response:
    repository = tx.repository(owner, repo, *EITHER, write=True)
    row = comment_row(tx, repository, comment_id)
    may_edit(tx, repository, row.author_id)
    changes.delete_comment(tx, row)
    return Response(status_code=204)


@router.get("/issues/{number}")
def get_issue(tx: Read, owner: str, repo: str, number: int) -> dict[str, Any]:
    return payloads.issue(tx, tx.issue(tx.repository(owner, repo, *EITHER), number))


class IssueUpdate(BaseModel):
    """What to change of an issue."""

    title: str | None = None
    body: str | None = None
    state: Literal["open", "closed"] | None = None
    state_reason: Literal["completed", "not_planned", "duplicate", "reopened"] | None = None
    labels: list[str | dict[str, Any]] | None = None


@router.patch("/issues/{number}")
def update_issue(tx: Write, owner: str, repo: str, number: int, body: IssueUpdate) -> dict[str, Any]:
    repository = tx.repository(owner, repo, *EITHER, write=True)
    row = tx.issue(repository, number)
    may_edit(tx, repository, row.author_id)
    changes.edit_issue(tx, row, title=body.title, body=body.body)
    if body.labels is not None:
        changes.set_labels(tx, row, _names(body.labels))
    if body.state == "closed":
        if row.pull:
            close_pull(tx, row)
        else:
            changes.close_issue(tx, row, body.state_reason)
    elif body.state == "open":
        if row.pull:
            reopen_pull(tx, row)
        else:
            changes.reopen_issue(tx, row)
    return payloads.issue(tx, row)


@router.get("/issues/{number}/comments")
def list_comments(
    tx: Read, owner: str, repo: str, *, number: int, page: Paged, since: str | None = None
) -> JSONResponse:
    row = tx.issue(tx.repository(owner, repo, *EITHER), number)
    query = select(Comment).where(Comment.issue_id == row.id).order_by(Comment.id)
    if since is not None:
        query = query.where(Comment.updated_at >= _since(since))
    return page.of(tx.session.scalars(query).all(), lambda item: payloads.comment(tx, item))


@router.post("/issues/{number}/comments", status_code=201)
def create_comment(tx: Write, owner: str, repo: str, number: int, body: BodyRequest) -> dict[str, Any]:
    repository = tx.repository(owner, repo, *EITHER, write=True)
    row = tx.issue(repository, number)
    if (
        row.locked
        and tx.actor.kind == "user"
        and level(tx.session, tx.actor, repository) not in ("write", "admin")
    ):
        raise ApiError(403, "Unable to create comment because issue is locked.")
    return payloads.comment(tx, changes.create_comment(tx, row, body.body))


@router.put("/issues/{number}/lock", status_code=204)
def lock_issue(tx: Write, owner: str, repo: str, number: int) -> Response:
    tx.issue(tx.repository(owner, repo, *EITHER, write=True, role="write"), number).locked = True
    return Response(status_code=204)


@router.delete("/issues/{number}/lock", status_code=204)
def unlock_issue(tx: Write, owner: str, repo: str, number: int) -> Response:
    tx.issue(tx.repository(owner, repo, *EITHER, write=True, role="write"), number).locked = False
    return Response(status_code=204)
