"""Deliveries on their way: kept before they are acknowledged, processed a few at a time, again after a failure.

Deliveries that come together are written together: a disk syncs a few hundred times a second, and each of them waits
for one sync.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence

from sqlalchemy.exc import OperationalError, SQLAlchemyError

from app.deliveries import NotYetError
from app.github import GitHubError, LimitedError, UnreachableError
from app.logs import log_fields
from app.store import MAX_DELIVERY_TRIES, MAX_PATIENT_TRIES, FinishedDelivery, NewDelivery, Store

log = logging.getLogger(__name__)

WORKERS = 4
DUE_EVERY_S = 2.0
WRITTEN_TOGETHER = 200

Waiting = tuple[NewDelivery, asyncio.Future[bool]]  # and whether it turned out to be new
Process = Callable[[str, str], Awaitable[str]]  # (event, body) -> a note of what came of it


class Inbox:
    """Keeps deliveries and has them processed."""

    def __init__(self, store: Store, process: Process):
        self._store, self._process_event = store, process
        self._unwritten: asyncio.Queue[Waiting | FinishedDelivery] = asyncio.Queue()
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._taken: set[str] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False

    async def start(self) -> None:
        """Begin with what an earlier process left."""
        await self._submit_due()
        self._tasks = [asyncio.create_task(self._work()) for _ in range(WORKERS)]
        self._tasks += [asyncio.create_task(self._look_for_due()), asyncio.create_task(self._write())]

    async def stop(self, grace_s: float = 0.0) -> None:
        """Take nothing more, give what is being processed `grace_s` seconds, and write down what came of it.

        What is left stays as received, and an inbox that starts later begins with it.
        """
        self._stopping = True
        workers, others = self._tasks[:WORKERS], self._tasks[WORKERS:]
        for _ in workers:
            self._queue.put_nowait("")  # wakes those that wait
        if workers and grace_s > 0:
            await asyncio.wait(workers, timeout=grace_s)
        for task in workers:
            task.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self._unwritten.join()
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def accept(self, delivery: NewDelivery) -> bool:
        """Keep a delivery and have it processed; False when it's known. Raises SQLAlchemyError when it can't be kept."""
        kept: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._unwritten.put_nowait((delivery, kept))
        fresh = await kept
        if fresh:
            self._submit(delivery.guid)
        return fresh

    async def _write(self) -> None:
        while True:
            waiting = [await self._unwritten.get()]
            while not self._unwritten.empty() and len(waiting) < WRITTEN_TOGETHER:
                waiting.append(self._unwritten.get_nowait())
            await self._write_together(waiting)
            for _ in waiting:
                self._unwritten.task_done()

    async def _write_together(self, waiting: Sequence[Waiting | FinishedDelivery]) -> None:
        new = [one for one in waiting if isinstance(one, tuple)]
        finished = [one for one in waiting if isinstance(one, FinishedDelivery)]
        try:
            fresh = await asyncio.to_thread(
                self._store.write_deliveries, [delivery for delivery, _ in new], finished
            )
        except SQLAlchemyError as error:
            log.exception("%s deliveries can't be kept", len(new))
            for _, kept in new:
                if not kept.cancelled():
                    kept.set_exception(error)
            return
        for delivery, kept in new:
            if not kept.cancelled():
                # the second of two in one batch is as known as one that came before
                kept.set_result(delivery.guid in fresh)
                fresh.discard(delivery.guid)

    def _submit(self, guid: str) -> None:
        if guid not in self._taken:
            self._taken.add(guid)
            self._queue.put_nowait(guid)

    async def _submit_due(self) -> None:
        for guid in await asyncio.to_thread(self._store.waiting_deliveries):
            self._submit(guid)

    async def _look_for_due(self) -> None:
        while True:
            await asyncio.sleep(DUE_EVERY_S)
            try:
                await self._submit_due()
            except SQLAlchemyError:
                log.exception("can't look for waiting deliveries; trying again")

    async def _work(self) -> None:
        while True:
            guid = await self._queue.get()
            if self._stopping:
                return
            try:
                with log_fields(delivery=guid):
                    await self._process(guid)
            except SQLAlchemyError:
                log.exception("delivery %s: can't record what came of it; it is processed again", guid)
            finally:
                self._taken.discard(guid)

    async def _process(self, guid: str) -> None:
        delivery = await asyncio.to_thread(self._store.delivery, guid)
        if delivery is None or delivery.state != "received":
            return
        try:
            note = await self._process_event(delivery.event, delivery.body)
        except (UnreachableError, LimitedError, NotYetError) as error:
            tries = MAX_DELIVERY_TRIES if isinstance(error, NotYetError) else MAX_PATIENT_TRIES
            again = await asyncio.to_thread(self._store.postpone_delivery, guid, str(error), tries)
            log.warning("delivery %s: %s; %s", guid, error, "tried again later" if again else "given up")
        except OperationalError as error:
            log.warning("delivery %s: the database is away: %s; it is processed again", guid, error.orig)
        except GitHubError as error:
            log.warning("delivery %s is given up: %s", guid, error)
            self._unwritten.put_nowait(FinishedDelivery(guid, "failed", str(error)))
        except Exception as error:
            log.exception("delivery %s (%s) failed", guid, delivery.event)
            await asyncio.to_thread(self._store.postpone_delivery, guid, type(error).__name__)
        else:
            self._unwritten.put_nowait(FinishedDelivery(guid, "done", note))
