"""Routes of file contents."""

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from app.localhub.changes.pushes import refs_changed
from app.localhub.changes.repositories import signature
from app.localhub.errors import ApiError, not_accessible, not_found
from app.localhub.git_objects import Entry, GitError, TreeEdit
from app.localhub.payloads import git_data as payloads
from app.localhub.rest.dependencies import Read, Write
from app.localhub.rest.git_data import decoded
from app.localhub.tables import Repository
from app.localhub.transaction import Transaction

router = APIRouter(prefix="/repos/{owner}/{repo}")
INLINE_LIMIT = 1024 * 1024  # bytes; a larger file has encoding "none" and is read raw
RAW_LIMIT = 100 * 1024 * 1024


def _kind(entry: Entry) -> str:
    if entry.type == "tree":
        return "dir"
    if entry.type == "commit":
        return "submodule"
    return "symlink" if entry.mode == "120000" else "file"


def _file(tx: Transaction, repository: Repository, entry: Entry, ref: str) -> dict[str, Any]:
    shown = payloads.content(tx, repository, entry, ref, _kind(entry))
    data = tx.git.blob(repository.id, entry.sha) or b""
    if len(data) > INLINE_LIMIT:
        return shown | {"content": "", "encoding": "none"}
    if shown["type"] == "symlink":
        return shown | {"target": data.decode("utf-8", "replace")}
    return shown | {"content": payloads.encoded(data), "encoding": "base64"}


@router.get("/readme")
def get_readme(tx: Read, owner: str, repo: str, request: Request, ref: str | None = None) -> Response:
    return get_content(tx, owner, repo, path="README.md", request=request, ref=ref)


@router.get("/contents")
@router.get("/contents/{path:path}")
def get_content(
    tx: Read, owner: str, repo: str, *, path: str = "", request: Request, ref: str | None = None
) -> Response:
    repository = tx.repository(owner, repo, "contents")
    name = ref or repository.default_branch
    sha = tx.git.resolve(repository.id, name.removeprefix("refs/"))
    if sha is None:
        raise ApiError(404, f"No commit found for the ref {name}")
    entry = tx.git.entry(repository.id, sha, path.strip("/"))
    if entry is None:
        raise not_found()
    accepted = request.headers.get("accept", "")
    if entry.type == "tree":
        items = tx.git.tree(repository.id, entry.sha, recursive=False) or []
        prefix = f"{entry.path}/" if entry.path else ""
        shown = []
        for item in items:
            kind = _kind(item)
            # Until 2026-03-10 a directory listing called a submodule a file.
            kind = "file" if kind == "submodule" and tx.legacy else kind
            full = Entry(prefix + item.path, item.mode, item.type, item.sha, item.size)
            shown.append(payloads.content(tx, repository, full, name, kind))
        return JSONResponse(shown)
    if ".raw" in accepted:
        data = tx.git.blob(repository.id, entry.sha) or b""
        if len(data) > RAW_LIMIT:
            raise ApiError(403, "This API returns blobs up to 100 MB in size.")
        return Response(data, media_type="application/vnd.github.raw+json; charset=utf-8")
    return JSONResponse(_file(tx, repository, entry, name))


class Person(BaseModel):
    """Who made a commit."""

    name: str
    email: str


class NewContent(BaseModel):
    """A file to write: `content` is base64, `sha` the blob it replaces."""

    message: str
    content: str
    sha: str | None = None
    branch: str | None = None
    author: Person | None = None
    committer: Person | None = None


class RemovedContent(BaseModel):
    """A file to remove."""

    message: str
    sha: str
    branch: str | None = None


def _write(
    tx: Transaction,
    repository: Repository,
    path: str,
    branch: str | None,
    message: str,
    *,
    given_sha: str | None,
    data: bytes | None,
) -> tuple[dict[str, Any], bool]:
    if (
        path.startswith(".github/workflows/")
        and tx.actor.kind == "installation"
        and tx.actor.permissions.get("workflows") != "write"
    ):
        raise not_accessible("workflows=write")
    name = branch or repository.default_branch
    ref = f"refs/heads/{name}"
    tip = tx.git.ref(repository.id, ref)
    record = tx.git.commit(repository.id, tip) if tip else None
    if tip is None or record is None:
        raise ApiError(404, f"Branch {name} not found")
    existing = tx.git.entry(repository.id, tip, path)
    if existing is not None and existing.type == "blob":
        if given_sha is None:
            raise ApiError(422, 'Invalid request.\n\n"sha" wasn\'t supplied.')
        if given_sha != existing.sha:
            raise ApiError(409, f"{path} does not match {given_sha}")
    elif data is None:
        raise not_found()
    blob = tx.git.write_blob(repository.id, data) if data is not None else None
    try:
        tree = tx.git.write_tree(
            repository.id,
            [TreeEdit(path, existing.mode if existing else "100644", "blob", blob)],
            record.tree,
        )
    except GitError as problem:
        raise ApiError(422, f"path contains a malformed path component: {problem}") from problem
    who = signature(tx.actor.signed_in())
    sha = tx.git.write_commit(repository.id, tree, [tip], message, author=who, committer=who)
    tx.git.set_ref(repository.id, ref, sha, tip)
    refs_changed(tx, repository, {ref: (tip, sha)})
    written = tx.git.commit(repository.id, sha)
    entry = tx.git.entry(repository.id, sha, path)
    assert written is not None  # noqa: S101 - it was written above
    shown = payloads.content(tx, repository, entry, name, "file") if entry else None
    return {"content": shown, "commit": payloads.git_commit(tx, repository, written)}, existing is None


@router.put("/contents/{path:path}")
def put_content(tx: Write, owner: str, repo: str, path: str, body: NewContent) -> JSONResponse:
    repository = tx.repository(owner, repo, "contents", write=True, role="write")
    reply, new = _write(
        tx,
        repository,
        path,
        body.branch,
        body.message,
        given_sha=body.sha,
        data=decoded(body.content, "base64"),
    )
    return JSONResponse(reply, status_code=201 if new else 200)


@router.delete("/contents/{path:path}")
def delete_content(tx: Write, owner: str, repo: str, path: str, body: RemovedContent) -> dict[str, Any]:
    repository = tx.repository(owner, repo, "contents", write=True, role="write")
    return _write(tx, repository, path, body.branch, body.message, given_sha=body.sha, data=None)[0]
