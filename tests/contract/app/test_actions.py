"""Dispatched jobs on a local GitHub: how each ends, and what the check run then says. The tests play the runners."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from agents.candidate import Candidate
from agents.profiles import KernelProfile
from app.actions.artifact import MAX_ZIP_BYTES
from app.actions.following import Follower
from app.actions.sending import send
from app.actions.workflow import WORKFLOW_PATH, workflow_text
from app.check_runs import cancel_checks
from app.dispatch import LocalBench
from app.github import GitHubApp
from app.ports import Ports
from app.settings import Settings
from app.stages import verify
from app.states import State
from app.status_comment import StatusComments
from app.store import NewRequest, Store, now
from app.tables import Approval, Request
from runners.envelope import DispatchedReport, unpack
from runners.protocol import (
    AnalyzePayload,
    AnalyzeResult,
    Environment,
    Gate,
    Isolation,
    Job,
    KernelTarget,
    Measurement,
    Outcome,
    Report,
    Status,
    Verdict,
)
from tests.artifacts import zipped
from tests.contract.app.conftest import FULL_NAME, Place, made_place
from tests.contract.app.test_intake import NotingEngine
from tests.dev_profiles import RELU_SQUARED
from tests.unit.app.profiles import kernel_profile

CONFIG = """\
runners:
  sm_90: [self-hosted, h100]
  gfx942: [self-hosted, mi300]
"""
PATH = "src/ops.py"


@pytest.fixture(scope="module")
def profile() -> KernelProfile:
    """A profile with a graph that was really traced: the plan of a verification is derived from it."""
    job = Job(id="trace", nonce="n", payload=AnalyzePayload(op=RELU_SQUARED))
    result = asyncio.run(LocalBench().run(job)).result
    assert isinstance(result, AnalyzeResult)
    return kernel_profile(traced=result.traced, op=result.op)


class GoingOn(NotingEngine):
    """Notes also whose verification goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.went_on: list[str] = []

    async def go_on(self, request_id: str) -> bool:
        self.went_on.append(request_id)
        return True


@dataclass
class Yard:
    """A request in verification whose candidate is the commit at main, and the service's hands without its engine."""

    place: Place
    ports: Ports
    follower: Follower
    engine: GoingOn
    request: Request

    @property
    def hub(self) -> Any:
        return self.place.hub

    def api(self, method: str, path: str, **arguments: Any) -> Any:
        with self.place.as_user("maintainer") as client:
            answer = client.request(method, f"/repos/{FULL_NAME}{path}", **arguments)
            answer.raise_for_status()
            return answer.json() if answer.content else None

    async def gate(self, gate: str = "correctness") -> str:
        return await verify.run_gate(self.ports, self.request.id, gate)

    def runs(self) -> list[dict[str, Any]]:
        """Those of this request."""
        found = self.api("GET", "/actions/runs", params={"per_page": 100})["workflow_runs"]
        return [run for run in found if f" {self.request.id}-" in run["display_title"]]

    def run_on(self, architecture: str = "sm_90") -> dict[str, Any]:
        return next(run for run in self.runs() if f" on {architecture} " in run["display_title"])

    def report(self, run: dict[str, Any], around: dict[str, Any] | None = None, **changes: Any) -> bytes:
        words = run["display_title"].split()
        gate = words[1].rsplit("-", 1)[-1]
        passed = Verdict(check=f"{gate}/all", gate=Gate(gate), outcome=Outcome.passed, summary="fine")
        fields = {
            "job_id": words[1],
            "nonce": words[-1],
            "kind": gate,
            "status": Status.completed,
            "verdicts": [passed],
            "environment": Environment(python="3.11", platform="linux", gpu="A GPU"),
            "isolation": Isolation(method="bubblewrap", network=False),
        } | changes
        outside = {"nonce": words[-1], "sha": self.request.head_sha} | (around or {})
        return DispatchedReport(**outside, report=Report(**fields)).model_dump_json().encode()

    def leave(self, run: dict[str, Any], packed: bytes, name: str = "") -> None:
        """A run leaves an artifact and ends well."""
        self.hub.add_artifact(
            run["id"], name or f"liger-bot-report-{run['display_title'].split()[-1]}", packed
        )
        self.hub.advance_run(run["id"], "completed", "success")

    async def other_is_fine(self) -> None:
        run = self.run_on("gfx942")
        self.leave(run, zipped(self.report(run)))
        await self.look()

    async def look(self) -> None:
        for dispatch in self.ports.store.open_dispatches():
            await self.follower.look(dispatch.id)

    def check(self, gate: str = "correctness") -> dict[str, Any]:
        where = f"/commits/{self.request.head_sha}/check-runs"
        checks = self.api("GET", where, params={"filter": "all", "per_page": 100})["check_runs"]
        (found,) = [one for one in checks if one["external_id"] == f"{self.request.id}-1-0-{gate}"]
        return found


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Place, str]]:
    """One repository for all tests, with the workflow and a configuration, and the commit that has them."""
    with made_place(tmp_path_factory.mktemp("ground")) as place, place.as_user("maintainer") as client:
        for path, text in ((WORKFLOW_PATH, workflow_text()), (".github/liger-bot.yml", CONFIG)):
            body = {"message": "Add", "content": base64.b64encode(text.encode()).decode()}
            answer = client.put(f"/repos/{FULL_NAME}/contents/{path}", json=body)
            answer.raise_for_status()
        yield place, answer.json()["commit"]["sha"]


