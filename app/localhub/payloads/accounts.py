"""Users, organizations, Apps and installations as JSON."""

from typing import Any

from app.localhub.links import node_id
from app.localhub.tables import Account, App, Installation
from app.localhub.transaction import Transaction

_NODE_KIND = {"User": "account", "Organization": "organization", "Bot": "bot"}


def account_node_id(account: Account) -> str:
    """The global id of an account."""
    return node_id(_NODE_KIND[account.type], account.id)


def user(tx: Transaction, account: Account) -> dict[str, Any]:
    """`simple-user`."""
    api = tx.links.api(f"users/{account.login}")
    page = f"apps/{account.login.removesuffix('[bot]')}" if account.type == "Bot" else account.login
    return {
        "login": account.login,
        "id": account.id,
        "node_id": account_node_id(account),
        "avatar_url": tx.links.page(f"_avatar/{account.id}.svg"),
        "gravatar_id": "",
        "url": api,
        "html_url": tx.links.page(page),
        "followers_url": f"{api}/followers",
        "following_url": f"{api}/following{{/other_user}}",
        "gists_url": f"{api}/gists{{/gist_id}}",
        "starred_url": f"{api}/starred{{/owner}}{{/repo}}",
        "subscriptions_url": f"{api}/subscriptions",
        "organizations_url": f"{api}/orgs",
        "repos_url": f"{api}/repos",
        "events_url": f"{api}/events{{/privacy}}",
        "received_events_url": f"{api}/received_events",
        "type": account.type,
        "user_view_type": "public",
        "site_admin": False,
    }


def public_user(tx: Transaction, account: Account) -> dict[str, Any]:
    """`public-user`: what `GET /users/{login}` gives."""
    return user(tx, account) | {
        "name": account.name,
        "company": None,
        "blog": "",
        "location": None,
        "email": account.email,
        "hireable": None,
        "bio": None,
        "public_repos": 0,
        "public_gists": 0,
        "followers": 0,
        "following": 0,
        "created_at": account.created_at,
        "updated_at": account.created_at,
    }


def integration(tx: Transaction, app: App) -> dict[str, Any]:
    """`integration`: an App as others see it."""
    return {
        "id": app.id,
        "client_id": app.client_id,
        "slug": app.slug,
        "node_id": node_id("app", app.id),
        "owner": user(tx, app.owner),
        "name": app.name,
        "description": None,
        "external_url": tx.links.page(f"apps/{app.slug}"),
        "html_url": tx.links.page(f"apps/{app.slug}"),
        "created_at": app.created_at,
        "updated_at": app.updated_at,
        "permissions": app.permissions,
        "events": app.events,
    }


def installation(tx: Transaction, row: Installation) -> dict[str, Any]:
    """`installation`."""
    return {
        "id": row.id,
        "client_id": row.app.client_id,
        "account": user(tx, row.account),
        "repository_selection": row.repository_selection,
        "access_tokens_url": tx.links.api(f"app/installations/{row.id}/access_tokens"),
        "repositories_url": tx.links.api("installation/repositories"),
        "html_url": tx.links.page(f"settings/installations/{row.id}"),
        "app_id": row.app_id,
        "app_slug": row.app.slug,
        "target_id": row.account_id,
        "target_type": row.account.type,
        "permissions": row.permissions,
        "events": row.events,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
        "single_file_name": None,
        "has_multiple_single_files": False,
        "single_file_paths": [],
        "suspended_by": user(tx, row.account) if row.suspended_at else None,
        "suspended_at": row.suspended_at,
    }
