"""GitHub, as much of it as the bot uses: the only importer of githubkit.

    GitHubError                what GitHub said, with its message, redacted
    ├── NotFoundError          404
    ├── ForbiddenError         401, 403
    ├── RejectedError          422 and other 4xx: our request was wrong
    ├── LimitedError           a rate limit; `retry_after_s` says for how long
    └── UnreachableError       no answer, or 5xx

Reading is tried three times. A POST is sent once: whoever calls makes sure, by marker, head or external id, that a
second call finds what the first one made.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx
from githubkit import AppAuthStrategy, GitHub
from githubkit.cache import MemCacheStrategy
from githubkit.exception import (
    GitHubException,
    GraphQLFailed,
    RateLimitExceeded,
    RequestError,
    RequestFailed,
)
from githubkit.retry import RetryOption

from app.settings import LOOPBACK_HOSTS

T = TypeVar("T")

TIMEOUT_S = 30.0
MAX_FILE_BYTES = 1_000_000
ANNOTATIONS_A_REQUEST = 50
REACTIONS_A_QUERY = 100
_REACTIONS_QUERY = (
    "query($ids: [ID!]!) { nodes(ids: $ids) { ... on IssueComment { id reactions(first: 100) { nodes { content } } } } }"
)
_SECRETS = re.compile(r"(gh[a-z]_|github_pat_|eyJ)[A-Za-z0-9_.\-]+|(?i:(?:bearer|basic|token)\s+)[A-Za-z0-9+/=_.\-]{16,}")


def redact(text: str) -> str:
    """Text without tokens and authorization headers."""
    return _SECRETS.sub("[redacted]", text)


class GitHubError(Exception):
    """GitHub didn't do what we asked."""

    def __init__(self, message: str, status: int = 0, retry_after_s: float | None = None):
        super().__init__(redact(message))
        self.status, self.retry_after_s = status, retry_after_s


class NotFoundError(GitHubError):
    """There is no such thing, or the App can't see it."""


class ForbiddenError(GitHubError):
    """The App may not do that, or its credentials are not accepted."""


class RejectedError(GitHubError):
    """The request was understood and refused."""


class LimitedError(GitHubError):
    """A rate limit."""


class UnreachableError(GitHubError):
    """No answer, or a fault on GitHub's side."""


@dataclass(frozen=True)
class AppIdentity:
    """The App, as GitHub knows it."""

    app_id: int
    slug: str

    @property
    def login(self) -> str:
        return f"{self.slug}[bot]"


@dataclass(frozen=True)
class FailedDelivery:
    """A webhook delivery that we didn't get. `guid` stays the same when it is sent again."""

    id: int
    guid: str


@dataclass(frozen=True)
class Branch:
    name: str
    sha: str


@dataclass(frozen=True)
class Comment:
    id: int
    node_id: str
    body: str
    login: str
    created_at: datetime
    updated_at: datetime
    url: str


@dataclass(frozen=True)
class Reaction:
    id: int
    content: str
    login: str
    user_type: str
    created_at: datetime


@dataclass(frozen=True)
class Pull:
    number: int
    url: str
    state: str
    merged: bool
    draft: bool
    head_sha: str
    node_id: str


@dataclass(frozen=True)
class Annotation:
    """A remark on lines of a file, shown in the pull request's diff."""

    path: str
    line: int
    message: str
    level: str  # notice, warning, failure
    title: str = ""


@dataclass(frozen=True)
class Check:
    """What a check run says. `conclusion` None: it is still running."""

    name: str
    external_id: str
    title: str
    summary: str
    text: str = ""
    conclusion: str | None = None
    details_url: str = ""
    annotations: Sequence[Annotation] = ()


def _retry(error: GitHubException, count: int) -> RetryOption:
    """Try a read again after a fault on GitHub's side; never a write, and never sleep through a rate limit here."""
    if isinstance(error, RequestFailed) and not isinstance(error, RateLimitExceeded):
        safe = error.request.method in {"GET", "HEAD"}
        if safe and count < 2 and error.response.status_code >= 500:
            return RetryOption(True, timedelta(seconds=0.5 * 4**count))
    return RetryOption(False)


class _SharedTransport(httpx.AsyncBaseTransport):
    """One connection pool for all of githubkit's short-lived clients, sending the API version we are told to."""

    def __init__(self, api_version: str, base_url: str):
        self._inner = httpx.AsyncHTTPTransport(retries=1, proxy=_proxy_for(base_url))
        self._api_version = api_version

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self._api_version:
            request.headers["X-GitHub-Api-Version"] = self._api_version
        elif "X-GitHub-Api-Version" in request.headers:
            del request.headers["X-GitHub-Api-Version"]
        return await self._inner.handle_async_request(request)

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


