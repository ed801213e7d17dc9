"""What is true of every API reply, whatever the route: versions, rate limits, ETags, request ids, faults."""

import asyncio
import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.localhub.errors import ApiError
from app.localhub.faults import Faults, RequestFault
from app.localhub.rate_limits import RateLimits
from app.localhub.rest.dependencies import DEFAULT_API_VERSION
from app.localhub.rest.users import API_VERSIONS

SECONDARY = (
    "You have exceeded a secondary rate limit. Please wait a few minutes before you try again. "
    "If you reach out to GitHub Support for help, please include the request ID."
)


@dataclass
class _Reply:
    """A reply held back until it is whole."""

    status: int = 200
    headers: MutableHeaders = field(default_factory=MutableHeaders)
    body: bytes = b""

    async def receive_from(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = MutableHeaders(raw=list(message["headers"]))
        elif message["type"] == "http.response.body":
            self.body += message.get("body", b"")

    async def send(self, send: Send) -> None:
        self.headers["content-length"] = str(len(self.body))
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers.raw})
        await send({"type": "http.response.body", "body": self.body})


class ApiSurface:
    """Wraps the REST application."""

    def __init__(self, app: ASGIApp, rate_limits: RateLimits, faults: Faults, enterprise: bool) -> None:
        self._app = app
        self._rate_limits = rate_limits
        self._faults = faults
        self._enterprise = enterprise

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = self._refusal(headers)
        if refusal is not None:
            await refusal.reply()(scope, receive, send)
            return
        fault = self._faults.for_request(scope["method"], scope["path"])
        if fault is not None and fault.kind == "latency":
            await asyncio.sleep(fault.seconds)
        if fault is not None and not fault.after_effect and fault.kind in ("secondary_limit", "server_error"):
            await _faulty_reply(fault)(scope, receive, send)
            return
        caller: dict[str, str] = {}
        inner = {**scope, "headers": _as_json(scope["headers"]), "hub.caller": caller}
        if fault is not None and fault.kind == "primary_limit":
            inner["hub.exhaust"] = fault.seconds
        reply = _Reply()
        await self._app(inner, receive, reply.receive_from)
        if fault is not None and fault.kind == "server_error":
            await _faulty_reply(fault)(scope, receive, send)
            return
        self._finish(scope["method"], headers, caller, reply)
        await reply.send(send)

    def _refusal(self, headers: Headers) -> ApiError | None:
        if not headers.get("user-agent"):
            return ApiError(
                403,
                "Request forbidden by administrative rules. Please make sure your request has a User-Agent header.",
            )
        version = headers.get("x-github-api-version", DEFAULT_API_VERSION)
        if version not in API_VERSIONS:
            return ApiError(
                400,
                f"The API version '{version}' is not supported. Supported versions: {', '.join(API_VERSIONS)}.",
            )
        return None

    def _finish(self, method: str, headers: Headers, caller: dict[str, str], reply: _Reply) -> None:
        reply.headers["X-GitHub-Request-Id"] = secrets.token_hex(12).upper()
        reply.headers["X-GitHub-Api-Version-Selected"] = headers.get(
            "x-github-api-version", DEFAULT_API_VERSION
        )
        reply.headers["X-GitHub-Media-Type"] = "github.v3; format=json"
        if self._enterprise:
            reply.headers["X-GitHub-Enterprise-Version"] = "3.21.0"
        if method in ("GET", "HEAD") and reply.status == 200:
            # The caller is part of it: on GitHub too, a new token makes every ETag new.
            digest = hashlib.sha256(caller.get("credential", "").encode() + b"\0" + reply.body).hexdigest()
            reply.headers["ETag"] = f'W/"{digest}"'
            reply.headers["Cache-Control"] = "private, max-age=60, s-maxage=60"
            reply.headers["Vary"] = "Accept, Authorization, Cookie, X-GitHub-OTP"
            if digest in headers.get("if-none-match", ""):
                reply.status, reply.body = 304, b""
                if caller.get("kind", "anonymous") != "anonymous":
                    self._rate_limits.give_back(caller["rate_key"], caller["kind"])
        if caller:
            reply.headers.update(self._rate_limits.headers(caller["rate_key"], caller["kind"]))


def _as_json(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """GitHub reads every body as JSON, whatever `curl -d` calls it."""
    kept = [(name, value) for name, value in headers if name.lower() != b"content-type"]
    return [*kept, (b"content-type", b"application/json")]


def _faulty_reply(fault: RequestFault) -> Response:
    if fault.kind == "secondary_limit":
        headers = {} if fault.retry_after is None else {"Retry-After": str(fault.retry_after)}
        return ApiError(403, SECONDARY, headers=headers).reply()
    return Response("<html><body>Unicorn!</body></html>", status_code=fault.status, media_type="text/html")
