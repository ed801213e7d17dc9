"""The HTTP door."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from pydantic import SecretStr

from app.inbox import Inbox
from app.store import Store
from app.webhooks import MAX_BODY_BYTES, webhook_routes

SECRET = "s3cret"
PAYLOAD = {"action": "created", "installation": {"id": 1}}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(f"sqlite:///{tmp_path}/test.sqlite")
    yield store
    store.close()


@pytest.fixture
async def client(store: Store) -> AsyncIterator[httpx.AsyncClient]:
    async def never(_event: str, _body: str) -> str:
        await asyncio.Event().wait()
        return ""

    app, inbox = FastAPI(), Inbox(store, never)  # so that deliveries stay as they were kept
    app.include_router(webhook_routes(SecretStr(SECRET), inbox.accept))
    await inbox.start()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        yield client
    await inbox.stop()


def sign(body: bytes, secret: str = SECRET) -> str:
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


async def post(client: httpx.AsyncClient, body: bytes, **headers: str | bytes | None) -> httpx.Response:
    values: dict[str, str | bytes | None] = {
        "X-GitHub-Event": "issue_comment",
        "X-GitHub-Delivery": "guid-1",
        "X-Hub-Signature-256": sign(body),
    }
    values |= {name.replace("_", "-"): value for name, value in headers.items()}
    return await client.post(
        "/webhook", content=body, headers={name: value for name, value in values.items() if value is not None}
    )


async def test_a_signed_delivery_is_stored_before_it_is_acknowledged(client: httpx.AsyncClient, store: Store):
    answer = await post(client, json.dumps(PAYLOAD).encode())
    assert (answer.status_code, answer.json()) == (202, {"status": "accepted"})
    assert store.waiting_deliveries() == ["guid-1"]


async def test_deliveries_that_come_together_are_kept_once_each(client: httpx.AsyncClient, store: Store):
    body = json.dumps(PAYLOAD).encode()
    answers = await asyncio.gather(
        *(post(client, body, X_GitHub_Delivery=f"guid-{number % 20}") for number in range(60))
    )
    assert sorted(answer.json()["status"] for answer in answers) == ["accepted"] * 20 + ["known"] * 40
    assert len(store.waiting_deliveries()) == 20


async def test_a_delivery_that_can_not_be_kept_is_not_acknowledged(client: httpx.AsyncClient, store: Store):
    with store._engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE deliveries RENAME TO elsewhere")
    assert (await post(client, json.dumps(PAYLOAD).encode())).status_code == 503


async def test_the_same_delivery_again_is_known(client: httpx.AsyncClient, store: Store):
    body = json.dumps(PAYLOAD).encode()
    await post(client, body)
    answer = await post(client, body)
    assert (answer.status_code, answer.json()) == (202, {"status": "known"})
    assert store.waiting_deliveries() == ["guid-1"]


@pytest.mark.parametrize(
    "signature",
    [
        None,
        "",
        "sha256=",
        "sha256=" + "0" * 64,
        sign(b"another body"),
        sign(json.dumps(PAYLOAD).encode(), "another secret"),
        "sha1=" + hmac.new(SECRET.encode(), json.dumps(PAYLOAD).encode(), hashlib.sha1).hexdigest(),
        "sha256=é".encode(),
    ],
)
async def test_a_wrong_or_missing_signature_is_refused(
    client: httpx.AsyncClient, store: Store, signature: str | bytes | None
):
    answer = await post(client, json.dumps(PAYLOAD).encode(), X_Hub_Signature_256=signature)
    assert answer.status_code == 401
    assert store.waiting_deliveries() == []


async def test_the_signature_is_over_the_raw_bytes(client: httpx.AsyncClient):
    body = b'{ "action":"created",\n "installation" : {"id":1}, "text": "\xc3\xa9" }'
    assert (await post(client, body)).status_code == 202


@pytest.mark.parametrize("event", ["ping", "star", "no_such_event"])
async def test_an_event_that_is_not_ours_is_ignored(client: httpx.AsyncClient, store: Store, event: str):
    answer = await post(client, json.dumps(PAYLOAD).encode(), X_GitHub_Event=event)
    assert (answer.status_code, answer.json()) == (202, {"status": "ignored"})
    assert store.waiting_deliveries() == []


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000])
async def test_what_is_not_a_json_object_is_refused(client: httpx.AsyncClient, store: Store, body: bytes):
    assert (await post(client, body)).status_code == 400
    assert store.waiting_deliveries() == []


async def test_a_delivery_without_an_id_is_refused(client: httpx.AsyncClient):
    assert (await post(client, json.dumps(PAYLOAD).encode(), X_GitHub_Delivery=None)).status_code == 400


async def test_more_than_25_megabytes_are_refused_by_their_length(client: httpx.AsyncClient):
    assert (await post(client, b"x" * (MAX_BODY_BYTES + 1))).status_code == 413


async def test_more_than_25_megabytes_are_refused_without_a_length(client: httpx.AsyncClient):
    async def long() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield b"x" * 1_000_000

    headers = {"X-GitHub-Event": "issue_comment", "X-GitHub-Delivery": "guid-1"}
    assert (await client.post("/webhook", content=long(), headers=headers)).status_code == 413