async def _ask(call: Awaitable[T], what: str) -> T:
    try:
        return await call
    except RateLimitExceeded as error:
        raise LimitedError(
            f"{what}: rate limit", error.response.status_code, max(1.0, error.retry_after.total_seconds())
        ) from None
    except RequestFailed as error:
        raise _failed(error, what) from None
    except GraphQLFailed as error:
        raise RejectedError(f"{what}: {'; '.join(str(one.message) for one in error.response.errors or [])}") from None
    except (RequestError, httpx.HTTPError) as error:
        cause = getattr(error, "exc", error)
        raise UnreachableError(f"{what}: {type(cause).__name__}: {cause}") from None
    except GitHubException as error:
        raise GitHubError(f"{what}: {type(error).__name__}: {error}") from None


def _failed(error: RequestFailed, what: str) -> GitHubError:
    status = error.response.status_code
    text = error.response.text
    with suppress(ValueError, AttributeError):
        body = error.response.json()
        details = "; ".join(str(one.get("message", one) if isinstance(one, dict) else one) for one in body.get("errors") or [])
        text = f"{body.get('message', '')} {details}".strip()
    message = f"{what}: GitHub answered {status}: {text[:500]}"
    if status in {403, 429} and "secondary rate limit" in text.lower():
        return LimitedError(message, status, 60.0)
    kinds = {401: ForbiddenError, 403: ForbiddenError, 404: NotFoundError, 410: NotFoundError}
    return kinds.get(status, UnreachableError if status >= 500 else RejectedError)(message, status)


class GitHubApp:
    """The App: its identity, and its installations' repositories."""

    def __init__(self, app_id: int, private_key: str, base_url: str, api_version: str = "2026-03-10"):
        self._transport = _SharedTransport(api_version, base_url)
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
            auto_retry=_retry,
        )
        self.app_id = app_id
        self._identity: AppIdentity | None = None

    async def identity(self) -> AppIdentity:
        """The App's slug; asked once."""
        if self._identity is None:
            app = (await _ask(self._github.rest.apps.async_get_authenticated(), "read the App")).parsed_data
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
        answer = await _ask(self._github.rest.apps.async_list_webhook_deliveries(per_page=100), "list deliveries")
        received = {one.guid for one in answer.parsed_data if 200 <= one.status_code < 300}
        failed = {one.guid: one.id for one in answer.parsed_data if one.guid not in received}
        return [FailedDelivery(identifier, guid) for guid, identifier in reversed(failed.items())]

    async def redeliver(self, delivery_id: int) -> None:
        await _ask(self._github.rest.apps.async_redeliver_webhook_delivery(delivery_id), "redeliver")

    async def close(self) -> None:
        await self._transport.close_pool()


