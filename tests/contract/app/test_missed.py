"""What GitHub couldn't tell: failed deliveries are asked for again, untold comments and closed pull requests are found."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import SecretStr

from app.dispatch import LocalBench
from app.github import GitHubApp
from app.localhub.faults import DeliveryFault
from app.missed import Missed
from app.ports import Ports
from app.settings import Settings
from app.states import State
from app.status_comment import StatusComments
from app.store import NewDelivery, NewRequest, Store, now
from tests.contract.app.conftest import FULL_NAME, Place

NO_TIME = timedelta(0)


@pytest.fixture
async def ports(place: Place, github: GitHubApp, tmp_path: Path) -> AsyncIterator[Ports]:
    settings = Settings(
        webhook_secret=SecretStr("s3cret"),
        app_id=place.app.id,
        private_key=SecretStr(place.app.private_key),
        github_url=place.served.api_url,
        data_dir=tmp_path,
        executor_id="test",
    )
    store = Store.open(settings.store_url)
    yield Ports(settings, store, github, StatusComments(settings, store, github), LocalBench())
    store.close()


class Inbox:
    """Keeps what is found as the real one does, and doesn't process it."""

    def __init__(self, store: Store):
        self._store = store
        self.fresh: list[NewDelivery] = []

    async def accept(self, delivery: NewDelivery) -> bool:
        fresh = bool(self._store.write_deliveries([delivery]))
        if fresh:
            self.fresh.append(delivery)
        return fresh


async def test_a_command_that_no_delivery_told_of_is_found_once(place: Place, ports: Ports):
    inbox = Inbox(ports.store)
    place.hub.faults.add(DeliveryFault(kind="drop"))
    missed = Missed(ports, inbox.accept, NO_TIME)
    issue = place.open_issue()
    place.comment(issue, "thank you")
    told = place.comment(issue, "/liger status")
    lost = place.comment(issue, "Please:\n\n/liger dev relu2")
    assert await inbox.accept(NewDelivery("told", "issue_comment", "{}", f"{FULL_NAME} comment {told}"))

    assert await missed.sweep_comments() == 1
    found = json.loads(inbox.fresh[-1].body)
    assert found["comment"]["id"] == lost
    assert found["issue"]["number"] == issue
    assert found["sender"]["login"] == "maintainer"
    assert await missed.sweep_comments() == 0
    # the delivery comes after all: it is kept, and not followed a second time
    late = NewDelivery("late", "issue_comment", "{}", f"{FULL_NAME} comment {lost}")
    assert not await inbox.accept(late)
    assert ports.store.delivery("late").state == "ignored"  # type: ignore[union-attr]
    assert await Missed(ports, inbox.accept, NO_TIME).sweep_comments() == 0


async def test_comments_that_are_just_written_are_left_to_their_delivery(place: Place, ports: Ports):
    inbox = Inbox(ports.store)
    missed = Missed(ports, inbox.accept)
    place.comment(place.open_issue(), "/liger dev relu2")
    assert await missed.sweep_comments() == 0


async def test_a_delivery_that_failed_is_asked_for_again_and_only_while_it_is_unknown(
    place: Place, ports: Ports
):
    place.hub.set_webhook("liger-bot", "http://127.0.0.1:9/webhook")  # nothing listens there
    inbox = Inbox(ports.store)
    place.comment(place.open_issue(), "/liger dev relu2")
    assert place.hub.deliveries_done(20)
    assert await Missed(ports, inbox.accept).ask_for_deliveries() >= 1
    assert place.hub.deliveries_done(20)
    for one in await ports.github.failed_deliveries(now() - timedelta(days=1)):
        await inbox.accept(NewDelivery(one.guid, one.event, "{}"))
    assert await Missed(ports, inbox.accept).ask_for_deliveries() == 0


async def test_a_pull_request_that_was_closed_unseen_is_noticed(place: Place, ports: Ports):
    inbox = Inbox(ports.store)
    with place.as_user("maintainer") as person:
        base = f"/repos/{FULL_NAME}"
        head = person.get(f"{base}/git/ref/heads/main").json()["object"]["sha"]
        person.post(f"{base}/git/refs", json={"ref": "refs/heads/work", "sha": head}).raise_for_status()
        person.put(
            f"{base}/contents/new.txt", json={"message": "new", "content": "bmV3Cg==", "branch": "work"}
        ).raise_for_status()
        pull = person.post(f"{base}/pulls", json={"title": "t", "head": "work", "base": "main"}).json()
        request = ports.store.create_request(
            NewRequest(FULL_NAME, place.installation_id, 1, 10, "maintainer", 7, "dev", "relu2", "relu2")
        )
        for state in (
            State.understanding,
            State.awaiting_approval,
            State.acting,
            State.verifying,
            State.in_review,
        ):
            ports.store.move(request.id, state, pull_number=pull["number"])
        missed = Missed(ports, inbox.accept)
        assert await missed.sweep_pulls() == 0
        person.patch(f"{base}/pulls/{pull['number']}", json={"state": "closed"}).raise_for_status()
    assert await missed.sweep_pulls() == 1
    (event,) = [json.loads(one.body) for one in inbox.fresh]
    assert (event["action"], event["pull_request"]["merged"]) == ("closed", False)
    assert event["sender"]["login"] == "maintainer"
    assert await missed.sweep_pulls() == 0
