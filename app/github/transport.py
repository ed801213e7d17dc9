"""How requests travel: one connection pool, the API version that we are told to send, and reads tried again."""

from __future__ import annotations

from datetime import timedelta
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx
from githubkit.exception import GitHubException, RateLimitExceeded, RequestFailed
from githubkit.retry import RetryOption

from app.github.rate_limits import note_rate_limit
from app.settings import LOOPBACK_HOSTS


def retry_reads(error: GitHubException, count: int) -> RetryOption:
    """Try a read again after a fault on GitHub's side; never a write, and never sleep through a rate limit here."""
    if isinstance(error, RequestFailed) and not isinstance(error, RateLimitExceeded):
        safe = error.request.method in {"GET", "HEAD"}
        if safe and count < 2 and error.response.status_code >= 500:
            return RetryOption(True, timedelta(seconds=0.5 * 4**count))
    return RetryOption(False)


class SharedTransport(httpx.AsyncBaseTransport):
    """One connection pool for all of githubkit's short-lived clients, sending the API version we are told to."""

    def __init__(self, api_version: str, base_url: str):
        self._inner = httpx.AsyncHTTPTransport(retries=1, proxy=_proxy_for(base_url))
        self._api_version = api_version

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self._api_version:
            request.headers["X-GitHub-Api-Version"] = self._api_version
        elif "X-GitHub-Api-Version" in request.headers:
            del request.headers["X-GitHub-Api-Version"]
        response = await self._inner.handle_async_request(request)
        note_rate_limit(response.headers)
        return response

    async def aclose(self) -> None:
        """Called by each client that ends; the pool stays for the next one."""

    async def close_pool(self) -> None:
        await self._inner.aclose()


def _proxy_for(url: str) -> str | None:
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host in LOOPBACK_HOSTS or proxy_bypass(host):
        return None
    return getproxies().get(parts.scheme)
