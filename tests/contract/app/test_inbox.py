"""Stopping: what is being processed ends and is written down; what waits is there for the next start."""

from __future__ import annotations

import asyncio
from pathlib import Path

from app.inbox import WORKERS, Inbox
from app.store import NewDelivery, Store


async def test_a_stop_finishes_what_runs_and_leaves_the_rest(tmp_path: Path):
    store = Store.open(f"sqlite:///{tmp_path}/test.sqlite")
    running, gate, all_done = asyncio.Semaphore(0), asyncio.Event(), asyncio.Event()
    processed: list[str] = []

    async def process(event: str, body: str) -> str:
        running.release()
        await gate.wait()
        processed.append(body)
        if len(processed) == 3 * WORKERS:
            all_done.set()
        return "done"

    inbox = Inbox(store, process)
    await inbox.start()
    for number in range(3 * WORKERS):
        assert await inbox.accept(NewDelivery(f"guid-{number}", "issues", str(number)))
    for _ in range(WORKERS):
        await running.acquire()
    stopping = asyncio.create_task(inbox.stop(grace_s=5))
    await asyncio.sleep(0)
    gate.set()
    await stopping

    states = [store.delivery(f"guid-{number}").state for number in range(3 * WORKERS)]  # type: ignore[union-attr]
    assert len(processed) == WORKERS
    assert states.count("done") == WORKERS
    assert states.count("received") == 2 * WORKERS

    following = Inbox(store, process)
    await following.start()
    await all_done.wait()
    await following.stop(grace_s=5)
    assert sorted(processed, key=int) == [str(number) for number in range(3 * WORKERS)]
    store.close()


async def test_a_stop_waits_no_longer_than_it_is_told(tmp_path: Path):
    store = Store.open(f"sqlite:///{tmp_path}/test.sqlite")
    begun = asyncio.Event()

    async def process(event: str, body: str) -> str:
        begun.set()
        await asyncio.sleep(60)
        return "never"

    inbox = Inbox(store, process)
    await inbox.start()
    await inbox.accept(NewDelivery("guid", "issues", "{}"))
    await begun.wait()
    async with asyncio.timeout(5):
        await inbox.stop(grace_s=0.1)
    assert store.delivery("guid").state == "received"  # type: ignore[union-attr]
    store.close()
