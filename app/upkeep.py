"""What the service does on the side: what never reached it is looked for, what is old is thrown away."""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

from app.github import GitHubError
from app.missed import Accept, Missed
from app.ports import Ports

log = logging.getLogger(__name__)

KEEP_CHECKOUTS_DAYS = 7.0
KEEP_EXECUTORS_S = 86_400.0
UPKEEP_S = 3_600.0


async def reconcile_forever(ports: Ports, accept: Accept) -> None:
    """Look for what was missed: now, and every `reconcile_minutes`."""
    missed = Missed(ports, accept)
    while True:
        for what, look in (
            ("deliveries", missed.ask_for_deliveries),
            ("comments", missed.sweep_comments),
            ("pull requests", missed.sweep_pulls),
        ):
            try:
                await look()
            except GitHubError as error:
                log.warning("missed %s can't be looked for: %s", what, error)
            except Exception:
                log.exception("missed %s can't be looked for", what)
        await asyncio.sleep(60.0 * ports.settings.reconcile_minutes)


async def upkeep_forever(ports: Ports, forget_workflows: Callable[[timedelta], Awaitable[int]]) -> None:
    """Throw away what is old: now, and every hour."""
    while True:
        try:
            await asyncio.to_thread(throw_away_old, ports)
            await forget_workflows(timedelta(days=ports.settings.keep_days))
        except Exception:
            log.exception("old data can't be thrown away")
        await asyncio.sleep(UPKEEP_S)


def throw_away_old(ports: Ports) -> None:
    """Forget deliveries and reports that are older than `keep_days`, and checkouts that no one has used for long."""
    days = ports.settings.keep_days
    ports.store.forget_deliveries(days)
    ports.store.forget_reports(days)
    ports.store.forget_silent_executors(KEEP_EXECUTORS_S)
    for checkout in _old_checkouts(ports.settings.data_dir / "checkouts"):
        shutil.rmtree(checkout, ignore_errors=True)


def _old_checkouts(folder: Path) -> list[Path]:
    limit = time.time() - KEEP_CHECKOUTS_DAYS * 86_400
    return [path for path in folder.glob("*/*/*") if path.is_dir() and path.stat().st_mtime < limit]
