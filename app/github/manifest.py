"""The last step of registering an App from a manifest: a code becomes an App, once."""

from __future__ import annotations

from dataclasses import dataclass

from githubkit import GitHub, UnauthAuthStrategy
from githubkit.cache import MemCacheStrategy
from pydantic import SecretStr

from app.github.errors import ask
from app.github.transport import SharedTransport, retry_reads

TIMEOUT_S = 30.0


@dataclass(frozen=True)
class RegisteredApp:
    """What GitHub hands out once."""

    id: int
    slug: str
    url: str  # of its page, from which it is installed
    private_key: SecretStr
    webhook_secret: SecretStr
    client_id: str
    client_secret: SecretStr


async def convert_manifest(base_url: str, api_version: str, code: str) -> RegisteredApp:
    """Exchange the code that a person's browser brought back. Raises GitHubError; NotFoundError for a code that isn't one."""
    transport = SharedTransport(api_version, base_url)
    github = GitHub(
        UnauthAuthStrategy(),
        base_url=base_url,
        user_agent="liger-bot",
        timeout=TIMEOUT_S,
        trust_env=False,
        async_transport=transport,
        cache_strategy=MemCacheStrategy(),
        http_cache=False,
        auto_retry=retry_reads,
    )
    try:
        app = (await ask(github.rest.apps.async_create_from_manifest(code), "register the App")).parsed_data
    finally:
        await transport.close_pool()
    return RegisteredApp(
        id=app.id,
        slug=app.slug or str(app.id),
        url=app.html_url,
        private_key=SecretStr(app.pem),
        webhook_secret=SecretStr(app.webhook_secret or ""),
        client_id=app.client_id or "",
        client_secret=SecretStr(app.client_secret),
    )
