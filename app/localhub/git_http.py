"""Git over HTTP: `git http-backend` behind the hub's own authentication.

Reads of public repositories need no credentials; anything else takes a user's or an installation's token as the
password of Basic authentication, with any user name (`x-access-token` by custom).
"""

import asyncio
import contextlib
import os
import shutil
import tempfile
import threading
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import IO, Annotated

from fastapi import APIRouter, Depends, Request
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from app.localhub.actor import ANONYMOUS, WORKFLOWS, Actor, authenticate
from app.localhub.changes.pushes import refs_changed
from app.localhub.errors import ApiError
from app.localhub.git_objects import NO_COMMIT
from app.localhub.rest.dependencies import context_of
from app.localhub.tables import Repository
from app.localhub.transaction import Context, transaction

router = APIRouter(include_in_schema=False)
CHUNK_BYTES = 64 * 1024


class PushLocks:
    """One lock a repository: what a push moved is told by comparing refs before and after it."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: dict[int, asyncio.Lock] = defaultdict(asyncio.Lock)

    def of(self, repository_id: int) -> asyncio.Lock:
        """The repository's lock."""
        with self._guard:
            return self._locks[repository_id]


def _locks(request: Request) -> PushLocks:
    locks: PushLocks = request.app.state.push_locks
    return locks


def _admit(context: Context, header: str | None, owner: str, name: str, push: bool) -> tuple[int, bool]:
    """Repository id, and whether the caller may touch workflow files. Raises ApiError."""

    def caller(session: Session) -> Actor:
        return authenticate(session, header) if header else ANONYMOUS

    with transaction(context, write=False, actor=caller) as tx:
        found = tx.repository(owner, name, "contents", write=push, role="write" if push else "read")
        actor = tx.actor
        may_workflows = actor.kind != "installation" or actor.permissions.get(WORKFLOWS) == "write"
        return found.id, may_workflows


def _refused(error: ApiError, header: str | None, owner: str, name: str) -> Response:
    # Without credentials git must be asked for them, or it gives up; GitHub does so for what it doesn't show, too.
    if not header or error.status == 401:
        return PlainTextResponse(
            "No anonymous access.", 401, headers={"WWW-Authenticate": 'Basic realm="GitHub"'}
        )
    if error.status == 404:
        return PlainTextResponse("Repository not found.", 404)
    return PlainTextResponse(f"Permission to {owner}/{name}.git denied.", 403)


def _environment(
    request: Request, project_root: str, path_info: str, length: int, may_workflows: bool
) -> dict[str, str]:
    headers = request.headers
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "GIT_HTTP_EXPORT_ALL": "1",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_PROJECT_ROOT": project_root,
        "PATH_INFO": path_info,
        "QUERY_STRING": request.url.query,
        "REQUEST_METHOD": request.method,
        "CONTENT_TYPE": headers.get("content-type", ""),
        "CONTENT_LENGTH": str(length),
        "REMOTE_USER": "hub" if "authorization" in headers else "",
        "REMOTE_ADDR": "127.0.0.1",
        "HUB_WORKFLOWS": "allow" if may_workflows else "deny",
    }
    for name, variable in (("git-protocol", "GIT_PROTOCOL"), ("content-encoding", "HTTP_CONTENT_ENCODING")):
        if name in headers:
            environment[variable] = headers[name]
    return environment


async def _spooled(request: Request) -> tuple[IO[bytes], int]:
    body = tempfile.TemporaryFile()  # noqa: SIM115 - the backend reads it after this function returns
    length = 0
    async for chunk in request.stream():
        length += len(chunk)
        await run_in_threadpool(body.write, chunk)
    body.seek(0)
    return body, length


async def _start(
    environment: dict[str, str], body: IO[bytes]
) -> tuple[asyncio.subprocess.Process, int, dict[str, str]]:
    """The running backend with its status and headers read."""
    git = shutil.which("git")
    if git is None:
        raise RuntimeError("git is not installed")
    process = await asyncio.create_subprocess_exec(
        git, "http-backend", stdin=body, stdout=asyncio.subprocess.PIPE, env=environment
    )
    assert process.stdout is not None  # noqa: S101 - it is a pipe by the call above
    status, headers = 200, {}
    while line := (await process.stdout.readline()).strip():
        name, _, value = line.decode("latin-1").partition(":")
        if name.lower() == "status":
            status = int(value.split()[0])
        else:
            headers[name] = value.strip()
    return process, status, headers


async def _rest(process: asyncio.subprocess.Process, body: IO[bytes]) -> AsyncIterator[bytes]:
    assert process.stdout is not None  # noqa: S101 - a pipe
    try:
        while chunk := await process.stdout.read(CHUNK_BYTES):
            yield chunk
        await process.wait()
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        body.close()


def _tell(
    context: Context, header: str | None, repository_id: int, before: dict[str, str], after: dict[str, str]
) -> None:
    moved = {
        ref: (before.get(ref, NO_COMMIT), after.get(ref, NO_COMMIT))
        for ref in {**before, **after}
        if before.get(ref) != after.get(ref)
    }
    if not moved:
        return
    with transaction(context, write=True, actor=lambda session: authenticate(session, header)) as tx:
        refs_changed(tx, tx.session.get_one(Repository, repository_id), moved)


@router.api_route("/{owner}/{name}/info/refs", methods=["GET"])
@router.api_route("/{owner}/{name}/git-upload-pack", methods=["POST"])
@router.api_route("/{owner}/{name}/git-receive-pack", methods=["POST"])
async def serve_git(
    request: Request, owner: str, name: str, locks: Annotated[PushLocks, Depends(_locks)]
) -> Response:
    """One request of git's smart protocol."""
    context = context_of(request)
    header = request.headers.get("authorization")
    service = request.url.path.rsplit("/", 1)[-1]
    push = service == "git-receive-pack" or request.query_params.get("service") == "git-receive-pack"
    plain = name.removesuffix(".git")
    try:
        repository_id, may_workflows = await run_in_threadpool(_admit, context, header, owner, plain, push)
    except ApiError as error:
        return _refused(error, header, owner, plain)
    rest = request.url.path.split(name, 1)[1]
    bare = context.git.path(repository_id)
    body, length = await _spooled(request)
    environment = _environment(request, str(bare.parent), f"/{bare.name}{rest}", length, may_workflows)
    if service != "git-receive-pack":
        process, status, headers = await _start(environment, body)
        return StreamingResponse(_rest(process, body), status, headers)
    async with locks.of(repository_id):
        before = await run_in_threadpool(context.git.refs, repository_id)
        process, status, headers = await _start(environment, body)
        answer = b"".join([chunk async for chunk in _rest(process, body)])
        after = await run_in_threadpool(context.git.refs, repository_id)
        # The pusher hears of success only when the push is on record: nobody can see one without the other.
        await run_in_threadpool(_tell, context, header, repository_id, before, after)
    return Response(answer, status, headers)
