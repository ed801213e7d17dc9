"""The App: its identity, its installations' repositories, its webhook deliveries."""

from __future__ import annotations

from githubkit import AppAuthStrategy, GitHub
from githubkit.cache import MemCacheStrategy

from app.github.errors import GitHubError, ask
from app.github.records import AppIdentity, FailedDelivery
from app.github.repository import GitHubRepository
from app.github.transport import SharedTransport, retry_reads

TIMEOUT_S = 30.0


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

    async def failed_deliveries(self) -> list[FailedDelivery]:
        """Among the last hundred deliveries, those that GitHub never managed to hand over, oldest first."""
        answer = await ask(
            self._github.rest.apps.async_list_webhook_deliveries(per_page=100), "list deliveries"
        )
        received = {one.guid for one in answer.parsed_data if 200 <= one.status_code < 300}
        failed = {one.guid: one.id for one in answer.parsed_data if one.guid not in received}
        return [FailedDelivery(identifier, guid) for guid, identifier in reversed(failed.items())]

    async def redeliver(self, delivery_id: int) -> None:
        await ask(self._github.rest.apps.async_redeliver_webhook_delivery(delivery_id), "redeliver")

    async def close(self) -> None:
        await self._transport.close_pool()
