"""What a person would do in GitHub's settings pages, for the demo and the tests; answers this machine alone."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from app.localhub.errors import ApiError
from app.localhub.faults import DeliveryFault, RequestFault

if TYPE_CHECKING:
    from app.localhub.hub import LocalHub

router = APIRouter(prefix="/_hub")
LOOPBACK = ("127.0.0.1", "::1", "testclient")


def _hub(request: Request) -> "LocalHub":
    """The hub, if the request comes from a program on this machine. Raises ApiError 403."""
    local = request.client is not None and request.client.host in LOOPBACK
    host = request.headers.get("host", "").rsplit(":", 1)[0]
    # A web page in a browser on this machine could send requests here too; browsers mark those with Origin, and a
    # page that points its own name at 127.0.0.1 is known by that name in Host.
    if (
        not local
        or "origin" in request.headers
        or host not in ("127.0.0.1", "localhost", "[::1]", "testserver")
    ):
        raise ApiError(403, "The admin interface answers programs on this machine alone.")
    hub: LocalHub = request.app.state.hub
    return hub


class NewUser(BaseModel):
    """A user or organization to make."""

    login: str
    name: str | None = None
    type: str = "User"


@router.post("/users")
def create_user(request: Request, body: NewUser) -> dict[str, Any]:
    hub = _hub(request)
    if body.type == "Organization":
        hub.create_organization(body.login)
        return {"login": body.login}
    return {"login": body.login, "token": hub.create_user(body.login, body.name)}


class NewRepository(BaseModel):
    """A repository to make; `directory` on this machine gives its first commit."""

    owner: str
    name: str
    directory: Path | None = None
    private: bool = False
    description: str | None = None
    default_branch: str = "main"
    message: str = "Initial commit"


@router.post("/repositories")
def create_repository(request: Request, body: NewRepository) -> dict[str, Any]:
    hub = _hub(request)
    sha = hub.create_repository(**body.model_dump())
    return {"full_name": f"{body.owner}/{body.name}", "sha": sha}


class Role(BaseModel):
    """A role on a repository: read, triage, write, maintain, admin, or null to take it away."""

    repository: str
    login: str
    role: str | None


@router.post("/collaborators", status_code=204)
def set_collaborator(request: Request, body: Role) -> Response:
    _hub(request).set_collaborator(body.repository, body.login, body.role)
    return Response(status_code=204)


class NewApp(BaseModel):
    """An App to register."""

    slug: str
    owner: str
    webhook_url: str = ""
    webhook_secret: str = ""
    permissions: dict[str, str] | None = None
    events: list[str] | None = None


@router.post("/apps")
def register_app(request: Request, body: NewApp) -> dict[str, Any]:
    return asdict(_hub(request).register_app(**body.model_dump()))


class Install(BaseModel):
    """Where to install an App: on an account, for all of its repositories or those named."""

    slug: str
    account: str
    repositories: list[str] | None = None


@router.post("/installations")
def install_app(request: Request, body: Install) -> dict[str, Any]:
    return {"installation_id": _hub(request).install_app(body.slug, body.account, body.repositories)}


class Suspension(BaseModel):
    """Whether an installation is suspended."""

    installation_id: int
    suspended: bool


@router.post("/suspensions", status_code=204)
def suspend(request: Request, body: Suspension) -> Response:
    _hub(request).suspend(body.installation_id, body.suspended)
    return Response(status_code=204)


@router.post("/faults/deliveries", status_code=204)
def add_delivery_fault(request: Request, body: DeliveryFault) -> Response:
    _hub(request).faults.add(body)
    return Response(status_code=204)


@router.post("/faults/requests", status_code=204)
def add_request_fault(request: Request, body: RequestFault) -> Response:
    _hub(request).faults.add(body)
    return Response(status_code=204)


@router.delete("/faults", status_code=204)
def clear_faults(request: Request) -> Response:
    _hub(request).faults.clear()
    return Response(status_code=204)


class RunState(BaseModel):
    """How a workflow run goes on; the runner that takes part is outside the hub."""

    run_id: int
    status: str
    conclusion: str | None = None


@router.post("/workflow-runs", status_code=204)
def advance_run(request: Request, body: RunState) -> Response:
    _hub(request).advance_run(body.run_id, body.status, body.conclusion)
    return Response(status_code=204)


@router.post("/workflow-runs/{run_id}/artifacts/{name}")
async def upload_artifact(request: Request, run_id: int, name: str) -> dict[str, Any]:
    body = await request.body()
    # On the event loop it would wait for a writer whose transaction ends on the event loop.
    return {"artifact_id": await run_in_threadpool(_hub(request).add_artifact, run_id, name, body)}


class Taking(BaseModel):
    """A runner that has nothing to do."""

    name: str
    labels: list[str]


@router.post("/runners/jobs")
def take_job(request: Request, body: Taking) -> dict[str, Any]:
    taken = _hub(request).take_job(body.name, body.labels)
    return {"job": None if taken is None else asdict(taken)}


class Steps(BaseModel):
    """How far a runner is with a job; `conclusion` when it's through."""

    steps: list[dict[str, Any]] = []
    conclusion: str | None = None


@router.post("/runners/jobs/{job_id}")
def job_goes_on(request: Request, job_id: int, body: Steps) -> dict[str, Any]:
    hub = _hub(request)
    goes_on = hub.job_goes_on(job_id, body.steps)
    if goes_on and body.conclusion is not None:
        hub.end_job(job_id, body.conclusion)
    return {"goes_on": goes_on}


class Runner(BaseModel):
    """A runner by its name."""

    name: str


@router.post("/runners/lost")
def lose_runner(request: Request, body: Runner) -> dict[str, Any]:
    return {"jobs": _hub(request).lose_runner(body.name)}


@router.post("/artifacts/expire", status_code=204)
def expire_artifacts(request: Request) -> Response:
    _hub(request).expire_artifacts()
    return Response(status_code=204)


@router.post("/tokens/expire", status_code=204)
def expire_tokens(request: Request) -> Response:
    _hub(request).expire_tokens()
    return Response(status_code=204)


@router.get("/health")
def health() -> JSONResponse:
    return JSONResponse({"status": "ok"})
