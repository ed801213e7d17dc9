"""Our tables on Postgres, where several processes write at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from app.database import open_database
from app.github import UnreachableError
from app.outbox import Outbox
from app.states import State
from app.store import LiveRequestError, NewDelivery, NewRequest, Store, now
from app.tables import Approval, Profile, Table
from tests.postgres_server import PostgresServer, postgres_server

NEW = NewRequest("acme/kernels", 1, 3, 10, "maintainer", 7, "dev", "relu2", "relu_squared")
_numbers = count()


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as running:
        yield running


@pytest.fixture
def url(server: PostgresServer) -> str:
    return server.new_database(f"store_{next(_numbers)}")


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    opened = Store.open(url)
    yield opened
    opened.close()


def test_processes_that_start_together_migrate_once(url: str):
    with ThreadPoolExecutor(4) as pool:
        stores = [*pool.map(Store.open, [url] * 4)]
    with open_database(url).connect() as connection:
        context = MigrationContext.configure(connection)
        assert compare_metadata(context, Table.metadata) == []
    for one in stores:
        one.close()


def test_a_character_that_postgres_lacks_does_not_stop_anything(store: Store):
    request = store.create_request(NEW)
    store.log_line(request.id, "before\0after")
    store.note(request.id, "error", "a\0b")
    assert store.events(request.id)[-1].text == "a\ufffdb"


def test_one_of_several_deliveries_of_a_comment_is_followed(store: Store):
    def deliver(number: int) -> int:
        told = NewDelivery(f"guid-{number}", "issue_comment", "{}", "acme/kernels comment 10")
        return len(store.write_deliveries([told]))

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(deliver, range(16))) == 1


def test_one_of_several_requests_for_an_op_is_made(store: Store):
    def ask(number: int) -> bool:
        try:
            store.create_request(NewRequest(**(NEW.__dict__ | {"comment_id": number})))
        except LiveRequestError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(ask, range(16))) == 1


def test_a_request_whose_approval_was_not_followed_is_found(store: Store):
    request = store.create_request(NEW)
    store.move(request.id, State.understanding)
    store.move(request.id, State.awaiting_approval)
    with store._session() as session:
        session.add(Profile(request_id=request.id, attempt=1, sha256="f" * 64, body={}, created_at=now()))
    assert store.approved_and_waiting() == []
    approval = Approval(request_id=request.id, profile_sha256="f" * 64, login="m", by="command", source_id=1, at=now())  # fmt: skip
    store.approve(approval)
    assert [one.id for one in store.approved_and_waiting()] == [request.id]


async def test_a_thing_is_made_by_one_process_at_a_time(store: Store, monkeypatch: pytest.MonkeyPatch):
    one, two, made = Outbox(store, "one"), Outbox(store, "two"), []

    async def make(outbox: Outbox) -> None:
        async with outbox.making("comment of request abc2345"):
            if not made:  # looks, and then makes: between the two another one could
                await asyncio.sleep(0.05)
                made.append(outbox)

    await asyncio.gather(*(make(outbox) for outbox in (one, two, one, two)))
    assert len(made) == 1

    monkeypatch.setattr("app.outbox.WAIT_S", 0.3)
    assert store.claim_write("left", "one")
    with pytest.raises(UnreachableError, match="left"):
        async with two.making("left"):
            pass
    async with one.making("left"):  # it died with the claim, and came again
        pass
    async with two.making("left"):
        pass
