"""The switches by which a test makes GitHub misbehave."""

import time

import httpx
import pytest
from githubkit.exception import RequestFailed

from app.localhub.faults import DeliveryFault, Faults, RequestFault
from tests.contract.localhub.conftest import OWNER, REPO, World


def open_issues(world: World, count: int) -> None:
    maintainer = world.as_maintainer()
    for number in range(count):
        maintainer.rest.issues.create(OWNER, REPO, title=str(number))


def titles(world: World) -> list[str]:
    return [item.body["issue"]["title"] for item in world.ear.of("issues", "opened")]


def test_dropped_delivery_is_lost_without_a_trace(world: World) -> None:
    world.hub.faults.add(DeliveryFault(kind="drop", events=["issues"], times=1))
    open_issues(world, 2)
    assert world.hub.deliveries_done()
    assert titles(world) == ["1"]
    app = world.as_app()
    listed = app.rest.apps.list_webhook_deliveries().parsed_data
    assert [item.event for item in listed].count("issues") == 1, (
        "what GitHub never attempted, it doesn't list"
    )


def test_duplicate_delivery_has_one_guid(world: World) -> None:
    world.hub.faults.add(DeliveryFault(kind="duplicate", events=["issues"]))
    open_issues(world, 1)
    first, second = world.ear.wait_for("issues", "opened", count=2)
    assert first.headers["X-GitHub-Delivery"] == second.headers["X-GitHub-Delivery"]


def test_delayed_delivery_arrives_late(world: World) -> None:
    world.hub.faults.add(DeliveryFault(kind="delay", events=["issues"], times=1, seconds=1.5))
    started = time.monotonic()
    open_issues(world, 2)
    world.ear.wait_for("issues", "opened", count=2)
    assert time.monotonic() - started >= 1.5
    assert titles(world) == ["1", "0"]


def test_reordered_deliveries_all_arrive(world: World) -> None:
    world.hub.faults.add(DeliveryFault(kind="reorder", events=["issues"], seconds=0.3))
    open_issues(world, 4)
    world.ear.wait_for("issues", "opened", count=4)
    assert sorted(titles(world)) == ["0", "1", "2", "3"]


def test_reordering_is_a_shuffle_that_repeats() -> None:
    def delays() -> list[float]:
        faults = Faults()
        faults.add(DeliveryFault(kind="reorder", seconds=2))
        return [faults.for_delivery("push").delay for _ in range(5)]

    assert delays() == delays()
    assert sorted(delays()) != delays()
    assert all(0 <= delay <= 2 for delay in delays())


@pytest.mark.parametrize("retry_after", [7, None])
def test_secondary_limit_with_and_without_retry_after(world: World, retry_after: int | None) -> None:
    world.hub.faults.add(
        RequestFault(kind="secondary_limit", method="POST", path="/issues", times=1, retry_after=retry_after)
    )
    reply = httpx.post(
        f"{world.served.api_url}repos/{OWNER}/{REPO}/issues",
        json={"title": "t"},
        headers={"Authorization": f"Bearer {world.maintainer}"},
    )
    assert reply.status_code == 403
    assert "secondary rate limit" in reply.json()["message"]
    assert reply.headers.get("Retry-After") == (str(retry_after) if retry_after else None)
    open_issues(world, 1)


def test_primary_limit_refuses_until_its_reset(world: World) -> None:
    bot = world.as_bot()
    bot.rest.repos.get(OWNER, REPO)
    world.hub.faults.add(RequestFault(kind="primary_limit", times=1, seconds=60))
    for _ in range(2):
        with pytest.raises(RequestFailed) as caught:
            bot.rest.repos.get(OWNER, REPO)
        headers = caught.value.response.headers
        assert (headers["X-RateLimit-Remaining"], caught.value.response.status_code) == ("0", 403)
        assert 0 < int(headers["X-RateLimit-Reset"]) - time.time() <= 60
    maintainer = world.as_maintainer()
    assert maintainer.rest.repos.get(OWNER, REPO).status_code == 200, "limits are each caller's own"


def test_server_error_may_come_after_the_effect(world: World) -> None:
    world.hub.faults.add(RequestFault(kind="server_error", method="POST", times=1, after_effect=True))
    maintainer = world.as_maintainer()
    with pytest.raises(RequestFailed) as caught:
        maintainer.rest.issues.create(OWNER, REPO, title="made all the same")
    assert caught.value.response.status_code == 502
    assert [item.title for item in maintainer.rest.issues.list_for_repo(OWNER, REPO).parsed_data] == [
        "made all the same"
    ]


def test_slow_receiver_times_out_and_is_not_waited_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.hub.deliveries_done()
    monkeypatch.setattr(world.hub._worker._client, "timeout", httpx.Timeout(0.3))
    world.ear.slow = 1.0
    open_issues(world, 1)
    world.hub.deliveries_done()
    app = world.as_app()
    newest = app.rest.apps.list_webhook_deliveries(per_page=1).parsed_data[0]
    assert (newest.status, newest.status_code) == ("timed out", 0)
    assert newest.duration >= 0.3


def test_switches_over_http_and_cleared(world: World) -> None:
    hub = f"{world.served.url}/_hub/faults"
    assert httpx.post(f"{hub}/requests", json={"kind": "server_error", "status": 500}).status_code == 204
    assert httpx.get(f"{world.served.api_url}zen").status_code == 500
    assert httpx.delete(hub).status_code == 204
    assert httpx.get(f"{world.served.api_url}zen").status_code == 200
    assert httpx.post(f"{hub}/deliveries", json={"kind": "explode"}).status_code == 422
