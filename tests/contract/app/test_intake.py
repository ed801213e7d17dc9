"""What deliveries lead to: with our real tables and the local GitHub; the engine only notes what it is asked to start."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import SecretStr

from agents.profiles import KernelProfile
from app.approvals import AGAIN_S, Approvals
from app.deliveries import NotYetError
from app.dispatch import LocalBench
from app.following import Following
from app.github import GitHubApp
from app.intake import Intake
from app.localhub.faults import RequestFault
from app.ports import Ports
from app.settings import Settings
from app.states import Stage, State
from app.status_comment import StatusComments
from app.store import Store, now
from app.tables import Request, StoredJob
from tests.contract.app.conftest import FULL_NAME, Place
from tests.unit.app.profiles import kernel_profile


class NotingEngine:
    """Starts nothing and notes it."""

    def __init__(self) -> None:
        self.started: list[tuple[Stage, str, int]] = []
        self.cancelled: list[str] = []

    async def start_stage(self, stage: Stage, request_id: str, attempt: int) -> None:
        self.started.append((stage, request_id, attempt))

    async def go_on(self, request_id: str) -> bool:
        return True

    async def cancel(self, request: Request) -> None:
        self.cancelled.append(request.id)


class Desk:
    """The service without its engine."""

    def __init__(self, place: Place, github: GitHubApp, store: Store, folder: Path, **settings: Any):
        self.place, self.store, self.engine = place, store, NotingEngine()
        self.settings = Settings(
            webhook_secret=SecretStr("s"),
            app_id=place.app.id,
            private_key=SecretStr(place.app.private_key),
            github_url=place.served.api_url,
            github_web_url=place.served.url,
            data_dir=folder,
            **settings,
        )
        status = StatusComments(self.settings, store, github)
        self.ports = Ports(self.settings, store, github, status, LocalBench())
        self.approvals = Approvals(self.ports, self.engine)
        self.following = Following(self.ports, self.engine, self.approvals)
        self.intake = Intake(self.ports, self.following, self.approvals)
        self.issue = place.open_issue()

    def event(self, action: str, login: str = "maintainer", **parts: Any) -> dict[str, Any]:
        sender = {"login": login, "id": 7, "type": "Bot" if login.endswith("[bot]") else "User"}
        return {
            "action": action,
            "sender": sender,
            "repository": {"full_name": FULL_NAME},
            "installation": {"id": self.place.installation_id},
            **parts,
        }

    async def says(self, text: str, login: str = "maintainer") -> str:
        """A person comments; returns the note of what came of it."""
        comment = self.place.comment(self.issue, text, login)
        return await self.replay(comment, text, login)

    async def replay(
        self, comment: int, text: str, login: str = "maintainer", created_at: datetime | None = None
    ) -> str:
        event = self.event("created", login)
        event["issue"] = {"number": self.issue}
        event["comment"] = {
            "id": comment,
            "body": text,
            "user": event["sender"],
            "created_at": (created_at or now() + timedelta(seconds=1)).isoformat(),
        }
        return await self.intake.process("issue_comment", json.dumps(event))

    async def happens(self, event: str, action: str, login: str = "maintainer", **parts: Any) -> str:
        return await self.intake.process(event, json.dumps(self.event(action, login, **parts)))

    def bodies(self) -> list[str]:
        """What the bot posted on the issue."""
        with self.place.as_user("maintainer") as client:
            comments = client.get(f"/repos/{FULL_NAME}/issues/{self.issue}/comments").json()
        return [one["body"] for one in comments if one["user"]["type"] == "Bot"]

    async def in_progress(self) -> tuple[Request, int]:
        """A request whose comment says that it is being worked on, and the comment's id."""
        await self.says("/liger dev relu2")
        await self.ports.status.put(self.request.id)
        comment = self.request.status_comment_id
        assert comment is not None
        return self.request, comment

    @property
    def request(self) -> Request:
        return self.store.recent_requests()[0]

    async def waiting(self, profile: KernelProfile | None = None) -> Request:
        """A request whose profile was shown."""
        await self.says("/liger dev relu2")
        request = self.request
        self.store.move(request.id, State.understanding)
        self.store.save_profile(request.id, 1, profile or kernel_profile())
        await self.ports.status.show_profile(request.id)
        return self.store.move(request.id, State.awaiting_approval)

    async def in_review(self) -> Request:
        """A request whose pull request waits for people."""
        request = await self.waiting()
        await self.says("/liger approve")
        self.store.move(request.id, State.verifying, pull_number=77, head_sha="c" * 40)
        return self.store.move(request.id, State.in_review)


