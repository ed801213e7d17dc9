"""The App: its identity, its installations' repositories, its webhook deliveries."""

from __future__ import annotations

from collections.abc import AsyncIterable
from datetime import datetime
from typing import TypeVar
from urllib.parse import parse_qs, urlsplit

import httpx
from githubkit import AppAuthStrategy, GitHub
from githubkit.cache import MemCacheStrategy
from githubkit.utils import UNSET

from app.github.errors import GitHubError, ask
from app.github.records import AppIdentity, FailedDelivery
from app.github.repository import GitHubRepository
from app.github.transport import SharedTransport, retry_reads

TIMEOUT_S = 30.0
MAX_PAGES = 20

T = TypeVar("T")
VISIBILITY_PAGES = 3


class GitHubApp:
    """The App: its identity, and its installations' repositories."""

    def __init__(self, app_id: int, private_key: str, base_url: str, api_version: str = "2026-03-10"):
        self._transport = SharedTransport(api_version, base_url)
        self._auth = AppAuthStrategy(app_id, private_key)
        self._github = GitHub(
            self._auth,
            base_url=base_url,
            user_agent="liger-bot",
            timeout=TIMEOUT_S,
            trust_env=False,  # a proxy from the environment would replace the transport below, which knows it already
            async_transport=self._transport,
            # tokens are cached by key without the server's address: a cache of our own can't mix servers up
            cache_strategy=MemCacheStrategy(),
            http_cache=False,
            auto_retry=retry_reads,
        )
        self.app_id = app_id
        self._identity: AppIdentity | None = None

    async def identity(self) -> AppIdentity:
        """The App's slug; asked once."""
        if self._identity is None:
            app = (await ask(self._github.rest.apps.async_get_authenticated(), "read the App")).parsed_data
            if app is None:
                raise GitHubError("read the App: GitHub answered nothing")
            self._identity = AppIdentity(app.id, app.slug or str(app.id))
        return self._identity

    def repository(self, installation_id: int, full_name: str) -> GitHubRepository:
        """A repository seen through an installation; its tokens reach that repository alone."""
        owner, name = full_name.split("/", 1)
        auth = self._auth.as_installation(installation_id, repositories=[name])
        return GitHubRepository(self._github.with_auth(auth), self._github, installation_id, owner, name)

    async def visibilities(self, installation_id: int) -> dict[str, bool]:
        """Which repositories of an installation anybody may read, by full name; of a large one only the first few hundred."""
        github = self._github.with_auth(self._auth.as_installation(installation_id))
        found: dict[str, bool] = {}
        for page in range(1, VISIBILITY_PAGES + 1):
            answer = await ask(
                github.rest.apps.async_list_repos_accessible_to_installation(per_page=100, page=page),
                "list the installation's repositories",
            )
            shown = answer.parsed_data.repositories
            found |= {one.full_name: not one.private for one in shown}
            if len(shown) < 100:
                break
        return found

    async def failed_deliveries(self, since: datetime) -> list[FailedDelivery]:
        """Deliveries from `since` on that GitHub never managed to hand over, oldest first: the newest of each event."""
        received: set[str] = set()
        failed: dict[str, FailedDelivery] = {}
        cursor: str | None = ""
        for _ in range(MAX_PAGES):
            answer = await ask(
                self._github.rest.apps.async_list_webhook_deliveries(per_page=100, cursor=cursor or UNSET),
                "list deliveries",
            )
            for one in answer.parsed_data:
                if 200 <= one.status_code < 300:
                    received.add(one.guid)
                elif one.delivered_at >= since:
                    failed.setdefault(one.guid, FailedDelivery(one.id, one.guid, one.event))
            cursor = _next_cursor(answer.raw_response)
            if cursor is None or any(one.delivered_at < since for one in answer.parsed_data):
                break
        return [one for one in reversed(failed.values()) if one.guid not in received]

    async def redeliver(self, delivery_id: int) -> None:
        await ask(self._github.rest.apps.async_redeliver_webhook_delivery(delivery_id), "redeliver")

    async def installed_repositories(self) -> list[tuple[int, str]]:
        """(installation, full name) of every repository where the App is installed and not suspended."""
        found: list[tuple[int, str]] = []
        installations = self._github.rest.paginate(
            self._github.rest.apps.async_list_installations, per_page=100
        )
        for installation in await ask(_all(installations), "list installations"):
            if installation.suspended_at is not None:
                continue
            github = self._github.with_auth(self._auth.as_installation(installation.id))
            repositories = github.rest.paginate(
                github.rest.apps.async_list_repos_accessible_to_installation,
                map_func=lambda answer: answer.parsed_data.repositories,
                per_page=100,
            )
            names = await ask(_all(repositories), "list repositories")
            found += [(installation.id, one.full_name) for one in names]
        return found

    async def close(self) -> None:
        await self._transport.close_pool()


async def _all(pages: AsyncIterable[T]) -> list[T]:
    return [one async for one in pages]


def _next_cursor(answer: httpx.Response) -> str | None:
    """From the Link header; None on the last page."""
    following = answer.links.get("next", {}).get("url", "")
    return parse_qs(urlsplit(following).query).get("cursor", [None])[0]
