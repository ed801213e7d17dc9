"""What Prometheus reads at /metrics. Most of it is counted in the database at that moment, so any process says the same.

No label names a person, a repository or a request, and no secret is anywhere near.
"""

from __future__ import annotations

import asyncio
import hmac
import threading
import time
from bisect import bisect_left
from collections.abc import Iterator

from fastapi import APIRouter, Request, Response
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from pydantic import SecretStr
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.github.rate_limits import rate_limits
from app.pages.live import Live
from app.states import RUNNING, Stage, State
from app.store import Store
from app.workflows.engine import SILENT_S

STAGE_BUCKETS_S = (1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 7200.0)
ANSWER_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
MOVES_AT_ONCE = 5_000


class StageSeconds:
    """How long stages took, as a histogram: kept up by reading what happened since the last time."""

    def __init__(self, store: Store):
        self._store = store
        self._lock = threading.Lock()
        self._last_event = 0
        self._began: dict[str, tuple[Stage, float]] = {}
        self._counts = {stage: [0] * (len(STAGE_BUCKETS_S) + 1) for stage in Stage}
        self._sums = dict.fromkeys(Stage, 0.0)

    def metric(self) -> HistogramMetricFamily:
        """All stages that have ended, of every request in the database."""
        family = HistogramMetricFamily(
            "liger_bot_stage_seconds", "Time that a stage of a request took", labels=["stage"]
        )
        with self._lock:
            self._catch_up()
            for stage in Stage:
                total, buckets = 0, []
                for bound, count in zip((*STAGE_BUCKETS_S, float("inf")), self._counts[stage], strict=True):
                    total += count
                    buckets.append((f"{bound:g}" if bound != float("inf") else "+Inf", float(total)))
                family.add_metric([stage], buckets, self._sums[stage])
        return family

    def _catch_up(self) -> None:
        while moves := self._store.moves_after(self._last_event, MOVES_AT_ONCE):
            for move in moves:
                self._last_event = move.event_id
                stage = RUNNING.get(move.state)
                before = self._began.get(move.request_id)
                if before is not None and before[0] is not stage:
                    self._observe(before[0], move.at - before[1])
                    del self._began[move.request_id]
                    before = None
                if stage is not None and before is None:
                    self._began[move.request_id] = stage, move.at

    def _observe(self, stage: Stage, seconds: float) -> None:
        self._counts[stage][bisect_left(STAGE_BUCKETS_S, seconds)] += 1
        self._sums[stage] += seconds


class _Tables(Collector):
    """Counted when it is asked for."""

    def __init__(self, store: Store, live: Live):
        self._store, self._live = store, live
        self._stages = StageSeconds(store)

    def collect(self) -> Iterator[Metric]:
        store = self._store
        requests = GaugeMetricFamily("liger_bot_requests", "Requests by state", labels=["state"])
        by_state = store.requests_by_state()
        for state in State:
            requests.add_metric([state], by_state.get(state, 0))
        yield requests
        yield self._stages.metric()
        jobs = GaugeMetricFamily(
            "liger_bot_jobs",
            "Jobs by gate and outcome; running and cancelled ones too",
            labels=["gate", "outcome"],
        )
        jobs_by_outcome = store.jobs_by_outcome()
        for (gate, outcome), count in sorted(jobs_by_outcome.items()):
            jobs.add_metric([gate, outcome], count)
        yield jobs
        deliveries = store.deliveries_by_state()
        stored = GaugeMetricFamily(
            "liger_bot_deliveries_stored", "Webhook deliveries that are kept, by state", labels=["state"]
        )
        for state, count in sorted(deliveries.items()):
            stored.add_metric([state], count)
        yield stored
        queue = GaugeMetricFamily(
            "liger_bot_queue_length", "What waits or is being worked on", labels=["queue"]
        )
        queue.add_metric(["deliveries"], deliveries.get("received", 0))
        queue.add_metric(
            ["jobs"], sum(count for (_, outcome), count in jobs_by_outcome.items() if outcome == "running")
        )
        queue.add_metric(["dispatches"], sum(store.open_dispatches_by_state().values()))
        yield queue
        yield from self._model()
        yield from _github()
        yield GaugeMetricFamily(
            "liger_bot_executors", "Processes with a fresh heartbeat", value=store.live_executors(SILENT_S)
        )
        yield GaugeMetricFamily(
            "liger_bot_page_streams", "Pages that are followed live in this process", value=self._live.streams
        )

    def _model(self) -> Iterator[Metric]:
        usd = CounterMetricFamily(
            "liger_bot_model_usd",
            "Spent on the language model, US dollars, as far as prices are known",
            labels=["model"],
        )
        questions = CounterMetricFamily(
            "liger_bot_model_questions", "Questions to the language model", labels=["model"]
        )
        tokens = CounterMetricFamily(
            "liger_bot_model_tokens",
            "Tokens read and written by the language model",
            labels=["model", "direction"],
        )
        for one in self._store.model_use():
            usd.add_metric([one.model], one.usd)
            questions.add_metric([one.model], one.questions)
            tokens.add_metric([one.model, "input"], one.input_tokens)
            tokens.add_metric([one.model, "output"], one.output_tokens)
        yield from (usd, questions, tokens)


