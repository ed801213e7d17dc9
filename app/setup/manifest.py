"""What the App asks GitHub for. Pure; `liger-bot doctor` compares it with what was granted."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from app.deliveries import MODELS

# No `workflows`: GitHub then refuses every push that touches .github/workflows, whoever asked for it.
PERMISSIONS = {
    "metadata": "read",
    "issues": "write",
    "pull_requests": "write",
    "contents": "write",
    "checks": "write",
    "actions": "write",
}
# Asked for only when a person wants what they are for.
TEAMS = {"members": "read"}
RUNNER_STATUS = {"administration": "read"}
# Sent to every App, and not to be subscribed to.
_AUTOMATIC = frozenset({"ping", "installation", "installation_repositories"})
EVENTS = tuple(sorted(set(MODELS) - _AUTOMATIC))
WEBHOOK_PATH = "/webhook"
SIGN_IN_PATH = "/login/callback"
MAX_NAME_CHARS = 34


def manifest(
    name: str, public_url: str, redirect_url: str, *, teams: bool = False, runner_status: bool = False
) -> dict[str, Any]:
    """The manifest of an App whose service people reach at `public_url`."""
    permissions = PERMISSIONS | (TEAMS if teams else {}) | (RUNNER_STATUS if runner_status else {})
    return {
        "name": name[:MAX_NAME_CHARS],
        "url": public_url,
        "description": "Derives, verifies and proposes Triton kernels on request.",
        "hook_attributes": {"url": webhook_url(public_url), "active": True},
        "redirect_url": redirect_url,
        "callback_urls": [
            public_url.rstrip("/") + SIGN_IN_PATH
        ],  # people sign in to see pages of private repositories
        "public": False,
        "default_permissions": permissions,
        "default_events": list(EVENTS),
    }


def webhook_url(public_url: str) -> str:
    """Where GitHub delivers."""
    return public_url.rstrip("/") + WEBHOOK_PATH


def form_url(web_url: str, org: str, state: str) -> str:
    """The page of GitHub that takes a manifest, for a person or for an organisation."""
    path = f"organizations/{org}/settings/apps/new" if org else "settings/apps/new"
    return f"{web_url.rstrip('/')}/{path}?state={state}"


def api_url(web_url: str) -> str:
    """The REST API that belongs to a GitHub's web address: Enterprise Server has it under its own host."""
    base = web_url.rstrip("/")
    return "https://api.github.com" if urlsplit(base).hostname == "github.com" else f"{base}/api/v3"
