"""Turns templates into pages: escaping, headers, addresses of static files, and the words for states and numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from app.github import redact
from app.pages.access import Visitor
from app.states import State

HERE = Path(__file__).parent
STATIC = HERE / "static"
# Nothing inline, nothing from elsewhere: whatever slipped through the escaping would still not run.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "private, no-store",
}

_TONES = {
    State.awaiting_approval: "waiting",
    State.in_review: "waiting",
    State.merged: "done",
    State.failed: "bad",
    State.rejected: "quiet",
    State.cancelled: "quiet",
    State.expired: "quiet",
    State.closed: "quiet",
}
_OUTCOMES = {
    "success": ("good", "✓"),
    "passed": ("good", "✓"),
    "failure": ("bad", "✗"),
    "failed": ("bad", "✗"),
    "timed_out": ("bad", "✗"),
    "action_required": ("bad", "!"),
    "flagged": ("waiting", "!"),
    "running": ("busy", "…"),
    "queued": ("busy", "…"),
}


class Pages:
    """Renders our templates. visitor_of: who a request comes from; can_sign_in: whether anybody can."""

    def __init__(self, visitor_of: Callable[[Request], Visitor | None], *, can_sign_in: bool):
        self._visitor_of, self._can_sign_in = visitor_of, can_sign_in
        self._templates = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= {
            "words": words,
            "tone": tone,
            "outcome": lambda text: _OUTCOMES.get(text or "", ("quiet", "–"))[0],
            "sign": lambda text: _OUTCOMES.get(text or "", ("quiet", "–"))[1],
            "moment": moment,
            "iso": lambda at: at.isoformat(timespec="seconds"),
            "took": took,
            "number": number,
            "redact": redact,
            "web": web,
            "prose": prose,
        }
        self._templates.globals["asset"] = asset

    def html(self, request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
        """A whole page."""
        here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        text = self._templates.get_template(template).render(
            visitor=self._visitor_of(request), can_sign_in=self._can_sign_in, here=here, **values
        )
        return HTMLResponse(text, status, HEADERS)

    def fragment(self, template: str, **values: Any) -> str:
        """A part of a page."""
        return self._templates.get_template(template).render(**values)

    def problem(
        self, request: Request, status: int, title: str, text: str, *, sign_in: bool = False
    ) -> HTMLResponse:
        """A page that says why there isn't another one. sign_in: offer it."""
        return self.html(
            request, "problem.html", status, title=title, text=text, sign_in=sign_in and self._can_sign_in
        )


def asset(name: str) -> str:
    """The address of a static file, which changes with its contents."""
    if name not in _digests:
        _digests[name] = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]
    return f"/static/{name}?v={_digests[name]}"


_digests: dict[str, str] = {}


def web(url: str) -> str:
    """An address that a link may lead to; empty for any other scheme."""
    return url if url.startswith(("https://", "http://")) else ""


def prose(text: str) -> Markup:
    """Someone's sentence: nothing in it acts, and what it puts between backticks is shown as code."""
    parts = redact(text).split("`")
    if len(parts) % 2 == 0:  # a backtick without its partner
        return escape(redact(text))
    shown = (
        Markup("<code>{}</code>").format(part) if number % 2 else escape(part)
        for number, part in enumerate(parts)
    )
    return Markup("").join(shown)


def words(text: str) -> str:
    """A state or kind as people write it."""
    return text.replace("_", " ")


def tone(state: str) -> str:
    """How a state is coloured: busy, waiting, done, bad or quiet."""
    return _TONES.get(State(state), "busy")


def moment(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M")


def took(seconds: float | None) -> str:
    """A duration as people read it."""
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02d} min"
    return f"{hours // 24} days"


def number(value: float) -> str:
    """Four digits that count, never in powers of ten below a million."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.4g}" if 0.001 <= abs(value) < 10_000 else f"{value:,.3g}"