@pytest.fixture
async def yard(ground: tuple[Place, str], profile: KernelProfile, tmp_path: Path) -> AsyncIterator[Yard]:
    place, sha = ground
    github = GitHubApp(place.app.id, place.app.private_key, place.served.api_url)
    settings = Settings(
        webhook_secret=SecretStr("s"),
        app_id=place.app.id,
        private_key=SecretStr(place.app.private_key),
        github_url=place.served.api_url,
        github_web_url=place.served.url,
        data_dir=tmp_path / "data",
        actions_gates="style,correctness,compile,benchmark",
    )
    store = Store.open(settings.store_url)
    ports = Ports(settings, store, github, StatusComments(settings, store, github), LocalBench())
    # an id of its own, and with it external ids of its own on the commit that all tests share
    new = NewRequest(
        FULL_NAME,
        place.installation_id,
        (issue := place.open_issue()),
        issue,
        "maintainer",
        7,
        "dev",
        "relu2",
        "relu_squared",
    )
    request = store.create_request(new)
    store.save_profile(request.id, 1, profile)
    store.approve(
        Approval(
            request_id=request.id,
            profile_sha256=profile.sha256(),
            login="m",
            by="command",
            source_id=1,
            at=now(),
        )
    )
    target = KernelTarget(
        op=profile.op, module="m", function_class="F", kernels=["_k"], call_order=["x"], path=PATH
    )
    candidate = Candidate(
        files={PATH: "one = 1\n"}, target=target, tests=[], commit_message="c", pull_title="t", pull_body="b"
    )
    store.save_candidate(request.id, 1, 0, candidate)
    store.candidate_pushed(request.id, 1, 0, sha)
    for state in (State.understanding, State.awaiting_approval, State.acting, State.verifying):
        request = store.move(request.id, state, default_branch="main", head_sha=sha)
    engine = GoingOn()
    made = Yard(place, ports, Follower(ports, engine), engine, request)
    yield made
    for run in made.runs():
        place.hub.advance_run(run["id"], "completed", "cancelled")
    store.close()
    await github.close()


async def test_every_architecture_gets_its_job_and_one_check_joins_them(yard: Yard):
    assert await yard.gate() == verify.WAITING
    assert await yard.gate() == verify.WAITING  # a step that runs again sends nothing again
    assert len(yard.runs()) == 2
    check = yard.check()
    assert (check["status"], check["output"]["title"]) == ("in_progress", "waiting for runners")
    first, second = yard.run_on("sm_90"), yard.run_on("gfx942")
    yard.leave(first, zipped(yard.report(first)))
    await yard.look()
    assert "| ✅ | `sm_90` |" in yard.check()["output"]["summary"]
    assert "| ⏳ | `gfx942` |" in yard.check()["output"]["summary"]
    slow = Verdict(
        check="gauntlet/nan", gate=Gate.correctness, outcome=Outcome.failed, summary="NaN @everyone"
    )
    yard.leave(second, zipped(yard.report(second, verdicts=[slow])))
    await yard.look()
    check = yard.check()
    assert (check["status"], check["conclusion"]) == ("completed", "failure")
    assert check["output"]["title"].startswith("gfx942: gauntlet/nan")
    assert "@everyone" not in check["output"]["summary"]
    assert yard.engine.went_on[-1] == yard.request.id
    assert await yard.gate() == "failure"
    job = yard.ports.store.job(f"{yard.request.id}-1-0-correctness")
    assert job is not None
    assert job.report is not None
    assert job.report["verdicts"][0]["outcome"] == "failed"  # what a repair starts from


