"""A request's page while it changes: server-sent events, each the whole of what the page shows.

One task looks at the database for all pages that are open, a few times a second and only while there are any: what another
process does is seen as well. An event's id stands for what was shown, so that a browser that connects again is sent nothing
it has already.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterable

from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from sqlalchemy.exc import SQLAlchemyError

from app.store import Store

log = logging.getLogger(__name__)

LOOK_EVERY_S = 0.5
KEEPALIVE_S = 15.0  # proxies close what says nothing for long, and a browser that is gone is noticed by it
RECONNECT_MS = 2000
MAX_STREAMS = 500


class Live:
    """The open streams of this process."""

    def __init__(self, store: Store, *, look_every_s: float = LOOK_EVERY_S, keepalive_s: float = KEEPALIVE_S):
        self._store = store
        self._look_every_s, self._keepalive_s = look_every_s, keepalive_s
        self._watched: dict[str, set[asyncio.Event]] = {}
        self._stamps: dict[str, str] = {}
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def streams(self) -> int:
        return sum(map(len, self._watched.values()))

    @property
    def full(self) -> bool:
        """Whether there are as many streams as this process takes on."""
        return self._closed or self.streams >= MAX_STREAMS

    def close(self) -> None:
        """End every stream; browsers connect again, to whoever answers then. May be called from a signal's handler."""
        self._closed = True
        self._wake(self._watched)

    async def stream(
        self, request_id: str, seen: str, show: Callable[[], tuple[dict[str, str], bool]]
    ) -> AsyncIterator[bytes]:
        """Events until the request is final. seen: the id that the browser had last. show: (parts of the page, final)."""
        changed = asyncio.Event()
        changed.set()
        self._watched.setdefault(request_id, set()).add(changed)
        try:
            yield format_sse_event(retry=RECONNECT_MS)
            while not self._closed:
                self._look()
                try:
                    await asyncio.wait_for(changed.wait(), self._keepalive_s)
                except TimeoutError:
                    yield KEEPALIVE_COMMENT
                    continue
                changed.clear()
                if self._closed:
                    return
                parts, final = await asyncio.to_thread(show)
                identifier = event_id(parts)
                if identifier != seen:
                    seen = identifier
                    yield format_sse_event(event="update", id=identifier, data_str=json.dumps(parts))
                if final:
                    yield format_sse_event(event="end", id=identifier, data_str="{}")
                    return
        finally:
            streams = self._watched[request_id]
            streams.discard(changed)
            if not streams:
                del self._watched[request_id]
                self._stamps.pop(request_id, None)

    def _look(self) -> None:
        """See to it that somebody looks at the database."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look_while_watched())

    async def _look_while_watched(self) -> None:
        while self._watched and not self._closed:
            try:
                stamps = await asyncio.to_thread(self._store.stamps, list(self._watched))
            except SQLAlchemyError:
                log.exception("the pages that are open can't be brought up to date; trying again")
            else:
                self._compare(stamps)
            await asyncio.sleep(self._look_every_s)

    def _compare(self, stamps: dict[str, str]) -> None:
        for request_id in list(self._watched):
            stamp = stamps.get(request_id, "")
            # the first look only says what later ones are compared with; it may already differ from what was shown
            if self._stamps.get(request_id) != stamp:
                self._stamps[request_id] = stamp
                self._wake([request_id])

    def _wake(self, request_ids: Iterable[str]) -> None:
        for request_id in list(request_ids):
            for changed in self._watched.get(request_id, ()):
                changed.set()


def event_id(parts: dict[str, str]) -> str:
    """Stands for what a page shows."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
