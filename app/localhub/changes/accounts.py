"""Accounts, Apps and installations come and go."""

import secrets
from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from sqlalchemy import select

from app.localhub import events
from app.localhub.clock import stamp
from app.localhub.errors import invalid
from app.localhub.payloads import accounts as payloads
from app.localhub.payloads import repositories
from app.localhub.tables import (
    Account,
    App,
    Installation,
    InstallationRepository,
    Repository,
)
from app.localhub.transaction import Transaction

# Names that are the first part of one of the hub's own addresses.
RESERVED = frozenset(
    {
        "api",
        "app",
        "app-manifests",
        "apps",
        "enterprise",
        "graphql",
        "installation",
        "login",
        "meta",
        "organizations",
        "orgs",
        "rate_limit",
        "repos",
        "search",
        "settings",
        "user",
        "users",
        "versions",
        "zen",
    }
)


@dataclass(frozen=True)
class Credentials:
    """What registering an App hands out, once."""

    app: App
    private_key: str


def ensure_account(tx: Transaction, login: str, kind: str = "User", name: str | None = None) -> Account:
    """The account of that login, made if it is missing. Raises ApiError 422 for a login that can't be one."""
    found = tx.session.scalar(select(Account).where(Account.login == login))
    if found is not None:
        return found
    plain = login.removesuffix("[bot]")
    if plain.lower() in RESERVED or not plain.replace("-", "").isalnum() or not plain.isascii():
        raise invalid("User", "login", "invalid")
    account = Account(login=login, type=kind, name=name, email=None)
    tx.session.add(account)
    tx.session.flush()
    account.email = f"{account.id}+{login}@users.noreply.localhost"
    return account


def register_app(
    tx: Transaction,
    slug: str,
    owner: Account,
    webhook_url: str,
    webhook_secret: str,
    *,
    permissions: dict[str, str],
    subscriptions: list[str] | None = None,
) -> Credentials:
    """Register an App and its bot user. Raises ApiError 422 when the slug is taken."""
    if tx.session.scalar(select(App).where(App.slug == slug)) is not None:
        raise invalid("App", "slug", "already_exists")
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    bot = ensure_account(tx, f"{slug}[bot]", "Bot")
    app = App(
        slug=slug,
        name=slug,
        client_id=f"Iv23li{secrets.token_hex(7)}",
        owner_id=owner.id,
        bot_id=bot.id,
        public_key=key.public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        .decode(),
        webhook_url=webhook_url,
        webhook_secret=webhook_secret,
        permissions={"metadata": "read", **permissions},
        events=list(events.SUBSCRIBABLE) if subscriptions is None else subscriptions,
    )
    tx.session.add(app)
    tx.session.flush()
    ping(tx, app)
    private_key = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    ).decode()
    return Credentials(app, private_key)


def ping(tx: Transaction, app: App) -> None:
    """The event that tells an App its webhook address is known."""
    hook: dict[str, Any] = {
        "type": "App",
        "id": app.id,
        "name": "web",
        "active": True,
        "events": app.events,
        "config": {"content_type": "json", "insecure_ssl": "0", "secret": "********", "url": app.webhook_url},
        "updated_at": app.updated_at,
        "created_at": app.created_at,
        "app_id": app.id,
        "deliveries_url": tx.links.api("app/hook/deliveries"),
    }
    body = {"zen": "Keep it logically awesome.", "hook_id": app.id, "hook": hook}
    events.queue(tx, app, "ping", None, body)


def install_app(
    tx: Transaction, app: App, account: Account, repositories_chosen: list[Repository] | None
) -> Installation:
    """Install an App on an account: for all repositories (None) or for some. A second call changes the selection."""
    found = tx.session.scalar(
        select(Installation).where(Installation.app_id == app.id, Installation.account_id == account.id)
    )
    added = repositories_chosen
    if added is None:
        added = list(tx.session.scalars(select(Repository).where(Repository.owner_id == account.id)))
    selection = "all" if repositories_chosen is None else "selected"
    if found is None:
        row = Installation(
            app_id=app.id,
            account_id=account.id,
            repository_selection=selection,
            permissions=dict(app.permissions),
            events=list(app.events),
        )
        tx.session.add(row)
        tx.session.flush()
        _choose(tx, row, repositories_chosen or [])
        body = {
            "action": "created",
            "installation": payloads.installation(tx, row),
            "repositories": [repositories.brief(item) for item in added],
            "requester": None,
            "sender": payloads.user(tx, account),
        }
        events.queue(tx, app, "installation", "created", body, installation_id=row.id)
        return row
    found.repository_selection = selection
    found.updated_at = stamp()
    new = _choose(tx, found, repositories_chosen or [])
    body = {
        "action": "added",
        "installation": payloads.installation(tx, found),
        "repository_selection": selection,
        "repositories_added": [repositories.brief(item) for item in new],
        "repositories_removed": [],
        "requester": None,
        "sender": payloads.user(tx, account),
    }
    events.queue(tx, app, "installation_repositories", "added", body, installation_id=found.id)
    return found


def _choose(tx: Transaction, row: Installation, chosen: list[Repository]) -> list[Repository]:
    new = []
    for item in chosen:
        if tx.session.get(InstallationRepository, (row.id, item.id)) is None:
            tx.session.add(InstallationRepository(installation_id=row.id, repository_id=item.id))
            new.append(item)
    tx.session.flush()
    return new


def suspend(tx: Transaction, row: Installation, suspended: bool) -> None:
    """Suspend an installation, or take the suspension back."""
    row.suspended_at = stamp() if suspended else None
    row.updated_at = stamp()
    action = "suspend" if suspended else "unsuspend"
    body = {
        "action": action,
        "installation": payloads.installation(tx, row),
        "repositories": [],
        "sender": payloads.user(tx, row.account),
    }
    events.queue(tx, row.app, "installation", action, body, installation_id=row.id)
