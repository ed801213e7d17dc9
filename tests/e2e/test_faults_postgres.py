"""The service and its workers on Postgres: three processes, one database, and any of them may die."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import create_engine, text

from tests.exhaustive import exhaustive
from tests.liger_checkout import liger_checkout
from tests.postgres_server import PostgresServer, postgres_server
from tests.service_process import Scene, scene

WAITING = "waiting for your decision"


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("postgres")
    url = postgres.new_database("service")
    with scene(folder, liger_checkout(folder / "files"), workers=2, DATABASE_URL=url) as running:
        yield running


@exhaustive
@pytest.mark.slow
def test_a_comment_becomes_a_verified_draft_pull_request_on_postgres(here: Scene):
    issue = here.open_issue()
    command = here.comment(issue, "/liger dev relu2")
    here.wait_for_reaction(command, "eyes")
    status = here.wait_for_comment(issue, WAITING)
    here.react(status["id"])
    here.wait_for_comment(issue, "ready for review", 240)
    (pull,) = here.call("GET", "/pulls")
    assert pull["draft"]
    assert {run["conclusion"] for run in here.check_runs(pull["head"]["sha"]).values()} == {
        "success",
        "neutral",
    }
    assert len(here.bot_comments(issue)) == 1
    # the service took it in, and the workers did the work
    with create_engine(here.service.environment["LIGER_BOT_DATABASE_URL"]).connect() as connection:
        query = text("select distinct executor_id from dbos.workflow_status")
        assert set(connection.scalars(query)) <= {"worker-1", "worker-2"}


@pytest.mark.slow
def test_what_a_killed_worker_was_at_is_taken_up_by_another(here: Scene):
    issue = here.open_issue()
    here.workers[1].kill()
    here.comment(issue, "/liger dev squareplus")
    here.wait_for_comment(issue, "/liger dev squareplus")
    here.workers[0].kill()  # in the middle of it: no one is left
    here.workers[1].start()
    here.wait_for_comment(issue, WAITING, 90)  # sooner than the dead one's claims run out by themselves
    assert len(here.bot_comments(issue)) == 1
    logs = here.service.log.read_text() + here.workers[1].log.read_text()
    assert "executor worker-1 is gone: taking up" in logs
    here.workers[0].start()
    here.workers[0].wait()
