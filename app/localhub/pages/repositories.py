"""Pages of repositories and their files, and the choice of who one is."""

from typing import Annotated

from fastapi import APIRouter, Form, Request
from fastapi.responses import FileResponse, Response
from sqlalchemy import select

from app.localhub.actor import level
from app.localhub.clock import stamp
from app.localhub.errors import ApiError, not_found
from app.localhub.pages.diff import code_lines, rows_of
from app.localhub.pages.issues import open_counts
from app.localhub.pages.viewer import (
    CheckedViewer,
    ViewerHere,
    back,
    make_cookie,
    page_transaction,
    remember,
    render,
)
from app.localhub.rest.dependencies import context_of
from app.localhub.tables import Account, Artifact, Repository
from app.localhub.transaction import Transaction

router = APIRouter()
SHOWN_BYTES = 1024 * 1024


@router.get("/")
def home(request: Request, viewer: ViewerHere) -> Response:
    with page_transaction(request, viewer) as tx:
        rows = [
            row
            for row in tx.session.scalars(select(Repository).order_by(Repository.id))
            if level(tx.session, tx.actor, row) != "none"
        ]
        counts = {row.id: open_counts(tx, row) for row in rows}
        return render(request, tx, viewer, "home.html", repositories=rows, counts=counts)


@router.post("/_viewer")
def become(
    request: Request,
    viewer: CheckedViewer,
    login: Annotated[str, Form()] = "",
    here: Annotated[str, Form()] = "/",
) -> Response:
    """Choose who one is; an empty login is nobody."""
    with page_transaction(request, viewer) as tx:
        account = tx.account(login) if login else None
        if account is not None and account.type != "User":
            raise ApiError(422, "Only users can be chosen.")
        chosen = account.id if account else 0
    response = back(here)
    remember(response, make_cookie(context_of(request), chosen))
    return response


@router.get("/_avatar/{account_id}.svg")
def avatar(request: Request, viewer: ViewerHere, account_id: int) -> Response:
    """A coloured square with the first letter of the login."""
    with page_transaction(request, viewer) as tx:
        account = tx.session.get(Account, account_id)
        if account is None:
            raise not_found()
        letter, hue = account.login[0].upper(), account_id * 47 % 360
    svg = (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 40 40">'
        f'<rect width="40" height="40" fill="hsl({hue} 55% 45%)"/>'
        f'<text x="20" y="27" font-family="sans-serif" font-size="20" font-weight="600" fill="#fff" text-anchor="middle">{letter}</text></svg>'
    )
    return Response(svg, media_type="image/svg+xml", headers={"Cache-Control": "public, max-age=86400"})


@router.get("/_artifacts/{artifact_id}-{sha256}.zip")
def artifact_file(request: Request, viewer: ViewerHere, artifact_id: int, sha256: str) -> Response:
    """What a download is redirected to. The digest in the address stands for GitHub's signed address."""
    with page_transaction(request, viewer) as tx:
        row = tx.session.get(Artifact, artifact_id)
        if row is None or row.sha256 != sha256 or row.expires_at <= stamp():
            raise not_found()
        path = tx.context.artifacts / f"{row.id}.zip"
    return FileResponse(path, media_type="application/zip")


def _split_ref(tx: Transaction, repository: Repository, rest: str) -> tuple[str, str, str]:
    """Ref name, commit sha and path of `REF/PATH`, where a ref may hold slashes. Raises ApiError 404."""
    parts = rest.strip("/").split("/")
    for length in range(1, len(parts) + 1):
        name = "/".join(parts[:length])
        sha = tx.git.resolve(repository.id, name)
        if sha is not None:
            return name, sha, "/".join(parts[length:])
    raise not_found()


def _tree(request: Request, viewer: ViewerHere, owner: str, name: str, rest: str | None) -> Response:
    with page_transaction(request, viewer) as tx:
        repository = tx.repository(owner, name, "contents")
        ref, sha, path = _split_ref(tx, repository, rest if rest is not None else repository.default_branch)
        folder = tx.git.entry(repository.id, sha, path)
        if folder is None or folder.type != "tree":
            raise not_found()
        items = tx.git.tree(repository.id, folder.sha, recursive=False) or []
        items.sort(key=lambda item: (item.type != "tree", item.path))
        readme = next((item for item in items if item.path.lower() == "readme.md"), None)
        text = (tx.git.blob(repository.id, readme.sha) or b"").decode("utf-8", "replace") if readme else None
        commit = tx.git.commit(repository.id, sha)
        return render(
            request,
            tx,
            viewer,
            "tree.html",
            repository=repository,
            counts=open_counts(tx, repository),
            ref=ref,
            path=path,
            items=items,
            readme=text,
            commit=commit,
        )


@router.get("/{owner}/{name}")
def repository_page(request: Request, viewer: ViewerHere, owner: str, name: str) -> Response:
    return _tree(request, viewer, owner, name, None)


@router.get("/{owner}/{name}/tree/{rest:path}")
def tree_page(request: Request, viewer: ViewerHere, owner: str, name: str, rest: str) -> Response:
    return _tree(request, viewer, owner, name, rest)


def _blob(tx: Transaction, owner: str, name: str, rest: str) -> tuple[Repository, str, str, bytes]:
    repository = tx.repository(owner, name, "contents")
    ref, sha, path = _split_ref(tx, repository, rest)
    entry = tx.git.entry(repository.id, sha, path)
    data = tx.git.blob(repository.id, entry.sha) if entry else None
    if data is None:
        raise not_found()
    return repository, ref, path, data


@router.get("/{owner}/{name}/blob/{rest:path}")
def blob_page(request: Request, viewer: ViewerHere, owner: str, name: str, rest: str) -> Response:
    with page_transaction(request, viewer) as tx:
        repository, ref, path, data = _blob(tx, owner, name, rest)
        shown = len(data) <= SHOWN_BYTES and b"\0" not in data
        lines = code_lines(path, data.decode("utf-8", "replace").removesuffix("\n")) if shown else None
        return render(
            request,
            tx,
            viewer,
            "blob.html",
            repository=repository,
            counts=open_counts(tx, repository),
            ref=ref,
            path=path,
            lines=lines,
            size=len(data),
        )


@router.get("/{owner}/{name}/raw/{rest:path}")
def raw_file(request: Request, viewer: ViewerHere, owner: str, name: str, rest: str) -> Response:
    with page_transaction(request, viewer) as tx:
        data = _blob(tx, owner, name, rest)[3]
    # Never as HTML: a file of a repository must not run in the hub's origin.
    return Response(
        data, media_type="text/plain; charset=utf-8", headers={"X-Content-Type-Options": "nosniff"}
    )


@router.get("/{owner}/{name}/commit/{sha}")
def commit_page(request: Request, viewer: ViewerHere, owner: str, name: str, sha: str) -> Response:
    with page_transaction(request, viewer) as tx:
        repository = tx.repository(owner, name, "contents")
        record = tx.git.commit(repository.id, tx.git.resolve(repository.id, sha) or sha)
        if record is None:
            raise not_found()
        files = tx.git.changes(repository.id, record.parents[0], record.sha) if record.parents else []
        return render(
            request,
            tx,
            viewer,
            "commit.html",
            repository=repository,
            counts=open_counts(tx, repository),
            commit=record,
            diffs=[(item, rows_of(item)) for item in files],
        )
