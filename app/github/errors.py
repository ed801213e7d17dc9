"""What GitHub answered when it didn't do what we asked."""

from __future__ import annotations

import re
from collections.abc import Awaitable
from contextlib import suppress
from typing import TypeVar

import httpx
from githubkit.exception import GitHubException, GraphQLFailed, RateLimitExceeded, RequestError, RequestFailed

T = TypeVar("T")

_SECRETS = re.compile(
    r"(?<![A-Za-z0-9])(gh[a-z]_|github_pat_|eyJ)[A-Za-z0-9_.\-]+|(?i:(?:bearer|basic|token)\s+)[A-Za-z0-9+/=_.\-]{16,}"
)


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


async def ask(call: Awaitable[T], what: str) -> T:
    """Await a call to GitHub; whatever githubkit or httpx raises becomes a GitHubError that says `what` was tried."""
    try:
        return await call
    except RateLimitExceeded as error:
        raise LimitedError(
            f"{what}: rate limit", error.response.status_code, max(1.0, error.retry_after.total_seconds())
        ) from None
    except RequestFailed as error:
        raise _failed(error, what) from None
    except GraphQLFailed as error:
        raise RejectedError(
            f"{what}: {'; '.join(str(one.message) for one in error.response.errors or [])}"
        ) from None
    except (RequestError, httpx.HTTPError) as error:
        cause = getattr(error, "exc", error)
        if isinstance(cause, RequestFailed):  # minting the token for the request failed
            raise _failed(cause, what) from None
        raise UnreachableError(f"{what}: {type(cause).__name__}: {cause}") from None
    except GitHubException as error:
        raise GitHubError(f"{what}: {type(error).__name__}: {error}") from None


def _failed(error: RequestFailed, what: str) -> GitHubError:
    status = error.response.status_code
    text = error.response.text
    with suppress(ValueError, AttributeError):
        body = error.response.json()
        details = "; ".join(
            str(one.get("message", one) if isinstance(one, dict) else one) for one in body.get("errors") or []
        )
        text = f"{body.get('message', '')} {details}".strip()
    message = f"{what}: GitHub answered {status}: {text[:500]}"
    if status in {403, 429} and "secondary rate limit" in text.lower():
        return LimitedError(message, status, 60.0)
    kinds = {401: ForbiddenError, 403: ForbiddenError, 404: NotFoundError, 410: NotFoundError}
    return kinds.get(status, UnreachableError if status >= 500 else RejectedError)(message, status)
