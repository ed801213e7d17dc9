"""Puts the service together and serves it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI
from fastapi.responses import JSONResponse

from agents.ports import Model
from app.approvals import Approvals
from app.dispatch import LocalBench
from app.following import Following
from app.github import GitHubApp
from app.inbox import Inbox
from app.intake import Intake
from app.llm import configured_model
from app.pages.routes import page_routes
from app.ports import Ports
from app.settings import Settings
from app.status_comment import StatusComments
from app.store import Store
from app.upkeep import upkeep_forever
from app.webhooks import webhook_routes
from app.workflows.engine import Engine

log = logging.getLogger(__name__)


def create_app(settings: Settings) -> FastAPI:
    """The service. Nothing is opened or started before the application is."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        settings.data_dir.mkdir(parents=True, exist_ok=True)
        store = Store.open(settings.store_url)
        github = GitHubApp(
            settings.app_id,
            settings.private_key.get_secret_value(),
            settings.github_url,
            settings.github_api_version,
        )
        bench = LocalBench(settings.runner_python, settings.target_python, settings.worker_slots)
        status = StatusComments(settings, store, github)
        ports = Ports(settings, store, github, status, bench, _model(settings))
        engine = Engine(ports)
        approvals = Approvals(ports, engine)
        inbox = Inbox(store, Intake(ports, Following(ports, engine, approvals), approvals).process)
        app.include_router(webhook_routes(settings.webhook_secret, inbox.accept))
        app.include_router(page_routes(ports))
        await engine.start()
        await inbox.start()
        side = [asyncio.create_task(approvals.poll_forever()), asyncio.create_task(upkeep_forever(ports))]
        log.info("liger-bot is up: GitHub at %s, pages at %s", settings.github_url, settings.pages_url)
        try:
            yield
        finally:
            for task in side:
                task.cancel()
            await asyncio.gather(*side, return_exceptions=True)
            await inbox.stop()
            await engine.stop()
            await github.close()
            store.close()

    app = FastAPI(title="liger-bot", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)

    @app.get("/healthz")
    async def healthy() -> JSONResponse:
        return JSONResponse({"status": "ok"})

    return app


def _model(settings: Settings) -> Model | None:
    return configured_model(
        settings.model,
        base_url=settings.model_base_url,
        api_key=settings.model_api_key,
        timeout_s=settings.model_timeout_seconds,
        max_budget_usd=settings.model_max_usd,
    )


def serve(settings: Settings) -> None:
    """Serve until interrupted."""
    logging.basicConfig(
        level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    logging.getLogger("httpx").setLevel(logging.WARNING)
    config = uvicorn.Config(create_app(settings), host=settings.host, port=settings.port, log_level="warning")
    uvicorn.Server(config).run()
