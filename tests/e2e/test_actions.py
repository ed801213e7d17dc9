"""GPU runners through GitHub Actions: comment, approval, dispatch, runner, artifact, check runs; and whatever can go wrong."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.actions.workflow import WORKFLOW_PATH, workflow_text
from runners.envelope import DispatchedReport
from runners.protocol import Environment, Gate, Isolation, Outcome, Report, Status, Verdict
from tests.artifacts import zipped
from tests.exhaustive import exhaustive
from tests.liger_checkout import liger_checkout
from tests.service_process import Scene, scene, wait_for

CONFIG = """\
runners:
  sm_90: [self-hosted, h100]
  gfx942: [self-hosted, mi300]
"""
GATES = ("style", "correctness", "compile", "benchmark")


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("actions")
    files = liger_checkout(folder / "files")
    (files / WORKFLOW_PATH).parent.mkdir(parents=True, exist_ok=True)
    (files / WORKFLOW_PATH).write_text(workflow_text())
    (files / ".github" / "liger-bot.yml").write_text(CONFIG)
    with scene(folder, files, ACTIONS_GATES=",".join(GATES)) as running:
        yield running


class RunnerProcess:
    """A runner of the local GitHub, as a process of its own."""

    def __init__(self, here: Scene, folder: Path, name: str, *labels: str):
        self.name = name
        self._log = (folder / f"{name}.log").open("wb")
        command = [sys.executable, "-m", "app.localhub.runner", "--hub", here.served.url, "--name", name]
        self.process = subprocess.Popen(
            [*command, "--labels", ",".join(("self-hosted", *labels)), "--work", str(folder / name)],
            env={**os.environ, "LIGER_BOT_HARNESS_PYTHON": sys.executable},
            stdout=self._log,
            stderr=self._log,
        )

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(how)
        self.process.wait(10)
        self._log.close()


class Played:
    """A request in verification, and the test as its runners."""

    def __init__(self, here: Scene, issue: int, pull: dict[str, Any]):
        self.here, self.issue = here, issue
        self.pull, self.sha, self.branch = pull["number"], pull["head"]["sha"], pull["head"]["ref"]
        self.request = self.branch.rsplit("-", 1)[-1]
        self.seen: set[int] = set()

    def run_of(self, gate: str, architecture: str = "sm_90") -> dict[str, Any]:
        """The newest run that was started for a gate and wasn't used by a test before."""

        def found() -> dict[str, Any] | None:
            for run in self.here.call("GET", "/actions/runs", params={"per_page": 100})["workflow_runs"]:
                words = run["display_title"].split()
                ours = words[1].startswith(f"{self.request}-") and words[1].endswith(f"-{gate}")
                if ours and words[3] == architecture and run["id"] not in self.seen:
                    return run
            return None

        run = wait_for(
            found, 30, f"a run for {gate} on {architecture}; {self.here.service.log.read_text()[-3000:]}"
        )
        self.seen.add(run["id"])
        return run

    def end(self, run: dict[str, Any], conclusion: str = "success") -> None:
        self.here.hub.advance_run(run["id"], "completed", conclusion)

    def answer(self, run: dict[str, Any], **changes: Any) -> None:
        """Leave the report of a gate in which all is well, or one with something changed, and end the run."""
        packed = zipped(report_for(run, self.sha, **changes))
        self.here.hub.add_artifact(run["id"], artifact_name(run), packed)
        self.end(run)

    def answer_all(self, *gates: str) -> None:
        """Answer for every gate, on both architectures."""
        for gate in gates:
            for architecture in ("sm_90", "gfx942"):
                self.answer(self.run_of(gate, architecture))

    def check(self, gate: str, until: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        def found() -> dict[str, Any] | None:
            run = self.here.check_runs(self.sha).get(f"liger-bot / {gate}")
            return run if run is not None and until(run) else None

        return wait_for(found, 60, f"{gate}: {self.here.check_runs(self.sha).get(f'liger-bot / {gate}')}")

    def concluded(self, gate: str, words: str = "") -> dict[str, Any]:
        return self.check(
            gate, lambda run: run["status"] == "completed" and words in f"{run['output']['title']}"
        )


def artifact_name(run: dict[str, Any]) -> str:
    return f"liger-bot-report-{nonce_of(run)}"


def nonce_of(run: dict[str, Any]) -> str:
    return run["display_title"].split()[-1]


def report_for(run: dict[str, Any], sha: str, **changes: Any) -> bytes:
    """What a runner would leave for that run; `changes`: to the report or, `sha` and `nonce`, to what is around it."""
    job_id = run["display_title"].split()[1]
    gate = job_id.rsplit("-", 1)[-1]
    fields: dict[str, Any] = {
        "job_id": job_id,
        "nonce": nonce_of(run),
        "kind": gate,
        "status": Status.completed,
        "verdicts": [Verdict(check=f"{gate}/all", gate=Gate(gate), outcome=Outcome.passed, summary="fine")],
        "environment": Environment(python="3.11", platform="linux", gpu="A GPU for tests"),
        "isolation": Isolation(method="bubblewrap", network=False),
    }
    around = {"sha": changes.pop("sha", sha), "nonce": changes.get("nonce", nonce_of(run))}
    return DispatchedReport(**around, report=Report(**fields | changes)).model_dump_json().encode()


def approved(here: Scene, op: str) -> Played:
    """A request with a pull request, whose candidate waits for runners."""
    issue = here.open_issue()
    here.comment(issue, f"/liger dev {op}")
    here.wait_for_comment(issue, "waiting for your decision", 120)
    here.comment(issue, "/liger approve")
    pulls = lambda: [one for one in here.call("GET", "/pulls") if op in one["head"]["ref"]]  # noqa: E731
    (pull,) = wait_for(pulls, 120, f"the pull request; {here.service.log.read_text()[-2000:]}")
    return Played(here, issue, pull)


def ready(here: Scene, pull: int) -> None:
    """A person takes the pull request out of draft, which only GraphQL can."""
    node = here.call("GET", f"/pulls/{pull}")["node_id"]
    query = "mutation($id: ID!) { markPullRequestReadyForReview(input: {pullRequestId: $id}) { clientMutationId } }"
    httpx.post(
        f"{here.served.url}/api/graphql",
        json={"query": query, "variables": {"id": node}},
        headers={"Authorization": f"Bearer {here.tokens['maintainer']}"},
    ).raise_for_status()


@pytest.mark.slow
def test_a_candidate_is_judged_by_runners_of_two_architectures(here: Scene, tmp_path: Path):
    played = approved(here, "squareplus")
    waiting = played.check("style", lambda run: "waiting for runners" in run["output"]["title"])
    assert waiting["status"] == "in_progress"
    assert "`mi300`" in waiting["output"]["summary"]

    boxes = [RunnerProcess(here, tmp_path, f"box-{label}", label) for label in ("h100", "mi300")]
    try:
        style = played.concluded("style")
        logs = "\n".join((tmp_path / f"{box.name}.log").read_text() for box in boxes)
        assert style["conclusion"] == "success", f"{style['output']}\n{logs}"
        assert "| ✅ | `sm_90` |" in style["output"]["summary"]
        assert "| ✅ | `gfx942` |" in style["output"]["summary"]
        # the gates after it are sent on their own
        wait_for(
            lambda: {"liger-bot / correctness", "liger-bot / compile"} <= set(here.check_runs(played.sha)),
            30,
            "the next gates",
        )
        here.comment(played.issue, "/liger cancel")
        here.wait_for_comment(played.issue, "This request was cancelled by maintainer")
        wait_for(
            lambda: (
                {run["status"] for run in here.call("GET", "/actions/runs")["workflow_runs"]} == {"completed"}
            ),
            20,
            "the runs were cancelled",
        )
        assert {run["status"] for run in here.check_runs(played.sha).values()} == {"completed"}
    finally:
        for box in boxes:
            box.end()


@exhaustive
@pytest.mark.slow
def test_a_pull_request_is_followed_until_it_is_merged(here: Scene):
    played = approved(here, "mish")
    played.answer_all("style", "correctness", "compile")
    played.concluded("compile", "1 passed")
    # the service may be down when runners answer
    runs = [played.run_of("benchmark", architecture) for architecture in ("sm_90", "gfx942")]
    here.service.kill()
    for run in runs:
        played.answer(run)
    here.service.start()
    here.wait_for_comment(played.issue, "ready for review", 60)
    first = {name: run["conclusion"] for name, run in here.check_runs(played.sha).items()}
    assert set(first.values()) == {"success"}

    # someone presses Re-run; one runner is not what it was
    style = here.check_runs(played.sha)["liger-bot / style"]["id"]
    here.call("POST", f"/check-runs/{style}/rerequest")
    run = played.run_of("style")
    played.answer(run, nonce="0" * 32)
    played.answer(played.run_of("style", "gfx942"))
    check = played.concluded("style", "not the report of this job")
    assert check["conclusion"] == "failure"
    assert "another dispatch" in check["output"]["summary"]
    played.run_of("correctness")

    # a person pushes: what was out is taken back, and the new commit is judged
    path = "src/liger_kernel/ops/mish.py"
    branch = played.branch
    known = here.call("GET", f"/contents/{path}", params={"ref": branch})
    text = base64.b64decode(known["content"]) + b"\n# by hand\n"
    body = {
        "message": "By hand",
        "branch": branch,
        "sha": known["sha"],
        "content": base64.b64encode(text).decode(),
    }
    played.sha = here.call("PUT", f"/contents/{path}", json=body)["commit"]["sha"]
    played.answer_all("style")
    assert played.concluded("style")["conclusion"] == "success"

    ready(here, played.pull)
    here.call("PUT", f"/pulls/{played.pull}/merge")
    here.wait_for_comment(played.issue, "merged")
    wait_for(
        lambda: (
            {one["status"] for one in here.call("GET", "/actions/runs")["workflow_runs"]} == {"completed"}
        ),
        20,
        "no run is left",
    )
    assert {run["status"] for run in here.check_runs(played.sha).values()} == {"completed"}
