"""Signing in with an App: GitHub's web application flow, with PKCE, and the end of a token.

A client secret is made from the hub's key rather than stored: registering an App hands it out once, as the other secrets.
"""

import base64
import hashlib
import hmac
import json
import secrets
from typing import Annotated, Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from fastapi import APIRouter, Form, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, RedirectResponse, Response
from sqlalchemy import ForeignKey, delete, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from app.localhub.actor import ANONYMOUS, digest
from app.localhub.clock import stamp, stamp_in
from app.localhub.errors import ApiError
from app.localhub.pages.viewer import CheckedViewer, ViewerHere, page_transaction, render
from app.localhub.rest.dependencies import context_of
from app.localhub.tables import App, Base, Token
from app.localhub.transaction import Context, Transaction, transaction

router = APIRouter(include_in_schema=False)  # the web side
api_router = APIRouter(include_in_schema=False)
CODE_SECONDS = 600
TOKEN_SECONDS = 28_800
AUTHORIZE = "/login/oauth/authorize"


class OAuthCallback(Base):
    """An address to which an App lets people come back from signing in."""

    __tablename__ = "oauth_callbacks"
    app_id: Mapped[int] = mapped_column(ForeignKey("apps.id"), primary_key=True)
    url: Mapped[str] = mapped_column(primary_key=True)


class OAuthCode(Base):
    """A code that a browser carries back to an App, to be exchanged once."""

    __tablename__ = "oauth_codes"
    sha256: Mapped[str] = mapped_column(primary_key=True)
    app_id: Mapped[int] = mapped_column(ForeignKey("apps.id"))
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"))
    redirect_uri: Mapped[str]
    challenge: Mapped[str]
    expires_at: Mapped[str]


def client_secret(context: Context, client_id: str) -> str:
    """The App's client secret."""
    return hmac.new(context.signing_key.encode(), f"client:{client_id}".encode(), hashlib.sha256).hexdigest()[
        :40
    ]


def allow_callback(tx: Transaction, app: App, url: str) -> None:
    """Let people come back to `url` from signing in with an App."""
    tx.session.merge(OAuthCallback(app_id=app.id, url=url))


def set_up_sign_in(context: Context, slug: str, callback_url: str) -> tuple[str, str]:
    """What an App's settings page does: register a callback; returns client id and client secret."""
    with transaction(context, write=True, actor=lambda _session: ANONYMOUS) as tx:
        app = tx.session.scalars(select(App).where(App.slug == slug)).one()
        allow_callback(tx, app, callback_url)
        return app.client_id, client_secret(context, app.client_id)


@router.get(AUTHORIZE)
def authorize(request: Request, viewer: ViewerHere) -> Response:
    """Ask the person; wrong parameters go back to the App as GitHub sends them."""
    asked = dict(request.query_params)
    with page_transaction(request, viewer) as tx:
        app = _app(tx.session, asked.get("client_id", ""))
        target, refusal = _target(tx.session, app, asked)
        if refusal:
            return _back(target, refusal | _state(asked))
        page = render(request, tx, viewer, "authorize.html", app=app, asked=asked, target=target)
    # the form's answer leads to the App's own address, which the browser counts as a target of the form
    parts = urlsplit(target)
    policy = page.headers["Content-Security-Policy"]
    page.headers["Content-Security-Policy"] = policy.replace(
        "form-action 'self'", f"form-action 'self' {parts.scheme}://{parts.netloc}"
    )
    return page


@router.post(AUTHORIZE)
def agree(
    request: Request,
    viewer: CheckedViewer,
    asked: Annotated[str, Form()],
    agreed: Annotated[str, Form()] = "",
) -> Response:
    """Take the person's answer, and send them back with a code or without."""
    given: dict[str, str] = dict(parse_qsl(asked))
    with page_transaction(request, viewer, write=True) as tx:
        app = _app(tx.session, given.get("client_id", ""))
        target, refusal = _target(tx.session, app, given)
        if refusal or not agreed or tx.actor.account is None:
            return _back(target, (refusal or {"error": "access_denied"}) | _state(given))
        code = secrets.token_hex(10)
        tx.session.add(
            OAuthCode(
                sha256=digest(code),
                app_id=app.id,
                account_id=tx.actor.account.id,
                redirect_uri=target,
                challenge=given.get("code_challenge", ""),
                expires_at=stamp_in(CODE_SECONDS),
            )
        )
    return _back(target, {"code": code} | _state(given))


@router.post("/login/oauth/access_token")
async def exchange(request: Request) -> Response:
    """A code for a token, once. Refusals are answered 200 with `error`, as GitHub does."""
    # not on the event loop, on which another writer's transaction may have to end
    answer = await run_in_threadpool(_exchange, context_of(request), await _given(request))
    if "json" in request.headers.get("accept", ""):
        return JSONResponse(answer)
    return Response(urlencode(answer), media_type="application/x-www-form-urlencoded")


