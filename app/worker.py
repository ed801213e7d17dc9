"""A process that runs stages of requests, beside the service that takes them in; the two share a Postgres."""

from __future__ import annotations

import asyncio
import logging
import signal

from app.confinement import say_confinement
from app.logs import configure_logs
from app.main import open_ports
from app.settings import Settings
from app.usage import UsageMistake
from app.workflows.engine import Engine, ExecutorTakenError, Role

log = logging.getLogger(__name__)


async def work(settings: Settings, name: str = "") -> int:
    """Work until SIGTERM or Ctrl-C; what runs then gets `shutdown_seconds`, and the rest another worker takes up.

    Raises UsageMistake when there is no database to share, or another process has the name.
    """
    if not settings.database_url.get_secret_value().startswith("postgresql"):
        raise UsageMistake(
            "a worker shares a Postgres with the service: set LIGER_BOT_DATABASE_URL (or _FILE); on SQLite `liger-bot serve` does everything"
        )
    configure_logs(settings.log_level, settings.log_format)
    settings = settings.model_copy(update={"executor_id": name or f"{settings.executor_id}-worker"})
    ports = open_ports(settings)
    engine = Engine(ports, Role.worker)
    stopped = asyncio.Event()
    for which in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(which, stopped.set)
    try:
        try:
            await engine.start()
        except ExecutorTakenError as error:
            raise UsageMistake(str(error)) from None
        log.info("worker %s is up: GitHub at %s", settings.executor_id, settings.github_url)
        await say_confinement(settings)
        await stopped.wait()
        await engine.stop(settings.shutdown_seconds)
    finally:
        await ports.github.close()
        ports.store.close()
    log.info("worker %s is down; what is unfinished is taken up by another", settings.executor_id)
    return 0
