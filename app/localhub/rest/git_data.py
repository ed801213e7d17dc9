"""Routes of branches, refs, commits, trees, blobs and comparisons."""

import base64
import binascii
from typing import Any, Literal

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from app.localhub.changes.pushes import refs_changed
from app.localhub.changes.repositories import signature
from app.localhub.clock import parse_stamp
from app.localhub.errors import ApiError, not_found
from app.localhub.git_objects import NO_COMMIT, GitError, Signature, TreeEdit, valid_ref
from app.localhub.payloads import git_data as payloads
from app.localhub.rest.dependencies import Paged, Read, Write
from app.localhub.tables import Repository
from app.localhub.transaction import Transaction

router = APIRouter(prefix="/repos/{owner}/{repo}")


@router.get("/branches")
def list_branches(tx: Read, owner: str, repo: str, page: Paged) -> JSONResponse:
    repository = tx.repository(owner, repo, "contents")
    refs = tx.git.refs(repository.id)
    heads = [
        (ref.removeprefix("refs/heads/"), sha) for ref, sha in refs.items() if ref.startswith("refs/heads/")
    ]
    return page.of(heads, lambda item: payloads.short_branch(tx, repository, *item))


@router.get("/branches/{branch:path}")
def get_branch(tx: Read, owner: str, repo: str, branch: str) -> dict[str, Any]:
    repository = tx.repository(owner, repo, "contents")
    sha = tx.git.ref(repository.id, f"refs/heads/{branch}")
    record = tx.git.commit(repository.id, sha) if sha else None
    if record is None:
        raise ApiError(404, "Branch not found")
    return payloads.branch(tx, repository, branch, record)


@router.get("/git/ref/{ref:path}")
def get_ref(tx: Read, owner: str, repo: str, ref: str) -> dict[str, Any]:
    repository = tx.repository(owner, repo, "contents")
    full = f"refs/{ref}"
    sha = tx.git.ref(repository.id, full)
    if sha is None:
        raise not_found()
    return payloads.reference(tx, repository, full, sha)


@router.get("/git/matching-refs/{ref:path}")
def list_matching_refs(tx: Read, owner: str, repo: str, ref: str) -> list[dict[str, Any]]:
    repository = tx.repository(owner, repo, "contents")
    found = tx.git.refs(repository.id).items()
    return [
        payloads.reference(tx, repository, name, sha) for name, sha in found if name.startswith(f"refs/{ref}")
    ]


class NewRef(BaseModel):
    """A ref to make."""

    ref: str
    sha: str


@router.post("/git/refs", status_code=201)
def create_ref(tx: Write, owner: str, repo: str, body: NewRef) -> dict[str, Any]:
    repository = tx.repository(owner, repo, "contents", write=True, role="write")
    if not valid_ref(body.ref) or body.ref.startswith("refs/pull/"):
        raise ApiError(422, "Reference name must start with 'refs/' and contain at least two slashes.")
    if tx.git.object_type(repository.id, body.sha) is None:
        raise ApiError(422, "Object does not exist")
    if tx.git.ref(repository.id, body.ref) is not None:
        raise ApiError(422, "Reference already exists")
    _guard_workflows(tx, repository, body.sha)
    tx.git.set_ref(repository.id, body.ref, body.sha, NO_COMMIT)
    refs_changed(tx, repository, {body.ref: (NO_COMMIT, body.sha)})
    return payloads.reference(tx, repository, body.ref, body.sha)


class MovedRef(BaseModel):
    """Where a ref is to point."""

    sha: str
    force: bool = False


@router.patch("/git/refs/{ref:path}")
def update_ref(tx: Write, owner: str, repo: str, ref: str, body: MovedRef) -> dict[str, Any]:
    repository = tx.repository(owner, repo, "contents", write=True, role="write")
    full = f"refs/{ref}"
    before = tx.git.ref(repository.id, full)
    if before is None:
        raise ApiError(422, "Reference does not exist")
    if tx.git.object_type(repository.id, body.sha) is None:
        raise ApiError(422, "Object does not exist")
    if not body.force and tx.git.merge_base(repository.id, before, body.sha) != before:
        raise ApiError(422, "Update is not a fast forward")
    _guard_workflows(tx, repository, body.sha)
    tx.git.set_ref(repository.id, full, body.sha, before)
    refs_changed(tx, repository, {full: (before, body.sha)})
    return payloads.reference(tx, repository, full, body.sha)


@router.delete("/git/refs/{ref:path}", status_code=204)
def delete_ref(tx: Write, owner: str, repo: str, ref: str) -> Response:
    repository = tx.repository(owner, repo, "contents", write=True, role="write")
    full = f"refs/{ref}"
    before = tx.git.ref(repository.id, full)
    if before is None:
        raise ApiError(422, "Reference does not exist")
    tx.git.delete_ref(repository.id, full)
    refs_changed(tx, repository, {full: (before, NO_COMMIT)})
    return Response(status_code=204)


def _guard_workflows(tx: Transaction, repository: Repository, sha: str) -> None:
    if tx.actor.kind != "installation" or tx.actor.permissions.get("workflows") == "write":
        return
    known = tx.git.ref(repository.id, f"refs/heads/{repository.default_branch}")
    if known is None:
        return
    start = tx.git.merge_base(repository.id, known, sha)
    if start is None:  # a history of its own, as of pages or pictures: it may not bring workflows
        if tx.git.entry(repository.id, sha, ".github/workflows") is not None:
            raise ApiError(403, "Resource not accessible by integration")
        return
    touched = [
        change.path
        for change in tx.git.changes(repository.id, start, sha)
        if change.path.startswith(".github/workflows/")
    ]
    if touched:
        raise ApiError(403, "Resource not accessible by integration")


