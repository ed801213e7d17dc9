"""Routes of labels: a repository's own, and those on an issue or pull request."""

from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from sqlalchemy import select

from app.localhub.changes import issues as changes
from app.localhub.errors import ApiError, invalid, not_found
from app.localhub.payloads import issues as payloads
from app.localhub.rest.dependencies import Paged, Read, Write
from app.localhub.rest.issues import EITHER
from app.localhub.tables import Label, Repository
from app.localhub.transaction import Transaction

router = APIRouter(prefix="/repos/{owner}/{repo}")


def _label(tx: Transaction, repository: Repository, name: str) -> Label:
    row = tx.session.scalar(select(Label).where(Label.repository_id == repository.id, Label.name == name))
    if row is None:
        raise not_found()
    return row


@router.get("/labels")
def list_labels(tx: Read, owner: str, repo: str, page: Paged) -> JSONResponse:
    repository = tx.repository(owner, repo, "issues", "pull_requests")
    rows = tx.session.scalars(
        select(Label).where(Label.repository_id == repository.id).order_by(Label.name)
    ).all()
    return page.of(rows, lambda row: payloads.label(tx, repository, row))


class LabelRequest(BaseModel):
    """A label to make."""

    name: str
    color: str = "ededed"
    description: str | None = None


@router.post("/labels", status_code=201)
def create_label(tx: Write, owner: str, repo: str, body: LabelRequest) -> dict[str, Any]:
    repository = tx.repository(owner, repo, "issues", "pull_requests", write=True, role="write")
    if tx.session.scalar(select(Label).where(Label.repository_id == repository.id, Label.name == body.name)):
        raise invalid("Label", "name", "already_exists")
    if len(body.color) != 6 or any(character not in "0123456789abcdefABCDEF" for character in body.color):
        raise invalid("Label", "color", "invalid")
    row = Label(
        repository_id=repository.id, name=body.name, color=body.color.lower(), description=body.description
    )
    tx.session.add(row)
    tx.session.flush()
    return payloads.label(tx, repository, row)


@router.get("/labels/{name}")
def get_label(tx: Read, owner: str, repo: str, name: str) -> dict[str, Any]:
    repository = tx.repository(owner, repo, "issues", "pull_requests")
    return payloads.label(tx, repository, _label(tx, repository, name))


class LabelsRequest(BaseModel):
    """Labels by name."""

    labels: list[str] = []


@router.get("/issues/{number}/labels")
def list_issue_labels(tx: Read, owner: str, repo: str, number: int, page: Paged) -> JSONResponse:
    repository = tx.repository(owner, repo, *EITHER)
    return page.of(tx.issue(repository, number).labels, lambda item: payloads.label(tx, repository, item))


@router.post("/issues/{number}/labels")
def add_labels(tx: Write, owner: str, repo: str, number: int, body: LabelsRequest) -> list[dict[str, Any]]:
    repository = tx.repository(owner, repo, *EITHER, write=True, role="write")
    row = tx.issue(repository, number)
    changes.set_labels(tx, row, [*(item.name for item in row.labels), *body.labels])
    return [payloads.label(tx, repository, item) for item in row.labels]


@router.put("/issues/{number}/labels")
def put_labels(tx: Write, owner: str, repo: str, number: int, body: LabelsRequest) -> list[dict[str, Any]]:
    repository = tx.repository(owner, repo, *EITHER, write=True, role="write")
    row = tx.issue(repository, number)
    changes.set_labels(tx, row, body.labels)
    return [payloads.label(tx, repository, item) for item in row.labels]


@router.delete("/issues/{number}/labels/{name}")
def remove_label(tx: Write, owner: str, repo: str, number: int, name: str) -> list[dict[str, Any]]:
    repository = tx.repository(owner, repo, *EITHER, write=True, role="write")
    row = tx.issue(repository, number)
    kept = [item.name for item in row.labels if item.name.lower() != name.lower()]
    if len(kept) == len(row.labels):
        raise ApiError(404, "Label does not exist")
    changes.set_labels(tx, row, kept)
    return [payloads.label(tx, repository, item) for item in row.labels]
