"""Our tables: one request a comment, one live request an op, deliveries once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from app.database import open_database
from app.states import IllegalMoveError, Stage, State
from app.store import (
    MAX_DELIVERY_TRIES,
    FinishedDelivery,
    LiveRequestError,
    NewDelivery,
    NewRequest,
    Store,
    now,
    request_id,
)
from app.tables import Approval, StoredJob, Table

NEW = NewRequest(
    repository="acme/kernels",
    installation_id=1,
    issue_number=3,
    comment_id=10,
    requester="maintainer",
    requester_id=7,
    verb="dev",
    op_text="relu2",
    op_key="relu_squared",
)


DELIVERY = NewDelivery("guid-1", "issue_comment", "{}")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(f"sqlite:///{tmp_path}/test.sqlite")
    yield store
    store.close()


def test_the_migrations_make_the_tables_that_the_code_expects(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/test.sqlite"
    Store.open(url).close()
    engine = open_database(url)
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Table.metadata) == []
    engine.dispose()


def test_opening_again_keeps_what_is_there(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/test.sqlite"
    first = Store.open(url)
    first.create_request(NEW)
    first.close()
    second = Store.open(url)
    assert second.request(request_id("acme/kernels", 10)).op_text == "relu2"
    second.close()


def test_a_delivery_is_recorded_once(store: Store):
    assert store.write_deliveries([DELIVERY]) == {"guid-1"}
    assert store.write_deliveries([DELIVERY]) == set()
    assert store.waiting_deliveries() == ["guid-1"]
    store.write_deliveries([], [FinishedDelivery("guid-1", "done", "")])
    assert store.waiting_deliveries() == []


def test_a_postponed_delivery_waits_and_is_given_up_in_the_end(store: Store):
    store.write_deliveries([DELIVERY])
    outcomes = [store.postpone_delivery("guid-1", "no answer") for _ in range(MAX_DELIVERY_TRIES)]
    assert outcomes == [True] * (MAX_DELIVERY_TRIES - 1) + [False]
    assert store.waiting_deliveries() == []
    delivery = store.delivery("guid-1")
    assert delivery is not None
    assert delivery.state == "failed"


def test_the_same_comment_is_one_request(store: Store):
    first, again = store.create_request(NEW), store.create_request(NEW)
    assert first.id == again.id
    assert len(store.recent_requests()) == 1


def test_a_second_live_request_for_an_op_names_the_first(store: Store):
    first = store.create_request(NEW)
    with pytest.raises(LiveRequestError) as caught:
        store.create_request(replace(NEW, comment_id=11))
    assert caught.value.request.id == first.id


def test_another_op_or_repository_is_another_request(store: Store):
    store.create_request(NEW)
    store.create_request(replace(NEW, comment_id=11, op_key="silu"))
    store.create_request(replace(NEW, comment_id=12, repository="acme/other"))
    assert len(store.recent_requests()) == 3


def test_an_ended_request_makes_room_and_can_not_come_back_into_it(store: Store):
    first = store.create_request(NEW)
    store.move(first.id, State.cancelled)
    second = store.create_request(replace(NEW, comment_id=11))
    with pytest.raises(LiveRequestError) as caught:
        store.retry(first.id, State.understanding, attempt=2)
    assert caught.value.request.id == second.id


def test_a_move_that_the_table_lacks_changes_nothing(store: Store):
    request = store.create_request(NEW)
    with pytest.raises(IllegalMoveError):
        store.move(request.id, State.acting, attempt=9)
    assert (store.request(request.id).state, store.request(request.id).attempt) == ("received", 1)


def test_moves_are_history(store: Store):
    request = store.create_request(NEW)
    store.move(request.id, State.understanding)
    store.move(request.id, State.understanding)
    store.fail(request.id, Stage.understand, {"kind": "fault", "reason": "the disk is full"})
    assert [(event.state, event.text) for event in store.events(request.id)] == [
        ("received", "from maintainer"),
        ("understanding", ""),
        ("failed", "the disk is full"),
    ]


def test_a_profile_is_approved_once(store: Store):
    request = store.create_request(NEW)
    values = {"request_id": request.id, "profile_sha256": "p", "by": "reaction", "source_id": 1, "at": now()}
    assert store.approve(Approval(login="first", **values))
    assert not store.approve(Approval(login="second", **values))
    approval = store.approval(request.id, "p")
    assert approval is not None
    assert approval.login == "first"
    assert store.approval(request.id, "q") is None


def test_replies_are_counted_by_person_and_issue_without_the_one_being_answered(store: Store):
    for comment, login, issue in [
        (1, "stranger", 3),
        (2, "stranger", 3),
        (3, "stranger", 4),
        (4, "other", 3),
    ]:
        store.record_reply("acme/kernels", issue, login, comment)
        store.record_reply("acme/kernels", issue, login, comment)
    assert store.replies_today("acme/kernels", 3, "stranger", comment_id=99) == 2
    assert store.replies_today("acme/kernels", 3, "stranger", comment_id=2) == 1


def test_times_come_back_with_their_zone(store: Store):
    assert store.create_request(NEW).created_at.tzinfo is not None
    assert store.request(request_id("acme/kernels", 10)).created_at.utcoffset() is not None


def test_an_executor_without_a_heartbeat_is_silent(store: Store):
    store.heartbeat("one", "host:1")
    assert [one.id for one in store.executors()] == ["one"]
    store.forget_silent_executors(60)
    assert store.executor("one") is not None
    store.forget_silent_executors(-1)
    assert store.executors() == []
    store.forget_executor("one")
    assert store.executor("one") is None


def test_reports_of_ended_requests_are_forgotten_and_of_live_ones_kept(store: Store):
    def with_job(comment: int) -> tuple[str, str]:
        request = store.create_request(replace(NEW, comment_id=comment, op_key=f"op {comment}"))
        job = StoredJob(
            id=f"{request.id}-1-0-style", request_id=request.id, attempt=1, round=0, gate="style", nonce="",
            head_sha="", check_run_id=None, state="done", conclusion="success", title="fine",
            report={"large": 1}, created_at=now(), finished_at=now(),
        )  # fmt: skip
        store.start_job(job)
        store.log_line(request.id, "working")
        return request.id, job.id

    live, ended = with_job(1), with_job(2)
    store.move(ended[0], State.cancelled)
    store.forget_reports(1)
    assert store.job(ended[1]).report == {"large": 1}  # type: ignore[union-attr]
    store.forget_reports(-1)
    assert store.job(ended[1]).report is None  # type: ignore[union-attr]
    assert store.job(ended[1]).title == "fine"  # type: ignore[union-attr]
    assert store.job(live[1]).report == {"large": 1}  # type: ignore[union-attr]


def test_a_comment_that_two_deliveries_tell_of_is_followed_once(store: Store):
    first, second = (NewDelivery(guid, "issue_comment", "{}", "a/b comment 1") for guid in ("x", "y"))
    assert store.write_deliveries([first, second]) == {"x"}
    assert store.waiting_deliveries() == ["x"]
    assert store.untold(["a/b comment 1", "a/b comment 2"]) == {"a/b comment 2"}
    assert store.delivery("y").state == "ignored"  # type: ignore[union-attr]
