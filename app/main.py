"""Puts the service together and serves it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import FrameType

import uvicorn
from fastapi import FastAPI

from agents.ports import Model
from app.actions.following import Follower
from app.approvals import Approvals
from app.confinement import say_confinement
from app.dispatch import LocalBench
from app.following import Following
from app.github import GitHubApp
from app.health import health_routes
from app.inbox import Inbox
from app.intake import Intake
from app.llm import configured_model
from app.logs import configure_logs
from app.metrics import Metrics, TimedAnswers, metrics_routes
from app.pages.routes import PagesService
from app.ports import Ports
from app.settings import Settings
from app.status_comment import StatusComments
from app.store import Store
from app.upkeep import reconcile_forever, upkeep_forever
from app.webhooks import webhook_routes
from app.workflows.engine import Engine, Role

log = logging.getLogger(__name__)

SPARE_NICENESS = 10
REQUEST_GRACE_S = 5  # for an answer that is under way when the service is told to stop


def create_app(settings: Settings) -> FastAPI:
    """The service. Nothing is opened or started before the application is."""
    metrics = Metrics()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        ports = open_ports(settings)
        store, github = ports.store, ports.github
        engine = Engine(ports, Role.everything if settings.stages == "here" else Role.app)
        approvals = Approvals(ports, engine)
        follower = Follower(ports, engine)
        intake = Intake(ports, Following(ports, engine, approvals), approvals, follower)
        inbox = Inbox(store, intake.process)
        app.include_router(webhook_routes(settings.webhook_secret, inbox.accept, metrics.delivery))
        pages = PagesService(ports)
        pages.mount(app)
        metrics.watch(store.reader(), pages.live)
        app.state.end_streams = pages.live.close
        await engine.start()
        await inbox.start()
        app.state.store = store
        side = [
            asyncio.create_task(approvals.poll_forever()),
            asyncio.create_task(follower.follow_forever()),
            asyncio.create_task(reconcile_forever(ports, inbox.accept)),
            asyncio.create_task(upkeep_forever(ports, engine.forget_workflows)),
            asyncio.create_task(pages.keep_warm()),
        ]
        if settings.stages == "here":
            side.append(asyncio.create_task(say_confinement(settings)))
        log.info("liger-bot is up: GitHub at %s, pages at %s", settings.github_url, settings.pages_url)
        try:
            yield
        finally:
            app.state.store = None
            await pages.close()
            for task in side:
                task.cancel()
            await asyncio.gather(*side, return_exceptions=True)
            await inbox.stop(settings.shutdown_seconds)
            await engine.stop(settings.shutdown_seconds)
            await github.close()
            store.close()
            log.info("liger-bot is down; what is unfinished goes on at the next start")

    app = FastAPI(title="liger-bot", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.state.store, app.state.end_streams = None, lambda: None
    app.add_middleware(TimedAnswers, metrics=metrics)
    app.include_router(
        health_routes(
            lambda: app.state.store, settings.executor_id, workers_apart=settings.stages == "workers"
        )
    )
    app.include_router(metrics_routes(metrics, settings.metrics_token))
    return app


def open_ports(settings: Settings) -> Ports:
    """What the service, or a worker, reaches the world through. The database is opened and migrated."""
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    store = Store.open(settings.store_url)
    github = GitHubApp(
        settings.app_id,
        settings.private_key.get_secret_value(),
        settings.github_url,
        settings.github_api_version,
    )
    bench = LocalBench(
        settings.runner_python,
        settings.target_python,
        settings.worker_slots,
        transformers_sites=settings.transformers_sites,
        must_confine=not settings.allow_unconfined,
    )
    spare = (
        LocalBench(
            settings.runner_python,
            settings.target_python,
            niceness=SPARE_NICENESS,
            must_confine=not settings.allow_unconfined,
        )
        if settings.compile_schedules
        else None
    )
    return Ports(
        settings, store, github, StatusComments(settings, store, github), bench, _model(settings), spare
    )


def _model(settings: Settings) -> Model | None:
    return configured_model(
        settings.model,
        base_url=settings.model_base_url,
        api_key=settings.model_api_key,
        timeout_s=settings.model_timeout_seconds,
        max_budget_usd=settings.model_max_usd,
    )


def serve(settings: Settings) -> None:
    """Serve until interrupted. SIGTERM: no delivery is taken any more, work in progress ends or is left at a step's end."""
    configure_logs(settings.log_level, settings.log_format)
    app = create_app(settings)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_level="warning",
        log_config=None,
        timeout_graceful_shutdown=REQUEST_GRACE_S,
    )
    _Server(config, app).run()


class _Server(uvicorn.Server):
    """Ends the pages' streams as soon as it is told to stop: a shutdown waits for every answer, and those have no end."""

    def __init__(self, config: uvicorn.Config, app: FastAPI):
        super().__init__(config)
        self._app = app

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._app.state.end_streams()
        super().handle_exit(sig, frame)
