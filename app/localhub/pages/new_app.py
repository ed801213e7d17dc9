"""The first half of GitHub's App manifest flow: a person looks at what an App asks for, and agrees."""

import json
import re
import secrets
from typing import Annotated, Any
from urllib.parse import urlencode, urlsplit

from fastapi import APIRouter, Form, Request
from fastapi.responses import RedirectResponse, Response
from sqlalchemy import select

from app.localhub.clock import stamp_in
from app.localhub.errors import ApiError
from app.localhub.pages.viewer import CheckedViewer, ViewerHere, page_transaction, render
from app.localhub.tables import Account, App, AppManifest
from app.localhub.transaction import Transaction

router = APIRouter()
MANIFEST_SECONDS = 3600


@router.post("/settings/apps/new")
@router.post("/organizations/{org}/settings/apps/new")
def new_app(
    request: Request, viewer: ViewerHere, manifest: Annotated[str, Form()], org: str = "", state: str = ""
) -> Response:
    """Show the manifest that another site sent; nothing happens before the person agrees."""
    asked = _read(manifest)
    with page_transaction(request, viewer) as tx:
        owner = _owner(tx, org)
        page = render(
            request,
            tx,
            viewer,
            "new_app.html",
            owner=owner.login if owner else "",
            org=org,
            asked=asked,
            manifest=manifest,
            state=state,
        )
    # the form's answer leads to the asker's own address, which the browser counts as a target of the form
    target = urlsplit(asked["redirect_url"])
    policy = page.headers["Content-Security-Policy"]
    page.headers["Content-Security-Policy"] = policy.replace(
        "form-action 'self'", f"form-action 'self' {target.scheme}://{target.netloc}"
    )
    return page


@router.post("/_apps/create")
def create_app(
    request: Request,
    viewer: CheckedViewer,
    manifest: Annotated[str, Form()],
    name: Annotated[str, Form()] = "",
    org: Annotated[str, Form()] = "",
    state: Annotated[str, Form()] = "",
) -> Response:
    """Take the person's agreement, and send them back with a code."""
    asked = _read(manifest)
    asked["name"] = name.strip() or asked["name"]
    slug = re.sub(r"[^a-z0-9]+", "-", asked["name"].lower()).strip("-")
    with page_transaction(request, viewer, write=True) as tx:
        owner = _owner(tx, org)
        if owner is None:
            raise ApiError(403, "Choose who you are (top right) to register an App.")
        if not slug or tx.session.scalar(select(App).where(App.slug == slug)) is not None:
            raise ApiError(422, f"The name {asked['name']!r} is already taken.")
        code = secrets.token_hex(20)
        tx.session.add(
            AppManifest(
                code=code,
                owner_id=owner.id,
                slug=slug,
                manifest=asked,
                expires_at=stamp_in(MANIFEST_SECONDS),
            )
        )
    given = {"code": code} | ({"state": state} if state else {})
    joint = "&" if urlsplit(asked["redirect_url"]).query else "?"
    return RedirectResponse(f"{asked['redirect_url']}{joint}{urlencode(given)}", status_code=302)


def _owner(tx: Transaction, org: str) -> Account | None:
    return tx.account(org) if org else tx.actor.account


def _read(manifest: str) -> dict[str, Any]:
    """The manifest. Raises ApiError 422 where GitHub shows an error."""
    try:
        asked = json.loads(manifest)
    except ValueError as error:
        raise ApiError(422, "Invalid GitHub App configuration: not JSON") from error
    if not isinstance(asked, dict) or not isinstance(asked.get("url"), str):
        raise ApiError(422, "Invalid GitHub App configuration: `url` wasn't supplied")
    if urlsplit(str(asked.get("redirect_url", ""))).scheme not in ("http", "https"):
        raise ApiError(422, "Invalid GitHub App configuration: `redirect_url` must be an address")
    if asked.get("hook_attributes") is not None and not asked["hook_attributes"].get("url"):
        raise ApiError(422, "Invalid GitHub App configuration: `hook_attributes.url` wasn't supplied")
    asked.setdefault("name", "")
    return asked