def _github() -> Iterator[Metric]:
    left = GaugeMetricFamily(
        "liger_bot_github_rate_limit_remaining",
        "Requests left of the tightest rate limit that GitHub told this process of, by resource",
        labels=["resource"],
    )
    limit = GaugeMetricFamily("liger_bot_github_rate_limit", "The same limit's size", labels=["resource"])
    for resource, one in sorted(rate_limits().items()):
        left.add_metric([resource], one.remaining)
        limit.add_metric([resource], one.limit)
    yield from (left, limit)


class Metrics:
    """The metrics of one process."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self._registry)
        self._deliveries = Counter(
            "liger_bot_deliveries",
            "Webhook deliveries that came in at this process, by outcome",
            ["outcome"],
            registry=self._registry,
        )
        self._answers = Histogram(
            "liger_bot_answer_seconds",
            "Time until an HTTP request was answered in full",
            ["method", "route", "status"],
            buckets=ANSWER_BUCKETS_S,
            registry=self._registry,
        )

    def watch(self, store: Store, live: Live) -> None:
        """Count what is in these tables too."""
        self._registry.register(_Tables(store, live))

    def delivery(self, outcome: str) -> None:
        """Count a delivery: accepted, known, ignored, refused or not stored."""
        self._deliveries.labels(outcome).inc()

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        self._answers.labels(method, route, str(status)).observe(seconds)

    def text(self) -> bytes:
        """All of it, in Prometheus' text format."""
        return generate_latest(self._registry)


class TimedAnswers:
    """ASGI middleware: times every answer by its route's pattern. Streams of pages are left out: they last."""

    def __init__(self, app: ASGIApp, metrics: Metrics):
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500

        async def note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, note)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            method = scope["method"] if scope["method"] in {"GET", "HEAD", "POST"} else "other"
            if not route.endswith("/events"):
                self._metrics.answered(method, route, status, time.perf_counter() - started)


def metrics_routes(metrics: Metrics, token: SecretStr) -> APIRouter:
    """GET /metrics; with a token, only for those who have it."""
    routes = APIRouter(include_in_schema=False)
    wanted = token.get_secret_value().encode()

    @routes.get("/metrics")
    async def read(request: Request) -> Response:
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        if wanted and not (
            scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), wanted)
        ):
            return Response("a bearer token is needed\n", 401, {"WWW-Authenticate": "Bearer"}, "text/plain")
        return Response(
            await asyncio.to_thread(metrics.text),
            headers={"Cache-Control": "no-store"},
            media_type=CONTENT_TYPE_LATEST,
        )

    return routes