class GitHubRepository:
    """One repository, with the rights of the App's installation."""

    def __init__(self, github: GitHub[Any], app: GitHub[Any], installation_id: int, owner: str, name: str):
        self._github, self._app, self._installation_id = github, app, installation_id
        self.owner, self.name = owner, name
        self._rest = github.rest

    @property
    def full_name(self) -> str:
        return f"{self.owner}/{self.name}"

    # people

    async def permission(self, login: str) -> str:
        """admin, write, read or none: what GitHub grants that person now. Apps and unknown names have none."""
        try:
            answer = await _ask(
                self._rest.repos.async_get_collaborator_permission_level(self.owner, self.name, login),
                f"read @{login}'s permission",
            )
        except NotFoundError:
            return "none"
        return answer.parsed_data.permission

    # comments

    async def comment(self, comment_id: int) -> Comment:
        answer = await _ask(self._rest.issues.async_get_comment(self.owner, self.name, comment_id), "read a comment")
        return _comment(answer.parsed_data)

    async def create_comment(self, issue: int, body: str) -> Comment:
        answer = await _ask(
            self._rest.issues.async_create_comment(self.owner, self.name, issue, body=body), f"comment on #{issue}"
        )
        return _comment(answer.parsed_data)

    async def update_comment(self, comment_id: int, body: str) -> Comment:
        answer = await _ask(
            self._rest.issues.async_update_comment(self.owner, self.name, comment_id, body=body), "edit a comment"
        )
        return _comment(answer.parsed_data)

    async def find_comment(self, issue: int, marker: str, since: datetime | None = None) -> Comment | None:
        """Our first comment on an issue that holds a hidden marker."""
        page = 1
        while True:
            answer = await _ask(
                self._rest.issues.async_list_comments(
                    self.owner, self.name, issue, per_page=100, page=page, **({"since": since} if since else {})
                ),
                f"list comments of #{issue}",
            )
            for raw in answer.parsed_data:
                if marker in (raw.body or "") and raw.user and raw.user.type == "Bot":
                    return _comment(raw)
            if len(answer.parsed_data) < 100:
                return None
            page += 1

    # reactions

    async def react(self, comment_id: int, content: str) -> None:
        """React to a comment; reacting twice is once."""
        await _ask(
            self._rest.reactions.async_create_for_issue_comment(self.owner, self.name, comment_id, content=content),  # type: ignore[arg-type]
            "react",
        )

    async def reactions(self, comment_id: int) -> list[Reaction]:
        """Every reaction on a comment."""
        found: list[Reaction] = []
        page = 1
        while True:
            answer = await _ask(
                self._rest.reactions.async_list_for_issue_comment(
                    self.owner, self.name, comment_id, per_page=100, page=page
                ),
                "read reactions",
            )
            found += [
                Reaction(one.id, one.content, one.user.login, one.user.type, one.created_at)
                for one in answer.parsed_data
                if one.user
            ]
            if len(answer.parsed_data) < 100:
                return found
            page += 1

    async def reacted(self, node_ids: Sequence[str]) -> set[str]:
        """Which of those comments carry a 👍 or 👎: one question for a hundred comments, cheap enough to ask often."""
        found: set[str] = set()
        for start in range(0, len(node_ids), REACTIONS_A_QUERY):
            ids = list(node_ids[start : start + REACTIONS_A_QUERY])
            data = await _ask(self._github.graphql.arequest(_REACTIONS_QUERY, {"ids": ids}), "read reactions")
            for node in data.get("nodes") or []:
                contents = {one["content"] for one in ((node or {}).get("reactions") or {}).get("nodes") or []}
                if contents & {"THUMBS_UP", "THUMBS_DOWN"}:
                    found.add(node["id"])
        return found

    # files and branches

    async def default_branch(self) -> Branch:
        """The default branch and the commit it stands at."""
        repository = await _ask(self._rest.repos.async_get(self.owner, self.name), f"read {self.full_name}")
        return await self.branch(repository.parsed_data.default_branch)

    async def branch(self, name: str) -> Branch:
        answer = await _ask(self._rest.repos.async_get_branch(self.owner, self.name, name), f"read branch {name}")
        return Branch(name, answer.parsed_data.commit.sha)

    async def read_file(self, path: str, ref: str) -> str:
        """Text of a file at a branch, tag or commit. Raises NotFoundError, or RejectedError when it isn't a text file."""
        answer = await _ask(
            self._github.arequest(
                "GET", f"repos/{self.owner}/{self.name}/contents/{quote(path)}", params={"ref": ref}
            ),
            f"read {path}",
        )
        body = answer.json()
        if not isinstance(body, dict) or body.get("type") != "file" or body.get("size", 0) > MAX_FILE_BYTES:
            raise RejectedError(f"{path} is not a file of at most {MAX_FILE_BYTES:,} bytes")
        try:
            return base64.b64decode(body.get("content") or "").decode("utf-8")
        except ValueError:
            raise RejectedError(f"{path} is not a text file") from None

    async def read_public_file(self, full_name: str, path: str, ref: str) -> tuple[str, str]:
        """(text, commit) of a file in any repository that the App can read."""
        url = f"repos/{full_name}/commits/{quote(ref, safe='')}"
        commit = (await _ask(self._github.arequest("GET", url), f"read {full_name} at {ref}")).json()["sha"]
        owner, name = full_name.split("/", 1)
        other = GitHubRepository(self._github, self._app, self._installation_id, owner, name)
        return await other.read_file(path, commit), commit

    async def token(self, **permissions: str) -> str:
        """A token for this repository with those permissions alone; it lasts an hour. Never log it."""
        answer = await _ask(
            self._app.rest.apps.async_create_installation_access_token(
                self._installation_id,
                data={"repositories": [self.name], "permissions": permissions},  # type: ignore[typeddict-item]
            ),
            "mint a token",
        )
        return answer.parsed_data.token

    # pull requests

    async def pull(self, number: int) -> Pull:
        answer = await _ask(self._rest.pulls.async_get(self.owner, self.name, number), f"read pull request #{number}")
        return _pull(answer.parsed_data)

    async def find_pull(self, branch: str) -> Pull | None:
        """The newest pull request from that branch of this repository."""
        answer = await _ask(
            self._rest.pulls.async_list(self.owner, self.name, head=f"{self.owner}:{branch}", state="all"),
            f"look for a pull request from {branch}",
        )
        return _pull(answer.parsed_data[0]) if answer.parsed_data else None

    async def create_draft_pull(self, branch: str, base: str, title: str, body: str) -> Pull:
        """The draft pull request from a branch: the one that is there, or a new one."""
        known = await self.find_pull(branch)
        if known is not None:
            return known
        answer = await _ask(
            self._rest.pulls.async_create(
                self.owner, self.name, head=branch, base=base, title=title, body=body, draft=True
            ),
            "open a pull request",
        )
        return _pull(answer.parsed_data)

    async def close_pull(self, number: int) -> None:
        await _ask(self._rest.pulls.async_update(self.owner, self.name, number, state="closed"), f"close #{number}")

    async def add_labels(self, number: int, labels: list[str]) -> None:
        await _ask(self._rest.issues.async_add_labels(self.owner, self.name, number, labels=labels), f"label #{number}")

    # checks

    async def put_check(self, head_sha: str, check: Check, known_id: int | None = None) -> int:
        """Create or update the check run with that external id on a commit; returns GitHub's id for it."""
        check_id = known_id or await self._find_check(head_sha, check)
        annotations = list(check.annotations)
        first, rest = annotations[:ANNOTATIONS_A_REQUEST], annotations[ANNOTATIONS_A_REQUEST:]
        body = _check_body(check, first)
        if check_id is None:
            answer = await _ask(
                self._github.arequest(
                    "POST",
                    f"repos/{self.owner}/{self.name}/check-runs",
                    json={**body, "head_sha": head_sha, "external_id": check.external_id},
                ),
                f"create check {check.name}",
            )
            check_id = int(answer.json()["id"])
        else:
            await self._patch_check(check_id, body, check.name)
        while rest:
            first, rest = rest[:ANNOTATIONS_A_REQUEST], rest[ANNOTATIONS_A_REQUEST:]
            await self._patch_check(check_id, _check_body(check, first), check.name)
        return check_id

    async def _patch_check(self, check_id: int, body: dict[str, Any], name: str) -> None:
        await _ask(
            self._github.arequest("PATCH", f"repos/{self.owner}/{self.name}/check-runs/{check_id}", json=body),
            f"update check {name}",
        )

    async def _find_check(self, head_sha: str, check: Check) -> int | None:
        answer = await _ask(
            self._github.arequest(
                "GET",
                f"repos/{self.owner}/{self.name}/commits/{head_sha}/check-runs",
                params={"check_name": check.name, "filter": "all", "per_page": 100},
            ),
            f"look for check {check.name}",
        )
        return next((int(run["id"]) for run in answer.json()["check_runs"] if run.get("external_id") == check.external_id), None)


def _check_body(check: Check, annotations: Sequence[Annotation]) -> dict[str, Any]:
    output: dict[str, Any] = {"title": check.title[:255] or check.name, "summary": check.summary, "text": check.text or None}
    if annotations:
        output["annotations"] = [
            {
                "path": one.path,
                "start_line": max(1, one.line),
                "end_line": max(1, one.line),
                "annotation_level": one.level,
                "message": one.message[:60_000],
                **({"title": one.title[:255]} if one.title else {}),
            }
            for one in annotations
        ]
    body: dict[str, Any] = {"name": check.name, "output": {key: value for key, value in output.items() if value is not None}}
    if check.details_url:
        body["details_url"] = check.details_url
    if check.conclusion:
        body |= {"status": "completed", "conclusion": check.conclusion}
    else:
        body["status"] = "in_progress"
    return body


def _comment(raw: Any) -> Comment:
    login = raw.user.login if raw.user else "ghost"
    return Comment(raw.id, raw.node_id, raw.body or "", login, raw.created_at, raw.updated_at, raw.html_url)


def _pull(raw: Any) -> Pull:
    return Pull(
        raw.number, raw.html_url, raw.state, bool(raw.merged_at), bool(raw.draft), raw.head.sha, raw.node_id
    )