@api_router.delete("/applications/{client_id}/token")
async def delete_token(request: Request, client_id: str) -> Response:
    """End a token that the App was given for a person."""
    body = await request.json()
    authorization = request.headers.get("authorization", "")
    token = digest(str(body.get("access_token", "")))
    await run_in_threadpool(_delete, context_of(request), client_id, authorization, token)
    return Response(status_code=204)


def _delete(context: Context, client_id: str, authorization: str, token_digest: str) -> None:
    with transaction(context, write=True, actor=lambda _session: ANONYMOUS) as tx:
        if not _is_app(tx, client_id, authorization):
            raise ApiError(401, "Bad credentials")
        token = tx.session.get(Token, token_digest)
        if token is None or token.installation_id is not None:
            raise ApiError(422, "Validation Failed")
        tx.session.delete(token)


def _exchange(context: Context, given: dict[str, Any]) -> dict[str, Any]:
    with transaction(context, write=True, actor=lambda _session: ANONYMOUS) as tx:
        return _exchanged(tx, given)


def _exchanged(tx: Transaction, given: dict[str, Any]) -> dict[str, Any]:
    app = tx.session.scalar(select(App).where(App.client_id == str(given.get("client_id", ""))))
    secret = str(given.get("client_secret", ""))
    if app is None or not hmac.compare_digest(
        secret.encode(), client_secret(tx.context, app.client_id).encode()
    ):
        return _error(
            "incorrect_client_credentials", "The client_id and/or client_secret passed are incorrect."
        )
    code = tx.session.get(OAuthCode, digest(str(given.get("code", ""))))
    if code is None or code.app_id != app.id or code.expires_at <= stamp():
        return _error("bad_verification_code", "The code passed is incorrect or expired.")
    tx.session.execute(delete(OAuthCode).where(OAuthCode.sha256 == code.sha256))
    if given.get("redirect_uri") not in (None, code.redirect_uri):
        return _error("redirect_uri_mismatch", "The redirect_uri doesn't match the one of the authorization.")
    if code.challenge and _challenge(str(given.get("code_verifier", ""))) != code.challenge:
        return _error("bad_verification_code", "The code passed is incorrect or expired.")
    token = f"ghu_{secrets.token_hex(18)}"
    tx.session.add(
        Token(sha256=digest(token), account_id=code.account_id, expires_at=stamp_in(TOKEN_SECONDS))
    )
    return {"access_token": token, "expires_in": TOKEN_SECONDS, "scope": "", "token_type": "bearer"}


async def _given(request: Request) -> dict[str, Any]:
    body = (await request.body()).decode()
    if "json" in request.headers.get("content-type", ""):
        try:
            found = json.loads(body)
        except ValueError:
            found = {}
        return found if isinstance(found, dict) else {}
    return dict(request.query_params) | dict(parse_qsl(body))


def _app(session: Session, client_id: str) -> App:
    app = session.scalar(select(App).where(App.client_id == client_id))
    if app is None:
        raise ApiError(404, "Not Found")
    return app


def _target(session: Session, app: App, asked: dict[str, str]) -> tuple[str, dict[str, str]]:
    """(where the person goes back to, what is wrong). Raises ApiError 404 for an App without a callback."""
    known = session.scalars(select(OAuthCallback.url).where(OAuthCallback.app_id == app.id)).all()
    if not known:
        raise ApiError(404, "Not Found")
    target = asked.get("redirect_uri") or known[0]
    if target not in known:
        return known[0], _error(
            "redirect_uri_mismatch",
            "The redirect_uri MUST match the registered callback URL for this application.",
        )
    if asked.get("code_challenge") and asked.get("code_challenge_method") != "S256":
        return target, _error("invalid_request", "code_challenge_method must be S256")
    return target, {}


def _is_app(tx: Transaction, client_id: str, header: str) -> bool:
    scheme, _, value = header.partition(" ")
    try:
        given = base64.b64decode(value, validate=True) if scheme.lower() == "basic" else b""
    except ValueError:
        return False
    return hmac.compare_digest(given, f"{client_id}:{client_secret(tx.context, client_id)}".encode())


def _challenge(verifier: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()


def _error(name: str, description: str) -> dict[str, str]:
    return {"error": name, "error_description": description}


def _state(asked: dict[str, str]) -> dict[str, str]:
    return {"state": asked["state"]} if asked.get("state") else {}


def _back(target: str, given: dict[str, str]) -> RedirectResponse:
    joint = "&" if urlsplit(target).query else "?"
    return RedirectResponse(f"{target}{joint}{urlencode(given)}", status_code=302)
