"""Health, readiness and metrics: what is counted, who may read it, and a whole service that says it is ready and stops."""

from __future__ import annotations

import hashlib
import hmac
import time
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families
from pydantic import SecretStr

from agents.ports import ModelReply
from app.github.rate_limits import note_rate_limit
from app.health import health_routes
from app.metrics import Metrics, TimedAnswers, metrics_routes
from app.pages.live import Live
from app.states import State
from app.store import FinishedDelivery, NewDelivery, NewRequest, Store, now
from app.tables import Event, Executor, StoredJob
from app.webhooks import webhook_routes
from tests.service_process import SECRET as SERVICE_SECRET
from tests.service_process import scene, wait_for

SECRET, REPOSITORY = "s3cret", "linkedin/Liger-Kernel"


def service(store: Store, token: str = "", *, workers_apart: bool = False) -> TestClient:
    """Health, metrics and the webhook over that store."""
    metrics = Metrics()
    metrics.watch(store.reader(), Live(store))
    app = FastAPI()
    app.add_middleware(TimedAnswers, metrics=metrics)

    async def accept(delivery: NewDelivery) -> bool:
        return bool(store.write_deliveries([delivery]))

    app.include_router(webhook_routes(SecretStr(SECRET), accept, metrics.delivery))
    app.include_router(health_routes(lambda: store, "here", workers_apart=workers_apart))
    app.include_router(metrics_routes(metrics, SecretStr(token)))
    return TestClient(app)


def samples(client: TestClient, **headers: str) -> dict[tuple[str, tuple[str, ...]], float]:
    """(name, label values in the order of their names) -> value."""
    answer = client.get("/metrics", headers=headers)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return {
        (one.name, tuple(one.labels[key] for key in sorted(one.labels))): one.value
        for family in text_string_to_metric_families(answer.text)
        for one in family.samples
    }


def request(store: Store, number: int, installation_id: int = 1) -> str:
    known = NewRequest(
        REPOSITORY, installation_id, number, number, "a-person", 7, "dev", "relu2", f"op{number}"
    )
    return store.create_request(known).id


def deliver(client: httpx.Client, guid: str, body: str, secret: str = SECRET) -> int:
    signature = hmac.new(secret.encode(), body.encode(), hashlib.sha256).hexdigest()
    headers = {
        "X-GitHub-Event": "issue_comment",
        "X-GitHub-Delivery": guid,
        "X-Hub-Signature-256": f"sha256={signature}",
    }
    return client.post("/webhook", content=body, headers=headers).status_code


def test_requests_jobs_and_queues_are_counted(store: Store):
    first, second = request(store, 1), request(store, 2)
    store.move(first, State.understanding)
    for gate, state, conclusion in (
        ("style", "done", "success"),
        ("compile", "done", "failure"),
        ("benchmark", "running", None),
    ):
        store.start_job(
            StoredJob(
                id=f"{second}-{gate}",
                request_id=second,
                attempt=1,
                round=0,
                gate=gate,
                nonce="",
                head_sha="",
                check_run_id=None,
                state=state,
                conclusion=conclusion,
                title="",
                report=None,
                created_at=now(),
                finished_at=None,
            )
        )
    store.write_deliveries([NewDelivery("a", "issues", "{}"), NewDelivery("b", "issues", "{}")], [])
    store.write_deliveries([], [FinishedDelivery("a", "failed", "")])
    store.model_asked(
        first,
        "free text",
        ModelReply(data={}, model="some/model", input_tokens=10, output_tokens=4, cost_usd=0.25),
    )
    note_rate_limit(
        {
            "x-ratelimit-limit": "5000",
            "x-ratelimit-remaining": "4321",
            "x-ratelimit-reset": str(time.time() + 60),
            "x-ratelimit-resource": "a-test",
        }
    )
    found = samples(service(store))
    assert found["liger_bot_requests", ("understanding",)] == 1
    assert found["liger_bot_requests", ("received",)] == 1
    assert found["liger_bot_requests", ("merged",)] == 0
    assert found["liger_bot_jobs", ("style", "success")] == 1
    assert found["liger_bot_jobs", ("compile", "failure")] == 1
    assert found["liger_bot_jobs", ("benchmark", "running")] == 1
    assert found["liger_bot_queue_length", ("jobs",)] == 1
    assert found["liger_bot_queue_length", ("deliveries",)] == 1
    assert found["liger_bot_deliveries_stored", ("failed",)] == 1
    assert found["liger_bot_model_usd_total", ("some/model",)] == 0.25
    assert found["liger_bot_model_tokens_total", ("input", "some/model")] == 10
    assert found["liger_bot_github_rate_limit_remaining", ("a-test",)] == 4321


