"""Looks at the GitHub App: its credentials, its rights, and whether GitHub reaches the service."""

from __future__ import annotations

from datetime import UTC, datetime

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from app.doctor.findings import Finding, failed, fine, remark
from app.github import ForbiddenError, GitHubError, NotFoundError
from app.github.inspection import AppRights, Inspection, SeenDelivery, SeenInstallation
from app.settings import Settings
from app.setup.manifest import EVENTS, PERMISSIONS, webhook_url

ABOUT = "the App"
_LEVELS = ("none", "read", "write", "admin")


async def look_at_app(settings: Settings, app: Inspection) -> tuple[list[Finding], list[SeenInstallation]]:
    """(findings, where the App is installed); nothing more is asked when GitHub doesn't take the credentials."""
    try:
        load_pem_private_key(settings.private_key.get_secret_value().encode(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        fix = "LIGER_BOT_PRIVATE_KEY must be the PEM text that GitHub gave, with its line ends"
        return [failed(ABOUT, "credentials", "the private key can't be read", fix)], []
    try:
        identity, rights = await app.identity(), await app.rights()
    except (ForbiddenError, NotFoundError) as error:
        why = f"GitHub doesn't take them ({error})"
        fix = "LIGER_BOT_APP_ID and LIGER_BOT_PRIVATE_KEY must belong to one App of the GitHub that LIGER_BOT_GITHUB_URL names"
        return [failed(ABOUT, "credentials", why, fix)], []
    except GitHubError as error:
        return [
            failed(
                ABOUT,
                "credentials",
                str(error),
                "see that LIGER_BOT_GITHUB_URL is right and reachable from here",
            )
        ], []
    found = [fine(ABOUT, "credentials", f"{identity.slug} at {settings.github_url}")]
    found += _rights("asked for", rights, f"change it in the App's settings: {rights.url}")
    found += await _webhook(settings, app, rights)
    try:
        installations = await app.installations()
    except GitHubError as error:
        return [*found, failed(ABOUT, "installations", str(error), "try again")], []
    if not installations:
        found.append(
            failed(
                ABOUT, "installations", "none", f"install it on a repository: {rights.url}/installations/new"
            )
        )
    for one in installations:
        found += _installation(one)
    return found, [one for one in installations if not one.suspended]


def _installation(one: SeenInstallation) -> list[Finding]:
    name = f"installation on {one.account}"
    if one.suspended:
        return [failed(ABOUT, name, "suspended", f"take the suspension back: {one.rights.url}")]
    return _rights(
        "granted",
        one.rights,
        f"an owner of {one.account} accepts the new permissions: {one.rights.url}",
        name,
    )


def _rights(word: str, rights: AppRights, fix: str, name: str = "permissions") -> list[Finding]:
    """Needed against granted, and events against those that the service reads."""
    missing = [
        f"{permission}: {level}"
        for permission, level in PERMISSIONS.items()
        if _LEVELS.index(rights.permissions.get(permission, "none")) < _LEVELS.index(level)
    ]
    unheard = [event for event in EVENTS if event not in rights.events]
    found = []
    if missing:
        found.append(failed(ABOUT, name, f"not {word}: {', '.join(missing)}", fix))
    if unheard:
        found.append(failed(ABOUT, name, f"events not subscribed to: {', '.join(unheard)}", fix))
    if rights.permissions.get("workflows") == "write":
        found.append(
            remark(
                ABOUT,
                name,
                "workflows: write is granted, and not needed: without it GitHub refuses every push that touches a workflow",
                "take it away in the App's settings",
            )
        )
    return found or [fine(ABOUT, name, f"all that is needed is {word}")]


async def _webhook(settings: Settings, app: Inspection, rights: AppRights) -> list[Finding]:
    try:
        url, deliveries = await app.webhook_url(), await app.deliveries()
    except GitHubError as error:
        return [failed(ABOUT, "webhook", str(error), "try again")]
    expected = webhook_url(settings.pages_url)
    found = []
    if not url:
        return [
            failed(
                ABOUT,
                "webhook",
                "the App has none",
                f"set it to {expected} in the App's settings: {rights.url}",
            )
        ]
    if url != expected:
        text = f"GitHub delivers to {url}, and this service says it is reached at {expected}"
        found.append(
            remark(
                ABOUT, "webhook", text, "mend LIGER_BOT_PUBLIC_URL here or the address in the App's settings"
            )
        )
    return [*found, _delivered(url, deliveries)]


def _delivered(url: str, deliveries: list[SeenDelivery]) -> Finding:
    """What the newest attempts say."""
    if not deliveries:
        fix = "start the service, then redeliver the ping under Advanced in the App's settings"
        return remark(ABOUT, "deliveries", f"nothing was delivered to {url} in the last days", fix)
    newest = deliveries[0]
    missed = sum(not 200 <= one.status_code < 300 for one in deliveries)
    when = f"{_ago(newest.delivered_at)} ago ({newest.event})"
    if 200 <= newest.status_code < 300:
        text = f"the newest arrived {when}; {missed} of the last {len(deliveries)} didn't"
        return fine(ABOUT, "deliveries", text)
    if newest.status_code == 401:
        fix = "LIGER_BOT_WEBHOOK_SECRET must be the one in the App's settings"
    elif newest.status_code:
        fix = "look into the service's log"
    else:
        fix = f"see that `liger-bot serve` runs and that GitHub reaches {url} (public address, TLS, firewall)"
    return failed(
        ABOUT,
        "deliveries",
        f"the newest, {when}, failed: {newest.status_code or ''} {newest.status}".strip(),
        fix,
    )


def _ago(then: datetime) -> str:
    seconds = max(0.0, (datetime.now(UTC) - then).total_seconds())
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
