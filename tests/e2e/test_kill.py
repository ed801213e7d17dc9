"""kill -9 at every step boundary and in the middle of the longest step: the request goes on, nothing is done twice."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.exhaustive import exhaustive
from tests.liger_checkout import liger_checkout
from tests.service_process import Scene, scene, wait_for

MIDDLE_S = 4.0  # into the correctness gate, which takes some twenty seconds


class StepWatch:
    """Kills the service each time one more step of a workflow has been recorded, and starts it again."""

    def __init__(self, here: Scene, database: Path):
        self._here, self._database = here, database
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.killed_after: list[str] = []
        self.error: BaseException | None = None

    def __enter__(self) -> StepWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)
        if self.error is not None:
            raise self.error

    def steps(self) -> list[str]:
        """`workflow: step`, in the order they were recorded."""
        if not self._database.exists():
            return []
        with contextlib.closing(
            sqlite3.connect(f"file:{self._database}?mode=ro", uri=True, timeout=5)
        ) as connection:
            try:
                rows = connection.execute(
                    "select workflow_uuid, function_name from operation_outputs where function_name not like 'DBOS.%' order by completed_at_epoch_ms, function_id"
                ).fetchall()
            except sqlite3.OperationalError:
                return []  # the tables are made at the service's first start
        return [f"{workflow.split(':')[1]}: {name}" for workflow, name in rows if workflow.count(":") == 2]

    def _watch(self) -> None:
        try:
            self._kill_after_each_step()
        except BaseException as error:  # noqa: BLE001 - the test's own thread raises it again
            self.error = error

    def _kill_after_each_step(self) -> None:
        seen = 0
        while not self._stop.is_set():
            steps = self.steps()
            if len(steps) > seen:
                self.killed_after += steps[seen:]
                seen = len(steps)
                self._here.service.kill()
                self._here.service.start()
            self._stop.wait(0.02)


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Scene]:
    with scene(tmp_path, liger_checkout(tmp_path / "files"), WORKER_SLOTS="2") as running:
        yield running


def runner_processes() -> list[int]:
    return [one.pid for one in psutil.process_iter(["cmdline"]) if "runners" in (one.info["cmdline"] or [])]


@exhaustive
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_request_survives_being_killed_at_every_step(here: Scene, tmp_path: Path):
    issue = here.open_issue()
    command = here.comment(issue, "/liger dev relu2")
    assert here.hub.deliveries_done(30)
    here.service.kill()  # the delivery was acknowledged, nothing else is certain
    here.service.start()

    with StepWatch(here, tmp_path / "data" / "workflows.sqlite") as watch:
        status = here.wait_for_comment(issue, "waiting for your decision", 120)
        here.react(status["id"])
        here.wait_for_comment(issue, "ready for review", 400)
        wait_for(
            lambda: any("hand over" in step for step in watch.killed_after), 60, "the last step was recorded"
        )

    stages = {step.split(":")[0] for step in watch.killed_after}
    assert stages == {"understand", "act", "verify"}
    assert len(watch.killed_after) >= 12
    assert_done_once(here, issue, command)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_request_survives_being_killed_in_the_middle_of_the_longest_step(here: Scene):
    issue = here.open_issue()
    command = here.comment(issue, "/liger dev relu2")
    here.wait_for_comment(issue, "waiting for your decision", 120)
    here.comment(issue, "/liger approve")
    (pull,) = wait_for(lambda: here.call("GET", "/pulls"), 120, "the pull request")
    sha = pull["head"]["sha"]
    wait_for(lambda: "liger-bot / correctness" in here.check_runs(sha), 60, "the correctness check started")
    time.sleep(MIDDLE_S)
    assert here.check_runs(sha)["liger-bot / correctness"]["status"] == "in_progress"
    before = runner_processes()
    assert before
    here.service.kill()
    # what computed for the dead service must not go on computing
    wait_for(lambda: not set(before) & set(runner_processes()), 15, "the runners ended with the service")
    here.service.start()
    here.wait_for_comment(issue, "ready for review", 300)
    assert_done_once(here, issue, command)


def assert_done_once(here: Scene, issue: int, command: int) -> None:
    """One status comment, one branch with one commit, one pull request, one check a gate, one 👀."""
    assert len(here.bot_comments(issue)) == 1
    reactions = [one["content"] for one in here.call("GET", f"/issues/comments/{command}/reactions")]
    assert reactions.count("eyes") == 1
    (pull,) = here.call("GET", "/pulls", params={"state": "all"})
    assert pull["draft"]
    branches = [one["name"] for one in here.call("GET", "/branches") if one["name"].startswith("liger-bot/")]
    assert branches == [pull["head"]["ref"]]
    assert len(here.call("GET", f"/pulls/{pull['number']}/commits")) == 1
    assert len(here.call("GET", f"/pulls/{pull['number']}/files")) == 7
    runs = here.call("GET", f"/commits/{pull['head']['sha']}/check-runs")["check_runs"]
    conclusions = sorted((run["name"], run["conclusion"]) for run in runs)
    assert conclusions == [
        ("liger-bot / benchmark", "neutral"),
        ("liger-bot / compile", "success"),
        ("liger-bot / correctness", "success"),
        ("liger-bot / style", "success"),
    ]
