"""What every route is given: a transaction as the caller, and pages of lists."""

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Query, Request
from fastapi.responses import JSONResponse
from sqlalchemy.orm import Session

from app.localhub.actor import Actor, authenticate
from app.localhub.errors import ApiError
from app.localhub.rate_limits import RateLimits
from app.localhub.transaction import Context, Transaction, transaction

Item = TypeVar("Item")
DEFAULT_API_VERSION = "2022-11-28"


def context_of(request: Request) -> Context:
    """The running hub."""
    context: Context = request.app.state.context
    return context


def caller_of(request: Request) -> Callable[[Session], Actor]:
    """What finds and counts the caller of a request inside its transaction."""

    def find(session: Session) -> Actor:
        actor = authenticate(session, request.headers.get("authorization"))
        limits: RateLimits = request.app.state.rate_limits
        # The API surface reads this: rate limits and ETags differ by caller.
        caller = request.scope.get("hub.caller", {})
        caller.update(rate_key=actor.rate_key, kind=actor.kind, credential=actor.credential)
        if "hub.exhaust" in request.scope:
            limits.exhaust(actor.rate_key, actor.kind, request.scope["hub.exhaust"])
        free = request.url.path == "/rate_limit"
        if not free and not limits.take(actor.rate_key, actor.kind):
            raise ApiError(403, f"API rate limit exceeded for {actor.rate_key.replace('-', ' ID ')}.")
        return actor

    return find


def _version(request: Request) -> str:
    return request.headers.get("x-github-api-version") or DEFAULT_API_VERSION


def _read(request: Request) -> Iterator[Transaction]:
    with transaction(
        context_of(request), write=False, actor=caller_of(request), api_version=_version(request)
    ) as tx:
        yield tx


def _write(request: Request) -> Iterator[Transaction]:
    with transaction(
        context_of(request), write=True, actor=caller_of(request), api_version=_version(request)
    ) as tx:
        yield tx


# scope="function": the transaction commits before the reply goes out.
Read = Annotated[Transaction, Depends(_read, scope="function")]
Write = Annotated[Transaction, Depends(_write, scope="function")]


class Page:
    """One page of a list, with GitHub's limits."""

    def __init__(
        self,
        request: Request,
        per_page: Annotated[int, Query()] = 30,
        page: Annotated[int, Query()] = 1,
    ) -> None:
        self.per_page = min(max(per_page, 1), 100)
        self.page = max(page, 1)
        self._request = request

    def of(
        self, items: Sequence[Item], render: Callable[[Item], Any], key: str | None = None
    ) -> JSONResponse:
        """This page of `items`, with a Link header; `key` wraps it as `{total_count, key: [...]}`."""
        start = (self.page - 1) * self.per_page
        shown: Any = [render(item) for item in items[start : start + self.per_page]]
        body = shown if key is None else {"total_count": len(items), key: shown}
        link = self._link(len(items))
        return JSONResponse(body, headers={"Link": link} if link else None)

    def _link(self, total: int) -> str:
        last = max(1, -(-total // self.per_page))
        targets = []
        if self.page > 1:
            targets += [("prev", min(self.page - 1, last)), ("first", 1)]
        if self.page < last:
            targets += [("next", self.page + 1), ("last", last)]
        base = context_of(self._request).links.api(self._request.url.path)
        url = self._request.url
        return ", ".join(
            f'<{base}?{url.include_query_params(per_page=self.per_page, page=number).query}>; rel="{name}"'
            for name, number in targets
        )


Paged = Annotated[Page, Depends(Page)]
