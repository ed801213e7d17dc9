"""Who looks at a page, and forms that only the hub's own pages can send.

People choose who they are; there is no password, because the hub is one person's machine. The choice is a signed
cookie. Every form carries a token made from that cookie, so that no other site can act in the person's name.
"""

import hashlib
import hmac
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import urlsplit

from fastapi import Depends, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.localhub.actor import ANONYMOUS, Actor, level
from app.localhub.errors import ApiError
from app.localhub.pages.markdown import render_markdown
from app.localhub.rest.dependencies import context_of
from app.localhub.tables import Account, Repository
from app.localhub.transaction import Context, Transaction, transaction

COOKIE = "local_hub"
NOBODY = "0"
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; style-src 'self'; script-src 'self'; frame-ancestors 'none'; form-action 'self'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}

_templates = Environment(
    loader=PackageLoader("app.localhub.pages"),
    autoescape=select_autoescape(default_for_string=True, default=True),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_templates.filters["markdown"] = render_markdown
_templates.filters["moment"] = lambda text: f"{text[:10]} {text[11:19]}" if text else ""


@dataclass(frozen=True)
class Viewer:
    """The browser's choice of user: `cookie` is its signed value, `account_id` 0 for nobody."""

    cookie: str
    account_id: int
    token: str


def _sign(context: Context, text: str) -> str:
    return hmac.new(context.signing_key.encode(), text.encode(), hashlib.sha256).hexdigest()


def make_cookie(context: Context, account_id: int) -> str:
    """A signed choice."""
    plain = f"{account_id}.{secrets.token_hex(8)}"
    return f"{plain}.{_sign(context, f'cookie:{plain}')}"


def viewer_of(request: Request) -> Viewer:
    """The viewer, nobody when the cookie is missing or not the hub's."""
    context = context_of(request)
    cookie = request.cookies.get(COOKIE, "")
    plain, _, signature = cookie.rpartition(".")
    if not cookie.isascii() or not hmac.compare_digest(signature, _sign(context, f"cookie:{plain}")):
        cookie = make_cookie(context, 0)
        plain = cookie.rpartition(".")[0]
    return Viewer(cookie, int(plain.split(".")[0]), _sign(context, f"form:{cookie}"))


ViewerHere = Annotated[Viewer, Depends(viewer_of)]


def checked_viewer(request: Request, viewer: ViewerHere, form_token: Annotated[str, Form()] = "") -> Viewer:
    """The viewer of a form that this hub's page sent. Raises ApiError 403."""
    origin = request.headers.get("origin")
    same = origin is None or urlsplit(origin).netloc == request.headers.get("host")
    if not same or not hmac.compare_digest(form_token.encode(), viewer.token.encode()):
        raise ApiError(403, "This form is out of date. Go back, reload the page, and send it again.")
    return viewer


CheckedViewer = Annotated[Viewer, Depends(checked_viewer)]


def _actor(viewer: Viewer, session: Session) -> Actor:
    account = session.get(Account, viewer.account_id) if viewer.account_id else None
    return Actor("user", account=account) if account is not None else ANONYMOUS


@contextmanager
def page_transaction(request: Request, viewer: Viewer, *, write: bool = False) -> Iterator[Transaction]:
    """A transaction in which the viewer acts."""
    with transaction(context_of(request), write=write, actor=lambda session: _actor(viewer, session)) as tx:
        yield tx


def may_write(tx: Transaction, repository: Repository) -> bool:
    """Whether the viewer may merge, close and the like."""
    return tx.actor.kind == "user" and level(tx.session, tx.actor, repository) in ("write", "admin")


def render(
    request: Request, tx: Transaction, viewer: Viewer, name: str, status: int = 200, **values: Any
) -> HTMLResponse:
    """The page `name` with the viewer's cookie set."""
    people = tx.session.scalars(select(Account).where(Account.type == "User").order_by(Account.login)).all()
    html = _templates.get_template(name).render(
        me=tx.actor.account, people=people, form_token=viewer.token, here=request.url.path, **values
    )
    response = HTMLResponse(html, status_code=status, headers=HEADERS)
    if request.cookies.get(COOKIE) != viewer.cookie:
        remember(response, viewer.cookie)
    return response


def remember(response: Response, cookie: str) -> None:
    """Set the viewer's cookie."""
    response.set_cookie(COOKIE, cookie, httponly=True, samesite="strict", path="/")


def back(path: str) -> RedirectResponse:
    """To a page of this hub, after a form."""
    safe = path if path.startswith("/") and not path.startswith(("//", "/\\")) else "/"
    return RedirectResponse(safe, status_code=303)
