"""What the service does on the side: deliveries that never reached it are asked for again, what is old is thrown away."""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from pathlib import Path

from app.github import GitHubError
from app.ports import Ports

log = logging.getLogger(__name__)

RECONCILE_S = 15 * 60.0
KEEP_DELIVERIES_DAYS = 30.0
KEEP_CHECKOUTS_DAYS = 7.0


async def upkeep_forever(ports: Ports) -> None:
    """Now, and every quarter of an hour."""
    while True:
        try:
            await ask_for_missed_deliveries(ports)
        except GitHubError as error:
            log.warning("missed deliveries can't be looked for: %s", error)
        except Exception:
            log.exception("missed deliveries can't be looked for")
        try:
            await asyncio.to_thread(throw_away_old, ports)
        except Exception:
            log.exception("old data can't be thrown away")
        await asyncio.sleep(RECONCILE_S)


async def ask_for_missed_deliveries(ports: Ports) -> int:
    """Have GitHub send again what it couldn't hand over, for instance while we were down; returns how many."""
    asked = 0
    for delivery in await ports.github.failed_deliveries():
        if await asyncio.to_thread(ports.store.delivery, delivery.guid) is None:
            await ports.github.redeliver(delivery.id)
            asked += 1
    if asked:
        log.info("asked GitHub to send %s missed deliveries again", asked)
    return asked


def throw_away_old(ports: Ports) -> None:
    """Forget processed deliveries and checkouts that no one has used for long; both can be had again from GitHub."""
    ports.store.forget_deliveries(KEEP_DELIVERIES_DAYS)
    for checkout in _old_checkouts(ports.settings.data_dir / "checkouts"):
        shutil.rmtree(checkout, ignore_errors=True)


def _old_checkouts(folder: Path) -> list[Path]:
    limit = time.time() - KEEP_CHECKOUTS_DAYS * 86_400
    return [path for path in folder.glob("*/*/*") if path.is_dir() and path.stat().st_mtime < limit]