@router.get("/git/commits/{sha}")
def get_git_commit(tx: Read, owner: str, repo: str, sha: str) -> dict[str, Any]:
    repository = tx.repository(owner, repo, "contents")
    record = tx.git.commit(repository.id, sha)
    if record is None:
        raise not_found()
    return payloads.git_commit(tx, repository, record)


class Person(BaseModel):
    """Who made a commit; the date is ISO 8601."""

    name: str
    email: str
    date: str | None = None


class NewCommit(BaseModel):
    """A commit to make."""

    message: str
    tree: str
    parents: list[str] = []
    author: Person | None = None
    committer: Person | None = None


def _signature(tx: Transaction, person: Person | None) -> Signature:
    own = signature(tx.actor.signed_in())
    if person is None:
        return own
    try:
        moment = parse_stamp(person.date) if person.date else own.moment
    except ValueError as error:
        raise ApiError(422, f"Invalid request.\n\n{person.date} is not a valid ISO 8601 date.") from error
    return Signature(person.name, person.email, moment)


@router.post("/git/commits", status_code=201)
def create_git_commit(tx: Write, owner: str, repo: str, body: NewCommit) -> dict[str, Any]:
    repository = tx.repository(owner, repo, "contents", write=True, role="write")
    author = _signature(tx, body.author)
    committer = _signature(tx, body.committer) if body.committer else author
    try:
        sha = tx.git.write_commit(
            repository.id, body.tree, body.parents, body.message, author=author, committer=committer
        )
    except GitError as problem:
        raise ApiError(422, str(problem)) from problem
    record = tx.git.commit(repository.id, sha)
    assert record is not None  # noqa: S101 - it was written in the line above
    return payloads.git_commit(tx, repository, record)


@router.get("/git/trees/{tree:path}")
def get_tree(tx: Read, owner: str, repo: str, tree: str, recursive: str | None = None) -> dict[str, Any]:
    repository = tx.repository(owner, repo, "contents")
    sha = tx.git.resolve(repository.id, tree) or tree
    record = tx.git.commit(repository.id, sha)
    sha = record.tree if record else sha
    entries = tx.git.tree(repository.id, sha, recursive is not None)
    if entries is None:
        raise not_found()
    return payloads.tree(tx, repository, sha, entries)


class NewEntry(BaseModel):
    """An entry of a tree to make: `sha` null removes the path; `content` makes the blob too."""

    path: str
    mode: Literal["100644", "100755", "040000", "160000", "120000"]
    type: Literal["blob", "tree", "commit"] = "blob"
    sha: str | None = None
    content: str | None = None


class NewTree(BaseModel):
    """A tree to make."""

    tree: list[NewEntry]
    base_tree: str | None = None


@router.post("/git/trees", status_code=201)
def create_tree(tx: Write, owner: str, repo: str, body: NewTree) -> dict[str, Any]:
    repository = tx.repository(owner, repo, "contents", write=True, role="write")
    base = body.base_tree
    if base is not None:
        record = tx.git.commit(repository.id, base)
        base = record.tree if record else base
        if tx.git.object_type(repository.id, base) != "tree":
            raise ApiError(404, "Not Found")
    edits = []
    for entry in body.tree:
        sha = entry.sha
        if entry.content is not None:
            sha = tx.git.write_blob(repository.id, entry.content.encode())
        elif sha is not None and tx.git.object_type(repository.id, sha) is None:
            raise ApiError(422, f"tree.sha {sha} is not a valid {entry.type}")
        edits.append(TreeEdit(entry.path, entry.mode, entry.type, sha))
    try:
        sha = tx.git.write_tree(repository.id, edits, base)
    except GitError as problem:
        raise ApiError(422, f"GitRPC::BadObjectState: {problem}") from problem
    return payloads.tree(tx, repository, sha, tx.git.tree(repository.id, sha, recursive=False) or [])


@router.get("/git/blobs/{sha}")
def get_blob(tx: Read, owner: str, repo: str, sha: str) -> dict[str, Any]:
    repository = tx.repository(owner, repo, "contents")
    data = tx.git.blob(repository.id, sha)
    if data is None:
        raise not_found()
    return payloads.blob(tx, repository, sha, data)


class NewBlob(BaseModel):
    """A blob to make."""

    content: str
    encoding: Literal["utf-8", "base64"] = "utf-8"


def decoded(content: str, encoding: str) -> bytes:
    """The bytes of text or base64. Raises ApiError 422."""
    if encoding == "utf-8":
        return content.encode()
    try:
        return base64.b64decode(content, validate=False)
    except binascii.Error as error:
        raise ApiError(422, "content is not valid Base64") from error


@router.post("/git/blobs", status_code=201)
def create_blob(tx: Write, owner: str, repo: str, body: NewBlob) -> dict[str, Any]:
    repository = tx.repository(owner, repo, "contents", write=True, role="write")
    sha = tx.git.write_blob(repository.id, decoded(body.content, body.encoding))
    return {"sha": sha, "url": tx.links.api(f"repos/{repository.full_name}/git/blobs/{sha}")}
