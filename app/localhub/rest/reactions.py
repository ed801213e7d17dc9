"""Routes of reactions to issues and comments. None of them sends a webhook: GitHub has none for reactions."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from app.localhub.changes import issues as changes
from app.localhub.errors import ApiError, not_found
from app.localhub.payloads import issues as payloads
from app.localhub.rest.dependencies import Paged, Read, Write
from app.localhub.rest.issues import EITHER, comment_row
from app.localhub.tables import Reaction
from app.localhub.transaction import Transaction

router = APIRouter(prefix="/repos/{owner}/{repo}")
Content = Literal["+1", "-1", "laugh", "confused", "heart", "hooray", "rocket", "eyes"]


class ReactionRequest(BaseModel):
    """A reaction to add."""

    content: Content


def _reactions(tx: Transaction, kind: str, number: int, content: str | None, page: Paged) -> JSONResponse:
    rows = [
        row for row in payloads.reactions_of(tx, kind, number) if content is None or row.content == content
    ]
    return page.of(rows, lambda row: payloads.reaction(tx, row))


def _react(tx: Transaction, kind: str, number: int, content: str) -> JSONResponse:
    row, new = changes.react(tx, kind, number, content)
    return JSONResponse(payloads.reaction(tx, row), status_code=201 if new else 200)


def _unreact(tx: Transaction, kind: str, number: int, reaction_id: int) -> Response:
    row = tx.session.get(Reaction, reaction_id)
    if row is None or (row.subject_type, row.subject_id) != (kind, number):
        raise not_found()
    if row.account_id != tx.actor.signed_in().id:
        raise ApiError(403, "You can only delete your own reactions.")
    tx.session.delete(row)
    return Response(status_code=204)


@router.get("/issues/comments/{comment_id}/reactions")
def list_comment_reactions(
    tx: Read,
    owner: str,
    repo: str,
    *,
    comment_id: int,
    page: Paged,
    content: Annotated[Content | None, Query()] = None,
) -> JSONResponse:
    row = comment_row(tx, tx.repository(owner, repo, *EITHER), comment_id)
    return _reactions(tx, "comment", row.id, content, page)


@router.post("/issues/comments/{comment_id}/reactions")
def create_comment_reaction(
    tx: Write, owner: str, repo: str, comment_id: int, body: ReactionRequest
) -> JSONResponse:
    row = comment_row(tx, tx.repository(owner, repo, *EITHER, write=True), comment_id)
    return _react(tx, "comment", row.id, body.content)


@router.delete("/issues/comments/{comment_id}/reactions/{reaction_id}", status_code=204)
def delete_comment_reaction(tx: Write, owner: str, repo: str, comment_id: int, reaction_id: int) -> Response:
    row = comment_row(tx, tx.repository(owner, repo, *EITHER, write=True), comment_id)
    return _unreact(tx, "comment", row.id, reaction_id)


@router.get("/issues/{number}/reactions")
def list_issue_reactions(
    tx: Read,
    owner: str,
    repo: str,
    *,
    number: int,
    page: Paged,
    content: Annotated[Content | None, Query()] = None,
) -> JSONResponse:
    row = tx.issue(tx.repository(owner, repo, *EITHER), number)
    return _reactions(tx, "issue", row.id, content, page)


@router.post("/issues/{number}/reactions")
def create_issue_reaction(
    tx: Write, owner: str, repo: str, number: int, body: ReactionRequest
) -> JSONResponse:
    row = tx.issue(tx.repository(owner, repo, *EITHER, write=True), number)
    return _react(tx, "issue", row.id, body.content)


@router.delete("/issues/{number}/reactions/{reaction_id}", status_code=204)
def delete_issue_reaction(tx: Write, owner: str, repo: str, number: int, reaction_id: int) -> Response:
    row = tx.issue(tx.repository(owner, repo, *EITHER, write=True), number)
    return _unreact(tx, "issue", row.id, reaction_id)