async def test_inputs_hold_ids_and_a_job_without_the_candidates_text(yard: Yard, tmp_path: Path):
    await yard.gate("style")
    dispatch = yard.ports.store.open_dispatches()[0]
    inputs = yard.hub.take_job("box", dispatch.labels).contexts["inputs"]
    assert set(inputs) == {"job_id", "nonce", "sha", "architecture", "labels", "job"}
    assert inputs["sha"] == yard.request.head_sha
    (tmp_path / "src").mkdir()
    (tmp_path / PATH).write_text("from the commit\n")
    job = unpack(inputs["job"], tmp_path)
    assert job.payload.files == {PATH: "from the commit\n"}  # type: ignore[union-attr]
    assert (job.nonce, job.payload.checkout) == (inputs["nonce"], str(tmp_path))  # type: ignore[union-attr]


async def test_after_a_crash_the_run_is_found_by_its_nonce(yard: Yard):
    await yard.gate()
    for dispatch in yard.ports.store.open_dispatches():
        yard.ports.store.update_dispatch(dispatch.id, state="intended", run_id=None, sent_at=None)
    await yard.gate()
    assert len(yard.runs()) == 2
    assert {one.run_id for one in yard.ports.store.open_dispatches()} == {run["id"] for run in yard.runs()}


def forged(**changes: Any):
    return lambda yard, run: yard.leave(run, zipped(yard.report(run, **changes)))


