"""Read-only pages: the list of requests, and one request with its profile, diff and reports. All of it comes from our tables."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.sse import EventSourceResponse
from fastapi.staticfiles import StaticFiles

from agents.registry import AGENTS
from app import tables
from app.github import UnreachableError
from app.github.visitors import Visitors
from app.pages.access import KEPT_S, Access, SignedOutError, Visitor
from app.pages.diff import FileDiff, file_diffs
from app.pages.live import Live, event_id
from app.pages.profile_view import profile_view
from app.pages.render import HEADERS, STATIC, Pages
from app.pages.reports_view import gate_views
from app.pages.request_list import A_PAGE, GROUPS, asked, list_page
from app.pages.request_page import RequestPage, request_page
from app.pages.signin import SignIn, sign_in_routes
from app.pages.source import warm_up
from app.ports import Ports
from app.repository import RepositoryError
from app.states import State
from app.store import Listed, now

LIVE_PARTS = ("head", "stages", "gates", "log", "history")
STREAM_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no", "X-Content-Type-Options": "nosniff"}
DIFFS_KEPT = 32
REFRESH_S = 0.75 * KEPT_S
LOOKED_LATELY_S = 600.0

log = logging.getLogger(__name__)


class PagesService:
    """The pages of this process, their streams, and the people who signed in."""

    def __init__(self, ports: Ports):
        self._ports, settings = ports, ports.settings
        self._store = ports.store.reader()
        self._visitors = (
            Visitors(
                settings.client_id,
                settings.client_secret.get_secret_value(),
                settings.github_url,
                settings.github_web_url,
                settings.github_api_version,
            )
            if settings.client_id
            else None
        )
        self._sign_in = SignIn(settings, self._visitors)
        self._access = Access(ports.github, self._visitors)
        self._pages = Pages(self._sign_in.visitor, can_sign_in=self._sign_in.possible)
        self._diff = lru_cache(DIFFS_KEPT)(self._compute_diff)
        self.live = Live(self._store)
        self._looked_at = time.monotonic()

    def mount(self, app: FastAPI) -> None:
        """Add the pages to the service."""
        app.mount("/static", _Static(directory=STATIC), name="static")
        app.include_router(sign_in_routes(self._sign_in, self._access, self._pages))
        app.include_router(self._routes())

    async def keep_warm(self) -> None:
        """Do beforehand what the first visitor would wait for; while somebody looks, ask GitHub before its answers get old."""
        await asyncio.to_thread(warm_up)
        while True:
            try:
                if time.monotonic() - self._looked_at < LOOKED_LATELY_S:
                    await self._access.refresh(await asyncio.to_thread(self._store.repositories))
            except Exception:
                log.exception("the pages can't be kept warm; visitors wait a little longer")
            await asyncio.sleep(REFRESH_S)

    async def close(self) -> None:
        self.live.close()
        if self._visitors is not None:
            await self._visitors.close()

    def _routes(self) -> APIRouter:
        routes = APIRouter(include_in_schema=False)

        @routes.get("/")
        async def index() -> RedirectResponse:
            return RedirectResponse("/requests")

        @routes.get("/requests")
        async def requests(request: Request) -> Response:
            return await self._list(request)

        @routes.get("/requests/{request_id}")
        async def overview(request: Request, request_id: str) -> Response:
            return await self._of_request(request, request_id, self._overview)

        @routes.get("/requests/{request_id}/profile")
        async def profile(request: Request, request_id: str) -> Response:
            return await self._of_request(request, request_id, self._profile)

        @routes.get("/requests/{request_id}/diff")
        async def diff(request: Request, request_id: str) -> Response:
            return await self._of_request(request, request_id, self._diff_page)

        @routes.get("/requests/{request_id}/reports")
        async def reports(request: Request, request_id: str) -> Response:
            return await self._of_request(request, request_id, self._reports)

        @routes.get("/requests/{request_id}/events")
        async def events(request: Request, request_id: str) -> Response:
            return await self._events(request, request_id)

        return routes

    async def _list(self, request: Request) -> Response:
        self._looked_at = time.monotonic()
        wanted = asked(request.query_params)
        repositories = await asyncio.to_thread(self._store.repositories)
        try:
            visible, unasked = await self._access.visible(repositories, self._sign_in.visitor(request))
        except SignedOutError:
            return self._signed_out(request)
        listed = await asyncio.to_thread(
            self._store.listed,
            wanted.filters(),
            visible,
            offset=(wanted.page - 1) * A_PAGE,
            limit=A_PAGE,
        )
        page = list_page(wanted, listed if visible else Listed([], 0), visible, unasked)
        return self._pages.html(
            request, "requests.html", page=page, commands=sorted(AGENTS), states=list(State), groups=GROUPS
        )

    async def _of_request(
        self, request: Request, request_id: str, show: Callable[[Request, tables.Request], HTMLResponse]
    ) -> Response:
        """A page of a request, for those who may see it; for others it's as if there were none."""
        found = await self._find(request, request_id)
        return found if isinstance(found, Response) else await asyncio.to_thread(show, request, found)

    async def _find(self, request: Request, request_id: str) -> tables.Request | Response:
        stored = await asyncio.to_thread(self._store.find_request, request_id)
        visitor = self._sign_in.visitor(request)
        try:
            if stored is not None and await self._may_see(stored.repository, visitor):
                return stored
        except SignedOutError:
            return self._signed_out(request)
        except UnreachableError:
            return self._pages.problem(
                request,
                503,
                "GitHub can't be reached just now",
                "Without it nobody can tell who may see this page. Try again in a minute.",
            )
        if visitor is None and self._sign_in.possible:
            text = "Or it is of a private repository: sign in with an account that can read it."
        elif visitor is not None:
            text = f"Or it is of a private repository that {visitor.login} can't read."
        else:
            text = "Or it is of a private repository: signing in is not set up here."
        return self._pages.problem(request, 404, "There is no such request", text, sign_in=visitor is None)

    async def _may_see(self, repository: str, visitor: Visitor | None) -> bool:
        installation = await asyncio.to_thread(self._store.newest_installation, repository)
        return await self._access.may_see(repository, installation, visitor)

    def _signed_out(self, request: Request) -> Response:
        """The visitor's token has ended: go on as nobody."""
        response = RedirectResponse(str(request.url.path), 303, {"Cache-Control": "no-store"})
        self._sign_in.forget(response)
        return response

    def _overview(self, request: Request, stored: tables.Request) -> HTMLResponse:
        page = self._page(stored)
        seen = event_id(self._parts(page))
        return self._tab(request, "request.html", page, "", seen=seen, now=now())

    def _profile(self, request: Request, stored: tables.Request) -> HTMLResponse:
        page = self._page(stored)
        view = profile_view(page.profile) if page.profile else None
        return self._tab(request, "profile.html", page, "profile", view=view)

    def _reports(self, request: Request, stored: tables.Request) -> HTMLResponse:
        gates = gate_views(self._store, stored.id)
        return self._tab(request, "reports.html", self._page(stored), "reports", gate_views=gates)

    def _diff_page(self, request: Request, stored: tables.Request) -> HTMLResponse:
        page = self._page(stored)
        candidate = self._store.candidate(stored.id, pushed=True)
        files: list[FileDiff] = []
        note = "" if candidate else "Nothing was written yet."
        if candidate is not None:
            try:
                files = self._diff(
                    stored.id, stored.base_sha, candidate.attempt, candidate.round, candidate.head_sha
                )
            except RepositoryError:
                note = "The commit that this candidate was made for is not here any more; look at the pull request."
        return self._tab(request, "diff.html", page, "diff", files=files, candidate=candidate, note=note)

    def _compute_diff(
        self, request_id: str, base_sha: str, attempt: int, round_: int, head_sha: str
    ) -> list[FileDiff]:
        """The diff of a candidate, which never changes once it was pushed. Raises RepositoryError."""
        stored = self._store.request(request_id)
        candidate = self._store.candidate(request_id, pushed=True)
        if candidate is None or (candidate.attempt, candidate.round, candidate.head_sha) != (
            attempt,
            round_,
            head_sha,
        ):
            raise RepositoryError("another candidate came meanwhile")
        after: dict[str, str] = candidate.body["files"]
        return file_diffs(self._ports.target(stored.repository).texts(base_sha, after), after)

    def _page(self, stored: tables.Request) -> RequestPage:
        return request_page(self._store, stored, self._ports.settings.github_web_url)

    def _tab(
        self, request: Request, template: str, page: RequestPage, tab: str, **values: Any
    ) -> HTMLResponse:
        return self._pages.html(request, template, page=page, tab=tab, **values)

    async def _events(self, request: Request, request_id: str) -> Response:
        found = await self._find(request, request_id)
        if isinstance(found, Response):
            return Response(status_code=404 if found.status_code == 404 else 503, headers=STREAM_HEADERS)
        if self.live.full:
            return Response(status_code=503, headers=STREAM_HEADERS | {"Retry-After": "10"})
        seen = request.headers.get("Last-Event-ID") or request.query_params.get("seen", "")

        def show() -> tuple[dict[str, str], bool]:
            page = self._page(self._store.request(request_id))
            return self._parts(page), page.ended

        if request.headers.get("Last-Event-ID"):
            parts, final = await asyncio.to_thread(show)
            if final and event_id(parts) == seen:
                # a browser that asks again after the end is told to stop
                return Response(status_code=204, headers=STREAM_HEADERS)
        return EventSourceResponse(self.live.stream(request_id, seen, show), headers=STREAM_HEADERS)

    def _parts(self, page: RequestPage) -> dict[str, str]:
        """The parts of the overview that change, as HTML."""
        return {name: self._pages.fragment(f"parts/{name}.html", page=page) for name in LIVE_PARTS}


class _Static(StaticFiles):
    """Files whose address changes with them, so that they may be kept for long."""

    def file_response(self, *arguments: Any, **keywords: Any) -> Response:
        response = super().file_response(*arguments, **keywords)
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Content-Security-Policy"] = HEADERS["Content-Security-Policy"]
        return response
