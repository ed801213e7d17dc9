"""The pages on this machine that send a person's browser to GitHub with the manifest, and take the code it brings back."""

from __future__ import annotations

import hmac
import json
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, Response
from jinja2 import Environment, PackageLoader, select_autoescape
from starlette.middleware.trustedhost import TrustedHostMiddleware

from app.setup.manifest import form_url

CALLBACK = "/callback"
_templates = Environment(loader=PackageLoader("app.setup"), autoescape=select_autoescape(default=True))

OnCode = Callable[[str], Awaitable[tuple[int, str]]]  # the code -> HTTP status and what to show


def setup_pages(asked: dict[str, Any], web_url: str, org: str, state: str, on_code: OnCode) -> FastAPI:
    """GET / shows what is asked for; GET /callback takes the code, once, and only with the state that went out."""
    pages = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    # another site's name that resolves to this machine could read the state otherwise
    pages.add_middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"], www_redirect=False)
    target = urlsplit(web_url)
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; "
        f"form-action {target.scheme}://{target.netloc}"
    )
    used: set[str] = set()

    def page(name: str, status: int = 200, **values: Any) -> Response:
        html = _templates.get_template(name).render(**values)
        headers = {
            "Content-Security-Policy": policy,
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-store",
        }
        return HTMLResponse(html, status_code=status, headers=headers)

    @pages.get("/")
    async def start() -> Response:
        action = form_url(web_url, org, state)
        return page(
            "start.html", action=action, asked=asked, manifest=json.dumps(asked), org=org, host=target.netloc
        )

    @pages.get(CALLBACK)
    async def callback(request: Request) -> Response:
        code, given = request.query_params.get("code", ""), request.query_params.get("state", "")
        if not hmac.compare_digest(given.encode(), state.encode()):
            return page(
                "end.html",
                403,
                ok=False,
                text="This answer doesn't belong to this setup: start again from its page.",
            )
        if not code or not code.isascii() or not code.isalnum() or len(code) > 100:
            return page(
                "end.html", 400, ok=False, text="GitHub sent no code: start again from the setup page."
            )
        if code in used:
            return page("end.html", 409, ok=False, text="This code was used before; look at the terminal.")
        used.add(code)
        status, text = await on_code(code)
        if status != 200:  # GitHub may not have seen it: it may be tried again
            used.discard(code)
        return page("end.html", status, ok=status == 200, text=text)

    return pages
