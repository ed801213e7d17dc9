"""Webhooks as they arise: one row a receiving App, written in the transaction of the change itself."""

import json
import uuid
from dataclasses import replace
from typing import Any

from sqlalchemy import select

from app.localhub.clock import parse_stamp
from app.localhub.payloads.accounts import account_node_id, user
from app.localhub.payloads.repositories import permission_flags, repository
from app.localhub.tables import (
    Account,
    App,
    HookDelivery,
    Installation,
    InstallationRepository,
    Repository,
)
from app.localhub.transaction import Transaction

# Which permission lets an App receive an event; None: every App does.
EVENT_PERMISSION: dict[str, tuple[str, ...] | None] = {
    "ping": None,
    "installation": None,
    "installation_repositories": None,
    "issues": ("issues",),
    "issue_comment": ("issues", "pull_requests"),
    "pull_request": ("pull_requests",),
    "pull_request_review": ("pull_requests",),
    "check_run": ("checks",),
    "check_suite": ("checks",),
    "push": ("contents",),
    "workflow_run": ("actions",),
    "workflow_job": ("actions",),
}
# Sent whether or not the App subscribed.
UNSUBSCRIBABLE = ("ping", "installation", "installation_repositories")
SUBSCRIBABLE = tuple(sorted(set(EVENT_PERMISSION) - set(UNSUBSCRIBABLE)))


def organization(tx: Transaction, account: Account) -> dict[str, Any]:
    """`organization-simple-webhooks`."""
    api = tx.links.api(f"orgs/{account.login}")
    return {
        "login": account.login,
        "id": account.id,
        "node_id": account_node_id(account),
        "url": api,
        "repos_url": f"{api}/repos",
        "events_url": f"{api}/events",
        "hooks_url": f"{api}/hooks",
        "issues_url": f"{api}/issues",
        "members_url": f"{api}/members{{/member}}",
        "public_members_url": f"{api}/public_members{{/member}}",
        "avatar_url": tx.links.page(f"_avatar/{account.id}.svg"),
        "description": None,
    }


def webhook_form(tx: Transaction) -> Transaction:
    """The transaction as payload functions must see it: webhooks keep what API version 2026-03-10 removed."""
    return replace(tx, api_version="2022-11-28")


def push_repository(tx: Transaction, row: Repository) -> dict[str, Any]:
    """The repository inside a push event: epoch seconds and an owner with name and e-mail."""
    epoch = {
        key: int(parse_stamp(value).timestamp())
        for key, value in (("created_at", row.created_at), ("pushed_at", row.pushed_at))
    }
    return (
        repository(webhook_form(tx), row)
        | epoch
        | {
            "owner": user(tx, row.owner) | {"name": row.owner.login, "email": row.owner.email},
            "url": tx.links.page(row.full_name),
            "stargazers": 0,
            "master_branch": row.default_branch,
            "permissions": permission_flags("read"),
        }
    )


def receivers(tx: Transaction, row: Repository, event: str) -> list[Installation]:
    """The installations that an event of the repository goes to."""
    found = []
    for item in tx.session.scalars(select(Installation).where(Installation.account_id == row.owner_id)):
        chosen = item.repository_selection == "all" or (
            tx.session.get(InstallationRepository, (item.id, row.id)) is not None
        )
        needs = EVENT_PERMISSION[event]
        allowed = needs is None or any(need in item.permissions for need in needs)
        if chosen and allowed and item.suspended_at is None and event in item.events:
            found.append(item)
    return found


def emit(
    tx: Transaction,
    event: str,
    action: str | None,
    row: Repository,
    payload: dict[str, Any],
    *,
    sender: Account | None = None,
    only_app: App | None = None,
) -> None:
    """Queue the event for every App that receives it. `only_app` limits it to the App that owns the object."""
    account = sender or tx.actor.signed_in()
    for target in receivers(tx, row, event):
        if only_app is not None and target.app_id != only_app.id:
            continue
        body: dict[str, Any] = {} if action is None else {"action": action}
        body |= payload
        body.setdefault("repository", repository(webhook_form(tx), row))
        if row.owner.type == "Organization":
            body["organization"] = organization(tx, row.owner)
        body["sender"] = user(tx, account)
        body["installation"] = {"id": target.id, "node_id": f"MDIzOkludGVncmF0aW9u{target.id}"}
        queue(tx, target.app, event, action, body, installation_id=target.id, repository_id=row.id)


def queue(
    tx: Transaction,
    app: App,
    event: str,
    action: str | None,
    body: dict[str, Any],
    *,
    installation_id: int | None = None,
    repository_id: int | None = None,
) -> None:
    """Write one delivery; it is sent after the transaction commits."""
    if not app.webhook_url:
        return
    tx.session.add(
        HookDelivery(
            app_id=app.id,
            guid=str(uuid.uuid4()),
            event=event,
            action=action,
            installation_id=installation_id,
            repository_id=repository_id,
            payload=json.dumps(body, ensure_ascii=False, separators=(",", ":")),
        )
    )
