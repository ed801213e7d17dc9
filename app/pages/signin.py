"""Signing in through GitHub, out again, and who a request of a browser comes from."""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import secrets
from typing import Literal
from urllib.parse import urlsplit

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from app.github import GitHubError, RejectedError, UnreachableError
from app.github.visitors import Visitors
from app.pages.access import Access, Visitor
from app.pages.render import Pages
from app.pages.sealed import Seal
from app.settings import Settings

log = logging.getLogger(__name__)

SESSION_S = 8 * 3600  # as long as GitHub lets an expiring user token live
FLOW_S = 600
CALLBACK = "/login/callback"
HOME = "/requests"


class SignIn:
    """Cookies of people who signed in. Without a client id nobody can."""

    def __init__(self, settings: Settings, visitors: Visitors | None):
        self.visitors = visitors
        self.callback_url = settings.pages_url + CALLBACK
        self._secure = settings.pages_url.startswith("https://")
        secret = settings.client_secret.get_secret_value() if visitors else secrets.token_hex(32)
        self._sessions, self._flows = Seal(secret, "session"), Seal(secret, "sign-in flow")

    @property
    def possible(self) -> bool:
        return self.visitors is not None

    def visitor(self, request: Request) -> Visitor | None:
        """Who the browser's cookie names; None for everybody else."""
        held = self._sessions.open(request.cookies.get(self._name("session"), ""), SESSION_S)
        if not held or not isinstance(held.get("token"), str) or not isinstance(held.get("login"), str):
            return None
        return Visitor(held["login"], held["token"])

    def remember(self, response: Response, visitor: Visitor) -> None:
        self._set(
            response,
            "session",
            self._sessions.close({"login": visitor.login, "token": visitor.token}),
            SESSION_S,
        )

    def forget(self, response: Response) -> None:
        self._clear(response, "session")

    def begin(self, response: Response, state: str, verifier: str, target: str) -> None:
        """Keep in the browser what it must bring back."""
        flow = self._flows.close({"state": state, "verifier": verifier, "target": target})
        self._set(response, "flow", flow, FLOW_S)

    def flow(self, request: Request) -> dict[str, str] | None:
        return self._flows.open(request.cookies.get(self._name("flow"), ""), FLOW_S)

    def end_flow(self, response: Response) -> None:
        self._clear(response, "flow")

    def is_ours(self, origin: str | None, host: str) -> bool:
        """Whether a form comes from a page of ours; browsers that say no origin send no cookie across sites either."""
        return origin is None or urlsplit(origin).netloc in {host, urlsplit(self.callback_url).netloc}

    def _name(self, what: Literal["session", "flow"]) -> str:
        # the prefix makes browsers refuse the cookie from any other host, and without https
        return f"{'__Host-' if self._secure else ''}liger-bot-{what}"

    def _set(self, response: Response, what: Literal["session", "flow"], value: str, max_age_s: int) -> None:
        response.set_cookie(
            self._name(what),
            value,
            max_age=max_age_s,
            path="/",
            secure=self._secure,
            httponly=True,
            samesite="lax",
        )

    def _clear(self, response: Response, what: Literal["session", "flow"]) -> None:
        response.delete_cookie(self._name(what), path="/", secure=self._secure, httponly=True, samesite="lax")


def sign_in_routes(sign_in: SignIn, access: Access, pages: Pages) -> APIRouter:
    """GET /login, GET /login/callback, POST /logout."""
    routes = APIRouter(include_in_schema=False)

    @routes.get("/login")
    async def login(request: Request, to: str = HOME) -> Response:
        if sign_in.visitors is None:
            return pages.problem(request, 404, *NOT_SET_UP)
        state, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(64)
        digest = hashlib.sha256(verifier.encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        response = RedirectResponse(
            sign_in.visitors.authorize_url(state, challenge, sign_in.callback_url),
            303,
            {"Cache-Control": "no-store"},
        )
        sign_in.begin(response, state, verifier, own_path(to))
        return response

    @routes.get(CALLBACK)
    async def callback(request: Request, code: str = "", state: str = "", error: str = "") -> Response:
        if sign_in.visitors is None:
            return pages.problem(request, 404, *NOT_SET_UP)
        flow = sign_in.flow(request)
        if flow is None or not hmac.compare_digest(flow.get("state", "").encode(), state.encode()):
            return pages.problem(
                request,
                400,
                "This sign-in didn't begin here",
                "It is older than ten minutes, or was begun in another browser. Start it again.",
            )
        if error or not code:
            response = pages.problem(
                request, 403, "You are not signed in", "GitHub was not allowed to say who you are."
            )
        else:
            response = await _enter(request, sign_in.visitors, code, flow)
        sign_in.end_flow(response)
        return response

    async def _enter(request: Request, visitors: Visitors, code: str, flow: dict[str, str]) -> Response:
        try:
            token = await visitors.exchange(code, flow["verifier"], sign_in.callback_url)
            visitor = Visitor(await visitors.login(token), token)
        except UnreachableError as failure:
            log.warning("a sign-in failed: %s", failure)
            return pages.problem(
                request, 502, "GitHub can't be reached just now", "Nothing is wrong on your side; try again."
            )
        except RejectedError as failure:
            log.warning("a sign-in failed: %s", failure)
            return pages.problem(
                request,
                403,
                "GitHub didn't accept this sign-in",
                "Its code is used up or too old. Start it again.",
            )
        except GitHubError as failure:
            log.error("a sign-in failed: %s", failure)  # noqa: TRY400 - the message says all
            return pages.problem(
                request, 502, "Signing in failed", "This is our fault, not yours; it is logged."
            )
        response = RedirectResponse(own_path(flow["target"]), 303, {"Cache-Control": "no-store"})
        sign_in.remember(response, visitor)
        return response

    @routes.post("/logout")
    async def logout(request: Request) -> Response:
        if not sign_in.is_ours(request.headers.get("origin"), request.headers.get("host", "")):
            return pages.problem(request, 403, "Sign out from our own page", "Another site sent this form.")
        visitor = sign_in.visitor(request)
        if visitor is not None and sign_in.visitors is not None:
            access.forget(visitor)
            try:
                await sign_in.visitors.revoke(visitor.token)
            except GitHubError as failure:
                log.warning("a visitor's token could not be ended; it expires by itself: %s", failure)
        response = RedirectResponse(HOME, 303, {"Cache-Control": "no-store"})
        sign_in.forget(response)
        return response

    return routes


NOT_SET_UP = (
    "Signing in is not set up here",
    "Whoever runs this bot can set LIGER_BOT_CLIENT_ID and LIGER_BOT_CLIENT_SECRET.",
)


def own_path(path: str) -> str:
    """A path of ours to go on to; anything that could lead elsewhere becomes the list."""
    plain = path.isascii() and path.isprintable() and "\\" not in path
    return path if plain and (path == HOME or path.startswith((f"{HOME}/", f"{HOME}?"))) else HOME
