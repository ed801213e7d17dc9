"""What people do with a pull request of ours: pushes, revisions, merges; with our real tables, real git and the local GitHub."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from agents.candidate import Candidate
from app.github import GitHubApp
from app.stages import act, verify
from app.states import Stage, State
from app.store import Store
from app.tables import Request
from runners.protocol import KernelTarget
from tests.contract.app.conftest import FULL_NAME, Place
from tests.contract.app.test_intake import Desk
from tests.unit.app.profiles import kernel_profile

BRANCH, PATH = "liger-bot/relu-squared-x", "src/ops.py"


class PullDesk(Desk):
    """A desk with a request whose pull request is really there."""

    def api(self, method: str, path: str, **arguments: Any) -> Any:
        with self.place.as_user("maintainer") as client:
            answer = client.request(method, f"/repos/{FULL_NAME}{path}", **arguments)
            answer.raise_for_status()
            return answer.json() if answer.content else None

    def ready(self, number: int | None) -> None:
        """A draft can't be merged."""
        node = self.api("GET", f"/pulls/{number}")["node_id"]
        mutation = "mutation($id: ID!) { markPullRequestReadyForReview(input: {pullRequestId: $id}) { clientMutationId } }"
        with self.place.as_user("maintainer") as client:
            answer = client.post("/graphql", json={"query": mutation, "variables": {"id": node}})
            answer.raise_for_status()
            assert "errors" not in answer.json(), answer.text

    def push(self, text: str) -> str:
        """A person commits to the branch; returns the commit."""
        known = self.api("GET", f"/contents/{PATH}", params={"ref": BRANCH})["sha"]
        content = base64.b64encode(text.encode()).decode()
        body = {"message": "By hand", "content": content, "branch": BRANCH, "sha": known}
        return self.api("PUT", f"/contents/{PATH}", json=body)["commit"]["sha"]

    async def reviewed(self) -> Request:
        request = await self.waiting()
        await self.says("/liger approve")
        main = self.api("GET", "/branches/main")["commit"]["sha"]
        self.api("POST", "/git/refs", json={"ref": f"refs/heads/{BRANCH}", "sha": main})
        sha = self.push("one = 2\n")
        pull = self.api("POST", "/pulls", json={"head": BRANCH, "base": "main", "title": "t", "draft": True})
        op = kernel_profile().op
        target = KernelTarget(
            op=op, module="m", function_class="F", kernels=["_k"], call_order=["x"], path=PATH
        )
        candidate = Candidate(
            files={PATH: "one = 2\n"},
            target=target,
            tests=[],
            commit_message="c",
            pull_title="t",
            pull_body="b",
        )
        self.store.save_candidate(request.id, 1, 0, candidate)
        self.store.candidate_pushed(request.id, 1, 0, sha)
        known = {"pull_number": pull["number"], "head_sha": sha, "branch": BRANCH, "default_branch": "main"}
        self.store.move(request.id, State.verifying, **known)
        return self.store.move(request.id, State.in_review)

    async def synchronized(self, sha: str, login: str = "maintainer") -> str:
        pull = {"number": self.request.pull_number, "head": {"sha": sha}}
        return await self.happens("pull_request", "synchronize", login, pull_request=pull)


@pytest.fixture
async def desk(place: Place, github: GitHubApp, store: Store, tmp_path: Path) -> PullDesk:
    desk = PullDesk(place, github, store, tmp_path / "data")
    await desk.reviewed()
    desk.engine.started.clear()
    return desk


async def test_a_persons_push_is_verified_as_it_stands_and_never_repaired(desk: PullDesk):
    sha = desk.push("one = 3\n")
    assert "it is verified" in await desk.synchronized(sha)
    request = desk.request
    assert (request.state, request.attempt, request.head_sha) == (State.verifying, 2, sha)
    assert desk.engine.started == [(Stage.verify, request.id, 2)]
    stored = desk.store.candidate(request.id, pushed=True)
    assert stored is not None
    assert (stored.head_sha, stored.pushed_by) == (sha, "maintainer")
    assert stored.body["files"] == {PATH: "one = 3\n"}
    assert await verify.repair(desk.ports, request.id, 1) is False
    # the same delivery again, and the bot's own pushes, change nothing
    assert await desk.synchronized(sha) == "the commit is known"
    assert await desk.synchronized("d" * 40, "liger-bot[bot]") == "our own doing"
    assert desk.request.attempt == 2


async def test_a_push_while_a_verification_runs_takes_its_place(desk: PullDesk):
    desk.store.retry(desk.request.id, State.verifying, attempt=2)
    sha = desk.push("one = 4\n")
    await desk.synchronized(sha)
    assert (desk.request.attempt, desk.request.head_sha) == (3, sha)
    assert desk.engine.cancelled == [desk.request.id]


async def test_a_push_while_a_revision_waits_is_left_alone(desk: PullDesk):
    await desk.says("/liger revise operation_name=other")
    assert "is left alone" in await desk.synchronized(desk.push("one = 5\n"))