FAULTS: dict[str, tuple[Any, str, str]] = {
    "another nonce": (forged(nonce="0" * 32), "not the report of this job", "another dispatch's nonce"),
    "a bomb": (
        lambda yard, run: yard.leave(run, zipped(b"\0" * 64 * 1024 * 1024)),
        "too large to be a report",
        "unpacks to more",
    ),
    "an open network": (
        forged(isolation=Isolation(method="limits", network=True)),
        "let the candidate reach a network",
        "Install bubblewrap",
    ),
    "a large zip": (
        lambda yard, run: yard.leave(run, b"x" * (MAX_ZIP_BYTES + 1)),
        "too large to be a report",
        "the artifact has",
    ),
    "a lost runner": (
        lambda yard, run: yard.hub.advance_run(run["id"], "completed", "failure"),
        "ended without a report",
        "it ended as failure",
    ),
    "a cancelled run": (
        lambda yard, run: yard.api("POST", f"/actions/runs/{run['id']}/cancel"),
        "was cancelled",
        "/liger retry",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
async def test_what_is_no_report_of_this_job_fails_the_check_and_says_what_to_do(yard: Yard, name: str):
    happens, title, says = FAULTS[name]
    await yard.gate()
    happens(yard, yard.run_on("sm_90"))
    await yard.other_is_fine()
    check = yard.check()
    assert (check["status"], check["conclusion"]) == ("completed", "failure")
    assert title in check["output"]["title"]
    assert says in check["output"]["summary"].replace("\\", "")
    assert "| ✅ | `gfx942` |" in check["output"]["summary"]


async def test_a_report_that_expired_before_it_was_read(yard: Yard):
    await yard.gate("benchmark")
    for run in yard.runs():
        yard.leave(run, zipped(yard.report(run)))
    yard.hub.expire_artifacts()
    await yard.look()
    check = yard.check("benchmark")
    assert (check["conclusion"], "had expired" in check["output"]["title"]) == ("neutral", True)


async def test_a_job_that_no_runner_takes_is_given_up_and_its_run_cancelled(yard: Yard):
    await yard.gate("benchmark")
    for dispatch in yard.ports.store.open_dispatches():
        yard.ports.store.update_dispatch(dispatch.id, sent_at=yard.request.created_at.replace(year=2020))
    await yard.look()
    check = yard.check("benchmark")
    assert check["conclusion"] == "neutral"
    assert "No runner took the job" in check["output"]["title"]
    assert "self-hosted, mi300" in check["output"]["summary"].replace("\\", "")
    assert {run["conclusion"] for run in yard.runs()} == {"cancelled"}


async def test_a_runner_that_dies_in_the_middle(yard: Yard):
    await yard.gate()
    taken = yard.hub.take_job("box", ["self-hosted", "h100"])
    assert taken is not None
    await yard.look()
    assert "running" in yard.check()["output"]["summary"]
    yard.hub.lose_runner("box")
    await yard.other_is_fine()
    assert "ended without a report" in yard.check()["output"]["title"]


async def test_a_repository_without_the_workflow_is_given_it_as_text(yard: Yard):
    known = yard.api("GET", f"/contents/{WORKFLOW_PATH}")
    yard.api("DELETE", f"/contents/{WORKFLOW_PATH}", json={"message": "Remove", "sha": known["sha"]})
    try:
        assert await yard.gate() == "failure"
    finally:
        yard.api("PUT", f"/contents/{WORKFLOW_PATH}", json={"message": "Back", "content": known["content"]})
    check = yard.check()
    assert "workflow is missing" in check["output"]["title"]
    assert "runs-on: ${{ fromJSON(inputs.labels) }}" in check["output"]["text"]
    assert yard.runs() == []


async def test_a_run_that_someone_else_started_under_our_nonce_is_not_ours(yard: Yard):
    await yard.gate()
    ours = yard.run_on("sm_90")
    dispatch = next(one for one in yard.ports.store.open_dispatches() if one.run_id == ours["id"])
    inputs = {
        "job_id": dispatch.job_id, "nonce": dispatch.nonce, "sha": dispatch.head_sha,
        "architecture": "sm_90", "labels": "[\"x\"]", "job": "x",
    }  # fmt: skip
    name = WORKFLOW_PATH.rsplit("/", 1)[-1]
    yard.api("POST", f"/actions/workflows/{name}/dispatches", json={"ref": "main", "inputs": inputs})
    theirs = max(yard.runs(), key=lambda run: run["id"])
    yard.ports.store.update_dispatch(dispatch.id, run_id=theirs["id"])
    yard.leave(theirs, zipped(yard.report(theirs)))
    await yard.other_is_fine()
    check = yard.check()
    assert check["conclusion"] == "failure"
    assert "its actor is" in check["output"]["summary"]


async def test_the_budget_of_minutes_is_kept(yard: Yard):
    known = yard.api("GET", "/contents/.github/liger-bot.yml")
    text = base64.b64encode((CONFIG + "gpu_minutes_per_request: 0\n").encode()).decode()
    changed = yard.api(
        "PUT", "/contents/.github/liger-bot.yml", json={"message": "m", "content": text, "sha": known["sha"]}
    )
    try:
        assert await yard.gate("benchmark") == "neutral"
    finally:
        back = {"message": "m", "content": known["content"], "sha": changed["content"]["sha"]}
        yard.api("PUT", "/contents/.github/liger-bot.yml", json=back)
    assert "budget of GPU minutes is used up" in yard.check("benchmark")["output"]["title"]
    assert yard.runs() == []


async def test_a_request_that_ends_takes_its_runs_back(yard: Yard):
    await yard.gate()
    await cancel_checks(yard.ports, yard.request.id)
    assert {run["conclusion"] for run in yard.runs()} == {"cancelled"}
    assert yard.check()["conclusion"] == "cancelled"
    assert yard.ports.store.open_dispatches() == []


async def test_a_run_that_was_started_just_before_its_job_was_taken_back_is_cancelled(yard: Yard):
    await yard.gate()
    dispatch = yard.ports.store.open_dispatches()[0]
    # as between GitHub's answer and our note of it
    yard.ports.store.update_dispatch(dispatch.id, state="intended", run_id=None, sent_at=None)
    await cancel_checks(yard.ports, yard.request.id)
    assert {run["conclusion"] for run in yard.runs()} == {"cancelled"}
    # as when the step was about to send while it was taken back
    await send(yard.ports, yard.request, dispatch, look_first=False)
    assert len(yard.runs()) == 3
    assert {run["conclusion"] for run in yard.runs()} == {"cancelled"}


async def test_times_are_shown_as_a_picture_on_a_branch_of_its_own(yard: Yard):
    await yard.gate("benchmark")
    for run in yard.runs():
        times = [
            Measurement(
                name=f"forward {provider}", unit="ms", median=value, low=value * 0.9, high=value * 1.1,
                tags={"shape": "8192x4096", "dtype": "bfloat16", "pass": "forward", "provider": provider},
            )
            for provider, value in (("candidate", 0.1), ("eager", 0.3))
        ]  # fmt: skip
        timed = Verdict(
            check="benchmark/time",
            gate=Gate.benchmark,
            outcome=Outcome.passed,
            summary="3.0x",
            measurements=times,
        )
        yard.leave(run, zipped(yard.report(run, verdicts=[timed])))
    await yard.look()
    check = yard.check("benchmark")
    assert check["conclusion"] == "success"
    url = check["output"]["summary"].split("](", 1)[1].split(")", 1)[0]
    commit = yard.api("GET", "/branches/liger-bot-assets")["commit"]["sha"]
    assert f"/raw/{commit}/requests/{yard.request.id}/" in url
    async with httpx.AsyncClient() as client:
        assert (await client.get(url)).content.startswith(b"\x89PNG")
