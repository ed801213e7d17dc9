"""People who look at our pages: signing in through the App's OAuth flow, and what their own token lets them read.

A token is held by the browser that it belongs to, sealed; here it only passes through. Nothing raised or logged holds one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

import httpx

from app.github.errors import ForbiddenError, GitHubError, RejectedError, UnreachableError
from app.github.transport import SharedTransport

TIMEOUT_S = 10.0


class Visitors:
    """The App as an OAuth client. api_url: base of the REST API; web_url: base of the web pages."""

    def __init__(self, client_id: str, client_secret: str, api_url: str, web_url: str, api_version: str):
        self._client_id, self._client_secret = client_id, client_secret
        self._api_url, self._web_url = api_url.rstrip("/"), web_url.rstrip("/")
        self._transports = SharedTransport(api_version, api_url), SharedTransport("", web_url)
        self._api = httpx.AsyncClient(transport=self._transports[0], timeout=TIMEOUT_S)
        self._web = httpx.AsyncClient(transport=self._transports[1], timeout=TIMEOUT_S)

    def authorize_url(self, state: str, challenge: str, redirect_uri: str) -> str:
        """Where a person agrees. challenge: of PKCE, by SHA-256."""
        asked = {
            "client_id": self._client_id,
            "redirect_uri": redirect_uri,
            "state": state,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        return f"{self._web_url}/login/oauth/authorize?{urlencode(asked)}"

    async def exchange(self, code: str, verifier: str, redirect_uri: str) -> str:
        """The token for a code that a browser brought back. Raises GitHubError; RejectedError when the code isn't taken."""
        given = {
            "client_id": self._client_id,
            "client_secret": self._client_secret,
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": verifier,
        }
        url = f"{self._web_url}/login/oauth/access_token"
        answer = await self._send(self._web, "POST", url, {"Accept": "application/json"}, data=given)
        said = _json(answer)
        token = said.get("access_token")
        if answer.status_code >= 400 or not isinstance(token, str) or not token:
            raise RejectedError(f"sign in: GitHub answered {said.get('error', answer.status_code)}")
        return token

    async def login(self, token: str) -> str:
        """Whose token it is. Raises ForbiddenError when it isn't valid any more."""
        answer = await self._get("user", token)
        if answer.status_code != httpx.codes.OK:
            raise ForbiddenError(f"read the user: GitHub answered {answer.status_code}", answer.status_code)
        return str(_json(answer).get("login", ""))

    async def can_read(self, token: str, full_name: str) -> bool:
        """Whether that person can read a repository. Raises ForbiddenError when the token isn't valid any more."""
        owner, _, name = full_name.partition("/")
        answer = await self._get(f"repos/{quote(owner, safe='')}/{quote(name, safe='')}", token)
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            raise ForbiddenError("read a repository: the token is not valid", 401)
        return answer.status_code == httpx.codes.OK

    async def revoke(self, token: str) -> None:
        """End a token, so that a copy of it is worth nothing."""
        url = f"{self._api_url}/applications/{quote(self._client_id, safe='')}/token"
        auth = httpx.BasicAuth(self._client_id, self._client_secret)
        answer = await self._send(self._api, "DELETE", url, {}, json={"access_token": token}, auth=auth)
        if answer.status_code not in {httpx.codes.NO_CONTENT, httpx.codes.NOT_FOUND, 422}:
            raise GitHubError(f"sign out: GitHub answered {answer.status_code}", answer.status_code)

    async def close(self) -> None:
        for client in (self._api, self._web):
            await client.aclose()
        for transport in self._transports:
            await transport.close_pool()

    async def _get(self, path: str, token: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/vnd.github+json"}
        answer = await self._send(self._api, "GET", f"{self._api_url}/{path}", headers)
        if answer.status_code >= 500 or answer.status_code == 429 or _limited(answer):
            raise UnreachableError(f"read as a visitor: GitHub answered {answer.status_code}")
        return answer

    @staticmethod
    async def _send(
        client: httpx.AsyncClient, method: str, url: str, headers: Mapping[str, str], **content: Any
    ) -> httpx.Response:
        try:
            return await client.request(
                method, url, headers={"User-Agent": "liger-bot", **headers}, follow_redirects=False, **content
            )
        except httpx.HTTPError as error:
            raise UnreachableError(f"sign in: {type(error).__name__}: GitHub can't be reached") from None


def _limited(answer: httpx.Response) -> bool:
    return answer.status_code == 403 and answer.headers.get("x-ratelimit-remaining") == "0"


def _json(answer: httpx.Response) -> dict[str, Any]:
    try:
        said = answer.json()
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}
