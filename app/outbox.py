"""Makes a thing on GitHub once, though several processes, or one that died and came again, may want to make it.

Whoever makes it claims it first, then looks whether it is there, and only then makes it: comments are found by their
marker, check runs by their external id, pull requests by their branch.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from app.github import UnreachableError
from app.store import Store

WAIT_S = 15.0
_AGAIN_S = 0.2


class Outbox:
    """What this process is making."""

    def __init__(self, store: Store, executor_id: str):
        self._store, self._executor_id = store, executor_id
        self._here: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def making(self, key: str) -> AsyncIterator[None]:
        """Nobody else makes that thing meanwhile. Raises UnreachableError when another process has been at it for WAIT_S."""
        lock = self._here.setdefault(key, asyncio.Lock())
        async with lock:
            end = time.monotonic() + WAIT_S
            while not await asyncio.to_thread(self._store.claim_write, key, self._executor_id):
                if time.monotonic() > end:
                    raise UnreachableError(f"{key} is being made by another process")
                await asyncio.sleep(_AGAIN_S)
            try:
                yield
            finally:
                self._store.drop_write(key, self._executor_id)
