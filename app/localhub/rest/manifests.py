"""The second half of GitHub's App manifest flow: a code becomes an App, once. The first half is a page for people."""

import secrets
from typing import Any

from fastapi import APIRouter

from app.localhub import oauth
from app.localhub.changes import accounts as changes
from app.localhub.clock import stamp
from app.localhub.errors import not_found
from app.localhub.payloads import accounts
from app.localhub.rest.dependencies import Write
from app.localhub.tables import Account, AppManifest

router = APIRouter()


@router.post("/app-manifests/{code}/conversions", status_code=201)
def convert_manifest(tx: Write, code: str) -> dict[str, Any]:
    """Register the App that a person agreed to; the reply holds its secrets, and no later one does."""
    row = tx.session.get(AppManifest, code)
    if row is None or row.expires_at <= stamp():
        raise not_found()
    manifest, owner = row.manifest, tx.session.get_one(Account, row.owner_id)
    secret = secrets.token_hex(20)
    made = changes.register_app(
        tx,
        row.slug,
        owner,
        (manifest.get("hook_attributes") or {}).get("url", ""),
        secret,
        permissions=manifest.get("default_permissions") or {},
        subscriptions=manifest.get("default_events") or [],
    )
    made.app.name = manifest["name"]
    for url in manifest.get("callback_urls") or []:
        oauth.allow_callback(tx, made.app, str(url))
    tx.session.delete(row)
    return accounts.integration(tx, made.app) | {
        "client_secret": oauth.client_secret(tx.context, made.app.client_id),
        "webhook_secret": secret,
        "pem": made.private_key,
    }
