"""The service and its workers on Postgres: three processes, one database, and any of them may die."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.liger_checkout import liger_checkout
from tests.postgres_server import PostgresServer, postgres_server
from tests.service_process import Scene, scene, wait_for

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
    assert "step" not in here.service.log.read_text()


@pytest.mark.slow
def test_what_a_killed_worker_was_at_is_taken_up_by_another(here: Scene):
    issue = here.open_issue()
    here.workers[1].kill()
    here.comment(issue, "/liger dev squareplus")
    here.wait_for_comment(issue, "/liger dev squareplus")
    here.workers[0].kill()  # in the middle of it: no one is left
    here.workers[1].start()
    started = time.monotonic()
    here.wait_for_comment(issue, WAITING, 90)
    assert time.monotonic() - started < 60
    assert len(here.bot_comments(issue)) == 1
    assert "executor worker-1 is gone: taking up" in here.workers[1].log.read_text()
    here.workers[0].start()
    here.workers[0].wait()


@pytest.mark.slow
def test_a_killed_database_loses_nothing(here: Scene, postgres: PostgresServer):
    issue = here.open_issue()
    here.comment(issue, "/liger dev mish")
    here.wait_for_comment(issue, "/liger dev mish")
    postgres.kill()
    late = here.comment(
        issue, "/liger status"
    )  # answered with 503, or kept: the reconciler asks for it again
    assert wait_for(lambda: late, 1, "the comment")
    time.sleep(1)
    postgres.start()
    here.wait_for_comment(issue, WAITING, 120)
