"""Whether the process is alive, and whether it can do its work."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from sqlalchemy.exc import SQLAlchemyError

from app.store import Store, now
from app.workflows.engine import SILENT_S

log = logging.getLogger(__name__)

ANSWER_S = 3.0


def health_routes(
    store_now: Callable[[], Store | None], executor_id: str, *, workers_apart: bool = False
) -> APIRouter:
    """GET /healthz: alive. GET /readyz: 200 when the database answers and this process is at work, else 503.

    store_now: the store, None while the service starts or stops. workers_apart: stages are run by other processes, of
    which one at least must be alive.
    """
    routes = APIRouter(include_in_schema=False)

    @routes.get("/healthz")
    async def healthy() -> JSONResponse:
        return JSONResponse({"status": "ok"})

    @routes.get("/readyz")
    async def ready() -> JSONResponse:
        checks = await _checks(store_now(), executor_id, workers_apart)
        fine = all(said == "ok" for said in checks.values())
        return JSONResponse({"status": "ready" if fine else "not ready", **checks}, 200 if fine else 503)

    return routes


async def _checks(store: Store | None, executor_id: str, workers_apart: bool) -> dict[str, str]:
    if store is None:
        return {"database": "not open", "workers": "not started"}
    try:
        async with asyncio.timeout(ANSWER_S):
            workers = await asyncio.to_thread(_workers, store, executor_id, workers_apart)
            return {"database": "ok", "workers": workers}
    except TimeoutError:
        return {"database": f"no answer in {ANSWER_S:g} s", "workers": "unknown"}
    except SQLAlchemyError:
        log.exception("not ready: the database doesn't answer")
        return {"database": "doesn't answer", "workers": "unknown"}


def _workers(store: Store, executor_id: str, workers_apart: bool) -> str:
    store.ping()
    executor = store.executor(executor_id)
    if executor is None:
        return "not started"
    silent = now() - executor.heartbeat_at
    if silent >= timedelta(seconds=SILENT_S):
        return f"silent for {silent.total_seconds():.0f} s"
    if workers_apart and store.live_executors(SILENT_S) < 2:
        return "no other process is alive to run stages: start `liger-bot worker`"
    return "ok"