async def test_a_revision_on_the_pull_request_is_another_attempt(desk: PullDesk):
    before = desk.request.pull_number
    assert before is not None
    desk.issue, issue = before, desk.issue
    await desk.says("/liger revise operation_name=other")
    request = desk.request
    assert (request.state, request.attempt, request.issue_number) == (State.revising, 2, issue)
    assert request.changes == {"operation_name": "other"}
    assert desk.engine.started == [(Stage.understand, request.id, 2)]

    # once it has a pull request of its own, the first one is closed and says so
    desk.store.save_profile(request.id, 2, kernel_profile())
    stored = desk.store.candidate(request.id)
    assert stored is not None
    desk.store.save_candidate(request.id, 2, 0, Candidate.model_validate(stored.body))
    desk.store.move(request.id, State.awaiting_approval)
    desk.store.move(request.id, State.acting)
    desk.api("POST", "/git/refs", json={"ref": f"refs/heads/{BRANCH}-2", "sha": request.head_sha})
    desk.store.update_request(request.id, branch=f"{BRANCH}-2")
    number = await act.open_pull(desk.ports, request.id)
    assert number != before
    assert desk.api("GET", f"/pulls/{before}")["state"] == "closed"
    assert f"Replaced by #{number}" in desk.bodies()[-1]
    assert (
        await desk.happens("pull_request", "closed", pull_request={"number": before})
        == "not a pull request of ours"
    )
    assert desk.request.state == State.verifying


@pytest.mark.parametrize("state", [State.in_review, State.verifying, State.revising])
async def test_a_merge_ends_the_request_wherever_it_is_and_records_the_outcome(desk: PullDesk, state: State):
    if state is not State.in_review:
        desk.store.retry(desk.request.id, state, attempt=2)
    number = desk.request.pull_number
    desk.ready(number)
    sha = desk.api("PUT", f"/pulls/{number}/merge")["sha"]
    pull = {"number": number, "merged": True, "merge_commit_sha": sha}
    await desk.happens("pull_request", "closed", pull_request=pull)
    request = desk.request
    assert (request.state, request.ended_by, request.live_key) == (State.merged, "maintainer", None)
    assert desk.engine.cancelled == [request.id]
    (outcome,) = [one.text for one in desk.store.events(request.id) if one.kind == "outcome"]
    assert outcome.startswith(f"merged by maintainer as {sha[:12]}")


@pytest.mark.parametrize(
    ("merged", "state", "words"), [(True, State.merged, "was merged"), (False, State.closed, "was closed")]
)
async def test_what_people_do_with_the_pull_request_ends_the_request_and_is_told(
    desk: PullDesk, merged: bool, state: State, words: str
):
    number = desk.request.pull_number
    if merged:
        desk.ready(number)
        desk.api("PUT", f"/pulls/{number}/merge")
    else:
        desk.api("PATCH", f"/pulls/{number}", json={"state": "closed"})
    await desk.happens("pull_request", "closed", pull_request={"number": number, "merged": merged})
    assert desk.request.state == state
    assert words in desk.bodies()[0]
    other = await desk.happens("pull_request", "closed", pull_request={"number": 999, "merged": merged})
    assert other == "not a pull request of ours"


async def test_a_pull_request_that_is_opened_again_waits_for_review_again(desk: PullDesk):
    number = desk.request.pull_number
    desk.api("PATCH", f"/pulls/{number}", json={"state": "closed"})
    await desk.happens("pull_request", "closed", pull_request={"number": number})
    assert desk.request.state == State.closed
    desk.api("PATCH", f"/pulls/{number}", json={"state": "open"})
    await desk.happens("pull_request", "reopened", pull_request={"number": number})
    assert (desk.request.state, desk.request.ended_by) == (State.in_review, None)


async def test_an_old_delivery_of_a_close_or_a_reopening_changes_nothing(desk: PullDesk):
    """Signed and true once: sent again by whoever kept it, or come after a later one."""
    number = desk.request.pull_number
    merged = {"number": number, "merged": True, "merge_commit_sha": "e" * 40}
    said = await desk.happens("pull_request", "closed", pull_request=merged)
    assert said == f"closed before: pull request #{number} is open now"
    assert (desk.request.state, desk.engine.cancelled) == (State.in_review, [])
    desk.api("PATCH", f"/pulls/{number}", json={"state": "closed"})
    assert "is closed" in await desk.happens("pull_request", "closed", pull_request={"number": number})
    said = await desk.happens("pull_request", "reopened", pull_request={"number": number})
    assert said == f"reopened before: pull request #{number} is closed now"
    assert desk.request.state == State.closed


async def test_retry_and_status_are_understood_on_the_pull_request(desk: PullDesk):
    assert desk.request.pull_number is not None
    desk.issue = desk.request.pull_number
    await desk.says("/liger status")
    assert desk.request.id in desk.bodies()[-1]
    await desk.says("/liger retry")
    assert (desk.request.state, desk.request.attempt) == (State.verifying, 2)
    await desk.says("/liger cancel")
    assert desk.request.state == State.cancelled