@pytest.fixture
def desk(place: Place, github: GitHubApp, store: Store, tmp_path: Path) -> Desk:
    return Desk(place, github, store, tmp_path / "data")


async def test_a_command_makes_a_request_and_starts_its_first_stage(desk: Desk):
    assert await desk.says("/liger dev relu2") == "followed: dev"
    assert desk.engine.started == [(Stage.understand, desk.request.id, 1)]
    assert (desk.request.op_key, desk.request.requester) == ("relu_squared", "maintainer")


async def test_a_delivery_processed_twice_changes_nothing(desk: Desk):
    comment = desk.place.comment(desk.issue, "/liger help")
    for _ in range(2):
        await desk.replay(comment, "/liger help")
    assert len(desk.bodies()) == 1


async def test_an_approval_processed_twice_is_one_and_says_nothing_odd(desk: Desk):
    request = await desk.waiting()
    comment = desk.place.comment(desk.issue, "/liger approve")
    for _ in range(2):
        await desk.replay(comment, "/liger approve")
    assert desk.store.request(request.id).state == State.acting
    assert [stage for stage, _, _ in desk.engine.started] == [Stage.understand, Stage.act]
    assert len(desk.bodies()) == 1


async def test_an_approval_written_before_the_profile_was_shown_does_not_count(desk: Desk):
    request = await desk.waiting()
    comment = desk.place.comment(desk.issue, "/liger approve")
    await desk.replay(comment, "/liger approve", created_at=datetime(2020, 1, 1, tzinfo=UTC))
    assert desk.store.request(request.id).state == State.awaiting_approval
    assert "there is nothing to approve here" in desk.bodies()[-1]


async def test_an_answer_in_the_moment_that_a_profile_is_shown_is_looked_at_again(desk: Desk):
    await desk.says("/liger dev relu2")
    request = desk.store.move(desk.request.id, State.understanding)
    desk.store.save_profile(request.id, 1, kernel_profile())
    await desk.ports.status.show_profile(request.id)
    comment = desk.place.comment(desk.issue, "/liger approve")
    with pytest.raises(NotYetError):
        await desk.replay(comment, "/liger approve")
    desk.store.move(request.id, State.awaiting_approval)
    await desk.replay(comment, "/liger approve")
    assert desk.store.request(request.id).state == State.acting
    assert len(desk.bodies()) == 1


async def test_an_approval_may_name_the_profile(desk: Desk):
    request = await desk.waiting()
    await desk.says("/liger approve 0123456789ab")
    assert desk.store.request(request.id).state == State.awaiting_approval
    await desk.says(f"/liger approve {kernel_profile().sha256()[:8]}")
    assert desk.store.request(request.id).state == State.acting


async def test_a_second_person_can_be_asked_for(
    place: Place, github: GitHubApp, store: Store, tmp_path: Path
):
    place.hub.create_user("second")
    place.hub.set_collaborator(FULL_NAME, "second", "write")
    place.tokens["second"] = place.hub.create_user("second")
    desk = Desk(place, github, store, tmp_path / "data", requester_may_approve=False)
    request = await desk.waiting()
    await desk.says("/liger approve")
    assert "the approval is a second person's" in desk.bodies()[-1]
    assert desk.store.request(request.id).state == State.awaiting_approval
    await desk.says("/liger approve", "second")
    assert desk.store.request(request.id).state == State.acting


async def test_reactions_are_read_when_anything_happens_on_the_issue(desk: Desk):
    request = await desk.waiting()
    comment = desk.store.request(request.id).status_comment_id
    assert comment is not None
    desk.place.react(comment, "+1", "stranger")
    await desk.approvals.poll()
    desk.place.react(comment, "+1")
    await desk.approvals.poll()  # it isn't due yet
    assert desk.store.request(request.id).state == State.awaiting_approval
    await desk.happens("issues", "edited", issue={"number": desk.issue})
    await desk.approvals.poll()
    assert desk.store.request(request.id).state == State.acting
    approval = desk.store.approval(request.id, kernel_profile().sha256())
    assert approval is not None
    assert (approval.login, approval.by) == ("maintainer", "reaction")


