"""Acknowledged deliveries on their way to being processed: in order, a few at a time, again after a failure."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from app.github import GitHubError, LimitedError, UnreachableError
from app.store import Store

log = logging.getLogger(__name__)

WORKERS = 4
DUE_EVERY_S = 2.0

Process = Callable[[str, str], Awaitable[str]]  # (event, body) -> a note of what came of it


class Inbox:
    """Takes deliveries that the store holds and has them processed."""

    def __init__(self, store: Store, process: Process):
        self._store, self._process_event = store, process
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._taken: set[str] = set()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Begin with what an earlier process left."""
        self._submit_due()
        self._tasks = [asyncio.create_task(self._work()) for _ in range(WORKERS)]
        self._tasks.append(asyncio.create_task(self._look_for_due()))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def submit(self, guid: str) -> None:
        """Process a delivery soon."""
        if guid not in self._taken:
            self._taken.add(guid)
            self._queue.put_nowait(guid)

    def _submit_due(self) -> None:
        for guid in self._store.waiting_deliveries():
            self.submit(guid)

    async def _look_for_due(self) -> None:
        while True:
            await asyncio.sleep(DUE_EVERY_S)
            try:
                self._submit_due()
            except Exception:
                log.exception("can't look for waiting deliveries; trying again")

    async def _work(self) -> None:
        while True:
            guid = await self._queue.get()
            try:
                await self._process(guid)
            except Exception:
                log.exception("delivery %s: can't record what came of it", guid)
            finally:
                self._taken.discard(guid)

    async def _process(self, guid: str) -> None:
        delivery = await asyncio.to_thread(self._store.delivery, guid)
        if delivery is None or delivery.state != "received":
            return
        try:
            note = await self._process_event(delivery.event, delivery.body)
        except (UnreachableError, LimitedError) as error:
            again = await asyncio.to_thread(self._store.postpone_delivery, guid, str(error))
            log.warning("delivery %s: %s; %s", guid, error, "tried again later" if again else "given up")
        except GitHubError as error:
            log.warning("delivery %s is given up: %s", guid, error)
            await asyncio.to_thread(self._store.finish_delivery, guid, "failed", str(error))
        except Exception as error:
            log.exception("delivery %s (%s) failed", guid, delivery.event)
            await asyncio.to_thread(self._store.postpone_delivery, guid, type(error).__name__)
        else:
            await asyncio.to_thread(self._store.finish_delivery, guid, "done", note)
