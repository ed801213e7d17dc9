"""The whole service against what schemathesis makes of its own routes: whatever is sent, never a 5xx, never an exception.

Deliveries are signed, so that what is made gets past the signature; their bodies are those that our own models describe,
with whatever text and numbers come to mind.
"""

from __future__ import annotations

import copy
import json
import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy
from schemathesis import Case
from sqlalchemy import select

from app.deliveries import MODELS
from app.states import State
from app.store import NewRequest
from app.tables import Delivery
from tests.contract.app.served import REPOSITORY, Served, served_service, signed

ANSWER_S = 10.0
EVERY_ROUTE = {
    "/", "/healthz", "/login", "/login/callback", "/logout", "/metrics", "/readyz", "/requests", "/requests/{request_id}",
    "/requests/{request_id}/diff", "/requests/{request_id}/events", "/requests/{request_id}/profile",
    "/requests/{request_id}/reports", "/webhook",
}  # fmt: skip
# What these routes read beside what their signatures say.
FILTERS = ("state", "command", "repository", "requester", "text", "page")
EXAMPLES = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)

# the service is in this process, and its threads draw random numbers while hypothesis looks
pytestmark = [
    pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisDeprecationWarning"),
    pytest.mark.filterwarnings("ignore:SOCKS support in urllib3"),
]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served_service(tmp_path_factory.mktemp("schemathesis")) as served:
        yield served


@pytest.fixture(scope="module")
def schema(service: Served) -> dict[str, Any]:
    asked = NewRequest(REPOSITORY, service.installation_id, 1, 1, "a-person", 7, "dev", "relu2", "op")
    identifier = service.app.state.store.create_request(asked).id
    service.app.state.store.move(identifier, State.cancelled)  # its issue doesn't exist
    return described(service.app, identifier, service.installation_id)


def described(app: FastAPI, request_id: str, installation_id: int) -> dict[str, Any]:
    """What OpenAPI says of every route that answers, and what a route reads beside its signature."""
    routes = [one for held in app.routes for one in getattr(held, "original_router", app).routes]
    ours = [one for one in routes if isinstance(one, APIRoute)]
    for one in ours:
        one.include_in_schema = True
    schema = get_openapi(title="liger-bot", version="1", routes=ours)
    text = {"type": "string"}
    schema["paths"]["/requests"]["get"]["parameters"] = [
        {"name": name, "in": "query", "schema": text} for name in FILTERS
    ]
    for path, operations in schema["paths"].items():
        for one in operations.values():
            for parameter in one.get("parameters", []):
                if parameter["name"] == "request_id":
                    parameter["schema"] = {"anyOf": [{"enum": [request_id]}, text]}
            if path.endswith("/events"):
                one["parameters"] += [{"name": "Last-Event-ID", "in": "header", "schema": text}]
            if path == "/webhook":
                one.update(delivery(schema, installation_id))
    return schema


def delivery(schema: dict[str, Any], installation_id: int) -> dict[str, Any]:
    """The webhook's headers and bodies."""
    parts = schema.setdefault("components", {}).setdefault("schemas", {})
    likely: dict[str, list[Any]] = {
        "action": ["created", "closed", "synchronize", "rerequested"],
        "full_name": [REPOSITORY, "acme/none"],
        "body": [
            "/liger dev relu2",
            "/liger approve",
            "/liger",
            "/liger dev \0",
            "/liger revise a=b",
            "/liger dev `\n```",
        ],
        "login": ["a-person", "someone[bot]"],
        "type": ["User", "Bot"],
    }
    bodies: dict[str, dict[str, Any]] = {}
    for event, model in MODELS.items():
        body = model.model_json_schema(ref_template="#/components/schemas/{model}")
        parts |= body.pop("$defs", {})
        bodies[event] = body
    for one in (*parts.values(), *bodies.values()):
        for name, values in likely.items():
            if name in one.get("properties", {}):
                one["properties"][name] = {"enum": values}
    parts["Installation"]["properties"]["id"] = {"enum": [installation_id]}
    return {
        "parameters": [
            {"name": "X-GitHub-Event", "in": "header", "required": True, "schema": {"enum": [*bodies]}},
            {"name": "X-GitHub-Delivery", "in": "header", "required": True, "schema": {"type": "string", "maxLength": 120}},
        ],
        "requestBody": {"required": True, "content": {"application/json": {"schema": {"anyOf": [*bodies.values()]}}}},
    }  # fmt: skip


def send(running: Served, client: httpx.Client, case: Case) -> int:
    """The status of what a case asks, signed where it is a delivery; streams are let go after their head."""
    sent = case.as_transport_kwargs(base_url=running.url)
    sent = {
        name: value
        for name, value in sent.items()
        if name in {"method", "url", "params", "headers", "json", "data"}
    }
    headers = {
        name: value for name, value in (sent.pop("headers", None) or {}).items() if name != "User-Agent"
    }
    if case.path == "/webhook":
        given_as_json = json.dumps(sent.pop("json", None)).encode()
        body = sent.pop("data", None) or given_as_json
        headers |= signed(body) | {"X-GitHub-Delivery": uuid.uuid4().hex}
        sent["content"] = body
    with client.stream(**sent, headers=headers) as answer:
        return answer.status_code


def test_every_route_is_described(schema: dict[str, Any]):
    assert set(schema["paths"]) == EVERY_ROUTE


@pytest.mark.parametrize("path", sorted(EVERY_ROUTE))
def test_no_route_fails_whatever_it_is_sent(service: Served, schema: dict[str, Any], path: str):
    already = len(service.logged)
    statuses: set[int] = set()
    with httpx.Client(timeout=ANSWER_S) as client:
        for strategy in strategies(schema, path):

            @EXAMPLES
            @given(case=strategy)
            def ask(case: Case) -> None:
                status = send(service, client, case)
                statuses.add(status)
                assert status < 500, case.as_curl_command()

            ask()
    assert statuses
    assert service.faults_after(already) == []


def strategies(schema: dict[str, Any], path: str) -> Iterator[SearchStrategy[Case]]:
    """Makers of cases: one a method, and of deliveries one an event, whose header and body then fit."""
    if path != "/webhook":
        for method in schema["paths"][path]:
            yield schemathesis.openapi.from_dict(schema)[path][method.upper()].as_strategy()
        return
    bodies = schema["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]["anyOf"]
    for event, body in zip(MODELS, bodies, strict=True):
        one = {**schema, "paths": {path: copy.deepcopy(schema["paths"][path])}}
        operation = one["paths"][path]["post"]
        operation["parameters"][0]["schema"] = {"enum": [event]}
        operation["requestBody"]["content"]["application/json"]["schema"] = body
        yield schemathesis.openapi.from_dict(one)[path]["POST"].as_strategy()


def test_what_is_made_up_is_understood_often_enough_to_say_something(service: Served):
    with service.app.state.store._session() as session:
        told = list(session.scalars(select(Delivery.note)))
    assert len(told) > 50
    assert sum("not an understood" not in (one or "") for one in told) > len(told) / 4