async def test_a_thumb_that_was_there_before_the_profile_is_stale(desk: Desk):
    request, comment = await desk.in_progress()
    desk.place.react(comment, "+1")
    desk.store.move(request.id, State.understanding)
    desk.store.save_profile(request.id, 1, kernel_profile())
    await desk.ports.status.show_profile(request.id)
    desk.store.move(request.id, State.awaiting_approval)
    await desk.approvals.poll()
    assert desk.store.request(request.id).state == State.awaiting_approval


async def test_a_thumb_of_a_later_second_counts_though_it_is_there_at_the_first_look(desk: Desk):
    request, comment = await desk.in_progress()
    desk.store.move(request.id, State.understanding)
    desk.store.save_profile(request.id, 1, kernel_profile())
    slow = RequestFault(kind="latency", method="GET", path=f"/comments/{comment}/reactions", seconds=3)
    desk.place.hub.faults.add(slow)
    showing = asyncio.create_task(desk.ports.status.show_profile(request.id))
    await asyncio.sleep(1.6)  # the comment is written, and its second is over
    desk.place.react(comment, "+1")
    await showing
    desk.place.hub.faults.clear()
    desk.store.move(request.id, State.awaiting_approval)
    await desk.approvals.poll()
    assert desk.store.request(request.id).state == State.acting


async def test_a_thumb_from_before_the_profile_is_told_once_that_it_does_not_count(desk: Desk):
    request, comment = await desk.in_progress()
    desk.place.react(comment, "+1", "stranger")
    desk.place.react(comment, "+1")  # on what still says that the reference is being read
    await asyncio.sleep(1.1)  # GitHub's times have whole seconds
    desk.store.move(request.id, State.understanding)
    desk.store.save_profile(request.id, 1, kernel_profile())
    await desk.ports.status.show_profile(request.id)
    desk.store.move(request.id, State.awaiting_approval)
    for approvals in (desk.approvals, desk.approvals, Approvals(desk.ports, desk.engine)):
        await approvals.read(request.id)
    profile = desk.store.profile(request.id)
    assert profile is not None
    told = [body for body in desk.bodies() if "was there before this profile was" in body]
    assert len(told) == 1
    assert "@maintainer" in told[0]
    assert f"/liger approve {profile.sha256[:12]}" in told[0]
    assert desk.store.request(request.id).state == State.awaiting_approval


async def test_an_answer_that_decided_nothing_is_judged_again_ever_more_seldom_and_when_something_happens(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
):
    clock = SimpleNamespace(seconds=1000.0)
    monkeypatch.setattr("app.approvals.time", SimpleNamespace(monotonic=lambda: clock.seconds))

    async def after(seconds: float) -> str:
        clock.seconds += seconds
        await desk.approvals.poll()
        return desk.request.state

    request = await desk.waiting()
    assert request.status_comment_id is not None
    desk.place.react(request.status_comment_id, "+1", "stranger")
    assert await after(0) == State.awaiting_approval
    assert await after(AGAIN_S + 1) == State.awaiting_approval
    desk.place.hub.set_collaborator(FULL_NAME, "stranger", "write")
    assert await after(AGAIN_S + 1) == State.awaiting_approval  # it is judged after twice the time now
    await desk.happens("issues", "edited", issue={"number": desk.issue})
    assert await after(1) == State.acting


async def test_a_comment_that_is_edited_while_its_answers_are_read_is_not_approved(desk: Desk):
    request = await desk.waiting()
    comment = desk.store.request(request.id).status_comment_id
    assert comment is not None
    slow = RequestFault(kind="latency", method="GET", path=f"/comments/{comment}/reactions", seconds=1.5)
    desk.place.hub.faults.add(slow)
    reading = asyncio.create_task(desk.approvals.read(request.id))
    await asyncio.sleep(0.7)  # by now the first question was asked
    desk.place.hub.faults.clear()
    with desk.place.as_user("maintainer") as client:
        path = f"/repos/{FULL_NAME}/issues/comments/{comment}"
        body = client.get(path).json()["body"].replace("relu2", "evil")
        client.patch(path, json={"body": body}).raise_for_status()
    desk.place.react(comment, "+1")
    await reading
    assert desk.store.request(request.id).state == State.awaiting_approval
    assert any("the profile's comment had been edited" in body for body in desk.bodies())


