"""The hub's web applications put together: the API on one side, git, pages and administration on the other."""

from typing import TYPE_CHECKING

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from app.localhub import admin, git_http, graphql, oauth, pages
from app.localhub.errors import install_error_replies
from app.localhub.rest import (
    actions,
    apps,
    checks,
    commits,
    contents,
    git_data,
    issues,
    labels,
    manifests,
    organizations,
    pulls,
    reactions,
    repositories,
    runners,
    users,
)
from app.localhub.surface import ApiSurface

if TYPE_CHECKING:
    from app.localhub.hub import LocalHub

# First parts of API paths; anything else is a page, git, or administration.
API_ROOTS = frozenset(
    {
        "app",
        "app-manifests",
        "applications",
        "apps",
        "graphql",
        "installation",
        "meta",
        "orgs",
        "rate_limit",
        "repos",
        "user",
        "users",
        "versions",
        "zen",
    }
)
ENTERPRISE_PREFIX = "/api/v3"
# Order matters where a path parameter takes slashes: `/commits/{ref}/check-runs` before `/commits/{ref}`.
API_ROUTERS = tuple(
    module.router
    for module in (
        apps,
        users,
        repositories,
        labels,
        issues,
        reactions,
        pulls,
        checks,
        commits,
        contents,
        git_data,
        actions,
        runners,
        manifests,
        organizations,
        graphql,
    )
)


class FrontDoor:
    """Sends each request to the API or to the web side. The API answers at the root (as api.github.com does) and
    below /api/v3 (as Enterprise Server does); both at once is a deviation that spares a second port."""

    def __init__(self, api: ASGIApp, web: ASGIApp) -> None:
        self._api = api
        self._web = web

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._web(scope, receive, send)
            return
        path = scope["path"]
        if path == "/api/graphql":
            path = "/graphql"
        elif path == ENTERPRISE_PREFIX or path.startswith(f"{ENTERPRISE_PREFIX}/"):
            path = path.removeprefix(ENTERPRISE_PREFIX) or "/"
            await self._api({**scope, "path": path, "raw_path": path.encode()}, receive, send)
            return
        if path.split("/", 2)[1] in API_ROOTS:
            await self._api({**scope, "path": path, "raw_path": path.encode()}, receive, send)
            return
        await self._web(scope, receive, send)


def _api(hub: "LocalHub") -> ASGIApp:
    api = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    api.state.context = hub.context
    api.state.rate_limits = hub.rate_limits
    api.state.enterprise = hub.enterprise
    install_error_replies(api)
    for router in (*API_ROUTERS, oauth.api_router):
        api.include_router(router)
    return ApiSurface(api, hub.rate_limits, hub.faults, hub.enterprise)


def _web(hub: "LocalHub") -> ASGIApp:
    web = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    web.state.context = hub.context
    web.state.hub = hub
    web.state.push_locks = git_http.PushLocks()
    install_error_replies(web)
    for router in (admin.router, oauth.router, git_http.router):
        web.include_router(router)
    pages.install_pages(web)
    return web


def build_application(hub: "LocalHub") -> ASGIApp:
    """Everything that the hub answers."""
    return FrontDoor(_api(hub), _web(hub))