def test_stages_are_timed_from_what_happened(store: Store):
    identifier, at = request(store, 1), now()
    with store._session() as session:
        for seconds, state in (
            (0, "understanding"),
            (4, "awaiting_approval"),
            (1000, "acting"),
            (1040, "verifying"),
            (1100, "repairing"),
            (1110, "verifying"),
            (1120, "in_review"),
        ):
            session.add(
                Event(
                    request_id=identifier,
                    at=at + timedelta(seconds=seconds),
                    kind="state",
                    state=state,
                    text="",
                )
            )
    client = service(store)
    found = samples(client)
    assert found["liger_bot_stage_seconds_count", ("understand",)] == 1
    assert found["liger_bot_stage_seconds_sum", ("understand",)] == pytest.approx(4, abs=0.5)
    assert found["liger_bot_stage_seconds_bucket", ("2.5", "understand")] == 0
    assert found["liger_bot_stage_seconds_bucket", ("5", "understand")] == 1
    assert found["liger_bot_stage_seconds_sum", ("act",)] == pytest.approx(40)
    assert found["liger_bot_stage_seconds_sum", ("verify",)] == pytest.approx(80)  # the repair is part of it
    assert samples(client)["liger_bot_stage_seconds_count", ("verify",)] == 1  # read again, not counted again


def test_deliveries_are_counted_by_what_came_of_them(store: Store):
    client = service(store)
    body = '{"installation": {"id": 1}}'
    assert [
        deliver(client, "one", body),
        deliver(client, "one", body),
        deliver(client, "two", "{}"),
        deliver(client, "three", body, "wrong"),
    ] == [202, 202, 202, 401]
    found = samples(client)
    for outcome in ("accepted", "known", "ignored", "refused"):
        assert found["liger_bot_deliveries_total", (outcome,)] == 1, outcome
    assert found["liger_bot_answer_seconds_count", ("POST", "/webhook", "202")] == 3
    assert found["liger_bot_answer_seconds_count", ("POST", "/webhook", "401")] == 1


def test_metrics_may_ask_for_a_token_and_name_nobody(store: Store):
    request(store, 1)
    client = service(store, token="t0ken")
    for header in (
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Basic t0ken"},
        {"Authorization": "Bearer"},
    ):
        refused = client.get("/metrics", headers=header)
        assert refused.status_code == 401
        assert "liger_bot" not in refused.text
    text = client.get("/metrics", headers={"Authorization": "Bearer t0ken"}).text
    assert "liger_bot_requests" in text
    for secret in ("t0ken", SECRET, "a-person", REPOSITORY):
        assert secret not in text


def test_ready_means_that_the_database_answers_and_the_workers_live(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    client = service(store)
    assert client.get("/healthz").status_code == 200
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["workers"]) == (503, "not started")
    store.heartbeat("here", "a process")
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()) == (
        200,
        {"status": "ready", "database": "ok", "workers": "ok"},
    )
    with store._session() as session:
        session.get_one(Executor, "here").heartbeat_at = now() - timedelta(minutes=5)
    assert "silent for 300 s" in client.get("/readyz").json()["workers"]
    store.close()
    Path(str(store._engine.url.database)).unlink()
    Path(str(store._engine.url.database)).mkdir()  # a database that can't be opened
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["database"] == "doesn't answer"
    assert client.get("/healthz").status_code == 200


def test_a_service_whose_stages_run_elsewhere_needs_a_worker(store: Store):
    client = service(store, workers_apart=True)
    store.heartbeat("here", "the service")
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert "liger-bot worker" in answer.json()["workers"]
    store.heartbeat("there", "a worker")
    assert client.get("/readyz").status_code == 200


def test_a_service_becomes_ready_and_stops_while_somebody_watches(tmp_path: Path):
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "README.md").write_text("# no kernels\n")
    with scene(tmp_path, tmp_path / "files", METRICS_TOKEN="t0ken") as here:
        wait_for(lambda: httpx.get(f"{here.service.url}/readyz").status_code == 200, 20, "it is ready")
        store = Store.open(f"sqlite:///{tmp_path}/data/liger-bot.sqlite")
        identifier = request(store, 1, here.installation_id)
        for state in (State.understanding, State.awaiting_approval):
            store.move(identifier, state)
        store.close()
        with httpx.Client(base_url=here.service.url) as client:
            assert deliver(client, "one", '{"installation": {"id": 1}}', SERVICE_SECRET) == 202
        assert httpx.get(f"{here.service.url}/metrics").status_code == 401
        text = httpx.get(f"{here.service.url}/metrics", headers={"Authorization": "Bearer t0ken"}).text
        assert 'liger_bot_deliveries_total{outcome="accepted"}' in text
        assert "liger_bot_github_rate_limit_remaining" in text
        path = f"/requests/{identifier}/events"
        with httpx.stream("GET", f"{here.service.url}{path}", timeout=60) as answer:
            assert answer.status_code == 200
            lines = answer.iter_lines()
            next(lines)
            here.service.stop()
            list(lines)
        log = here.service.log.read_text()
        # uvicorn alone would wait for the stream as long as it may wait for an answer, and then say so
        assert "timeout graceful shutdown exceeded" not in log
        assert "liger-bot is down" in log
        assert "Traceback" not in log