async def test_a_writers_thumb_down_rejects(desk: Desk):
    request = await desk.waiting()
    comment = desk.store.request(request.id).status_comment_id
    assert comment is not None
    desk.place.react(comment, "-1")
    await desk.approvals.poll()
    assert desk.store.request(request.id).state == State.rejected
    assert "This request was rejected by maintainer" in desk.bodies()[0]


async def test_a_shown_profile_that_was_deleted_is_shown_again(desk: Desk):
    request = await desk.waiting()
    comment = desk.store.request(request.id).status_comment_id
    with desk.place.as_user("maintainer") as client:
        client.delete(f"/repos/{FULL_NAME}/issues/comments/{comment}").raise_for_status()
    await desk.approvals.read(request.id)
    assert "waiting for your decision" in desk.bodies()[0]
    assert desk.store.request(request.id).status_comment_id != comment


async def test_an_unanswered_profile_expires(place: Place, github: GitHubApp, store: Store, tmp_path: Path):
    desk = Desk(place, github, store, tmp_path / "data", approval_days=1e-9)
    request = await desk.waiting()
    await desk.approvals.poll()
    assert desk.store.request(request.id).state == State.expired
    assert "This request has expired" in desk.bodies()[0]


async def test_a_revision_is_another_attempt_and_a_retry_too(desk: Desk):
    request = await desk.waiting()
    await desk.says("/liger revise operation_name=squared_relu")
    revised = desk.store.request(request.id)
    assert (revised.state, revised.attempt, revised.changes) == (
        State.revising,
        2,
        {"operation_name": "squared_relu"},
    )
    desk.store.fail(request.id, Stage.understand, {"kind": "fault", "reason": "the disk is full"})
    await desk.says("/liger retry")
    again = desk.store.request(request.id)
    assert (again.state, again.attempt, again.failure) == (State.revising, 3, None)
    assert desk.engine.started[1:] == [(Stage.understand, request.id, 2), (Stage.understand, request.id, 3)]


async def test_a_check_can_be_asked_for_again_by_writers(desk: Desk):
    request = await desk.in_review()
    job = StoredJob(
        id=f"{request.id}-1-0-style",
        request_id=request.id,
        attempt=1,
        round=0,
        gate="style",
        nonce="n",
        head_sha="c" * 40,
        state="done",
        title="",
        created_at=now(),
    )
    desk.store.start_job(job)
    check = {"check_run": {"external_id": job.id}}
    await desk.happens("check_run", "rerequested", "stranger", **check)
    assert desk.store.request(request.id).state == State.in_review
    await desk.happens("check_run", "rerequested", **check)
    assert desk.store.request(request.id).state == State.verifying
    assert desk.engine.started[-1] == (Stage.verify, request.id, 2)


async def test_a_whole_suite_can_be_asked_for_again(desk: Desk):
    request = await desk.in_review()
    await desk.happens("check_suite", "rerequested", check_suite={"head_sha": "c" * 40})
    assert desk.engine.started[-1] == (Stage.verify, request.id, 2)


async def test_a_cancel_stops_the_engine_and_completes_the_checks(desk: Desk):
    request = await desk.waiting()
    await desk.says("/liger cancel")
    assert desk.engine.cancelled == [request.id]
    assert desk.store.request(request.id).state == State.cancelled


async def test_what_is_not_a_known_payload_is_noted(desk: Desk):
    assert (await desk.intake.process("issue_comment", '{"action": "created"}')).startswith(
        "not an understood issue_comment"
    )


async def test_the_bots_own_comments_are_not_read(desk: Desk):
    assert await desk.replay(1, "/liger dev relu2", "liger-bot[bot]") == "not written by a person"
    assert desk.store.recent_requests() == []


async def test_two_people_asking_for_the_same_op_get_one_request(desk: Desk):
    await desk.says("/liger dev relu2")
    await desk.says("/liger dev Squared ReLU")
    assert len(desk.store.recent_requests()) == 1
    assert "is being worked on already" in desk.bodies()[-1]
