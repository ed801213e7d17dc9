"""The runner process: jobs by label, steps, artifacts, cancel, and a runner that is lost."""

from __future__ import annotations

import base64
import io
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.contract.localhub.conftest import OWNER, REPO, World, listening, made_world

WORKFLOW = """\
name: work
run-name: work ${{ inputs.what }}
on:
  workflow_dispatch:
    inputs:
      what: {required: true}
      labels: {default: '["self-hosted"]'}
permissions:
  contents: read
concurrency:
  group: work-${{ inputs.what }}
  cancel-in-progress: true
jobs:
  work:
    runs-on: ${{ fromJSON(inputs.labels) }}
    steps:
      - name: Write
        env:
          WHAT: ${{ inputs.what }}
          READ_TOKEN: ${{ github.token }}
        run: |
          if [ "$WHAT" = sleep ]; then sleep 60; fi
          if [ "$WHAT" = fail ]; then exit 3; fi
          code="$(curl -s -o /dev/null -w '%{http_code}' -X PUT -d '{"message": "m", "content": "eA=="}' -H "Authorization: Bearer $READ_TOKEN" "$GITHUB_API_URL/repos/$GITHUB_REPOSITORY/contents/x")"
          printf '%s on %s, writing: %s' "$WHAT" "$GITHUB_REF_NAME" "$code" > "$RUNNER_TEMP/said.txt"
      - uses: actions/upload-artifact@b7c566a772e6b6bfb58ed0dc250532a479d7789f
        with: {name: "said-${{ inputs.what }}", path: "${{ runner.temp }}/said.txt"}
      - name: Tidy
        if: always()
        run: echo tidy
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("runner")
    with listening() as ear, made_world(folder, ear) as made:
        bot = made.as_maintainer()
        bot.rest.repos.create_or_update_file_contents(
            OWNER,
            REPO,
            ".github/workflows/work.yml",
            message="Add a workflow",
            content=base64.b64encode(WORKFLOW.encode()).decode(),
        )
        yield made


@pytest.fixture(scope="module")
def runner(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[bytes]]:
    """Starting it takes seconds, so one serves all tests; the last one kills it."""
    work = tmp_path_factory.mktemp("work")
    command = [sys.executable, "-m", "app.localhub.runner", "--hub", world.served.url, "--name", "box"]
    process = subprocess.Popen([*command, "--labels", "self-hosted,box", "--work", str(work)])
    yield process
    process.kill()
    process.wait()


def dispatch(world: World, **inputs: str) -> int:
    bot = world.as_bot()
    run = bot.rest.actions.create_workflow_dispatch(OWNER, REPO, "work.yml", ref="main", inputs=inputs)
    return run.parsed_data.workflow_run_id


def run_until(world: World, run_id: int, *states: str, seconds: float = 20) -> Any:
    end, bot = time.monotonic() + seconds, world.as_bot()
    while True:
        run = bot.rest.actions.get_workflow_run(OWNER, REPO, run_id).parsed_data
        if run.status in states:
            return run
        assert time.monotonic() < end, f"{run.status} after {seconds} s"
        time.sleep(0.1)


def job_of(world: World, run_id: int) -> Any:
    bot = world.as_bot()
    return bot.rest.actions.list_jobs_for_workflow_run(OWNER, REPO, run_id).parsed_data.jobs[0]


def cancel(world: World, run_id: int) -> None:
    bot = world.as_bot()
    bot.rest.actions.cancel_workflow_run(OWNER, REPO, run_id)


def test_a_job_runs_its_steps_and_leaves_an_artifact(world: World, runner: Any) -> None:
    run_id = dispatch(world, what="hello; id", labels='["self-hosted", "box"]')
    assert run_until(world, run_id, "completed").conclusion == "success"
    job = job_of(world, run_id)
    assert (job.status, job.conclusion, job.runner_name) == ("completed", "success", "box")
    assert [step.conclusion for step in job.steps or []] == ["success"] * 3
    bot = world.as_bot()
    artifact = bot.rest.actions.list_workflow_run_artifacts(OWNER, REPO, run_id).parsed_data.artifacts[0]
    where = httpx.get(
        artifact.archive_download_url, headers={"Authorization": f"Bearer {world.maintainer}"}
    ).headers["Location"]
    with zipfile.ZipFile(io.BytesIO(httpx.get(where).content)) as archive:
        assert archive.read("said.txt") == b"hello; id on main, writing: 403"
    actions = [item.action for item in world.ear.wait_for("workflow_job", count=3)][:3]
    assert actions == ["queued", "in_progress", "completed"]


def test_a_job_waits_for_a_runner_with_all_its_labels(world: World, runner: Any) -> None:
    run_id = dispatch(world, what="other", labels='["self-hosted", "elsewhere"]')
    done = dispatch(world, what="done")
    run_until(world, done, "completed")
    assert run_until(world, run_id, "queued").conclusion is None
    assert job_of(world, run_id).runner_name is None
    cancel(world, run_id)
    assert run_until(world, run_id, "completed").conclusion == "cancelled"


def test_a_step_that_fails_ends_the_job_but_for_what_always_runs(world: World, runner: Any) -> None:
    run_id = dispatch(world, what="fail")
    assert run_until(world, run_id, "completed").conclusion == "failure"
    assert [step.name for step in job_of(world, run_id).steps or []] == ["Write", "Tidy"]


def test_a_cancelled_job_is_stopped_and_the_runner_goes_on(world: World, runner: Any) -> None:
    run_id = dispatch(world, what="sleep")
    run_until(world, run_id, "in_progress")
    again = dispatch(world, what="sleep")  # of the same concurrency group
    assert run_until(world, run_id, "completed").conclusion == "cancelled"
    run_until(world, again, "in_progress")
    cancel(world, again)
    assert run_until(world, dispatch(world, what="after"), "completed").conclusion == "success"


def test_a_lost_runner_fails_its_job(world: World, runner: subprocess.Popen[bytes]) -> None:
    run_id = dispatch(world, what="sleep")
    run_until(world, run_id, "in_progress")
    runner.kill()
    assert world.hub.lose_runner("box") == 1
    assert run_until(world, run_id, "completed").conclusion == "failure"
    assert "lost communication" in (job_of(world, run_id).steps or [])[-1].name
