"""Webhooks: every event valid for githubkit's strict models, signed, recorded, sent once."""

import hashlib
import hmac
import time
from pathlib import Path

import pytest
from githubkit.exception import RequestFailed
from githubkit.webhooks import parse, verify

from tests.contract.localhub.conftest import OWNER, REPO, SECRET, World, branch_on
from tests.contract.localhub.life import live_a_whole_life


def test_a_whole_life_gives_events_that_githubkit_parses(world: World, tmp_path: Path) -> None:
    sha = live_a_whole_life(world, tmp_path, world.as_maintainer(), world.as_bot())

    for item in world.ear.heard:
        parse(item.event, item.raw)
    assert {(item.event, item.action) for item in world.ear.heard} == {
        ("ping", None),
        ("installation", "created"),
        ("installation", "suspend"),
        ("installation", "unsuspend"),
        ("installation_repositories", "added"),
        *(
            ("issues", action)
            for action in ("opened", "edited", "closed", "reopened", "labeled", "unlabeled")
        ),
        *(("issue_comment", action) for action in ("created", "edited", "deleted")),
        *(
            ("pull_request", action)
            for action in (
                "opened",
                "edited",
                "closed",
                "reopened",
                "synchronize",
                "ready_for_review",
                "converted_to_draft",
            )
        ),
        ("pull_request_review", "submitted"),
        *(("check_suite", action) for action in ("requested", "completed", "rerequested")),
        *(("check_run", action) for action in ("created", "completed", "rerequested")),
        ("push", None),
        *(("workflow_run", action) for action in ("requested", "in_progress", "completed")),
        *(("workflow_job", action) for action in ("queued", "in_progress", "completed")),
    }
    deleted = [item for item in world.ear.of("push") if item.body["deleted"]]
    assert [item.body["ref"] for item in deleted] == ["refs/heads/liger-bot/a"]
    assert world.ear.of("pull_request", "synchronize")[0].body["before"] == sha


def test_delivery_is_signed_over_the_raw_body(shared: World) -> None:
    maintainer = shared.as_maintainer()
    issue = maintainer.rest.issues.create(OWNER, REPO, title="Größe ✓ signed").parsed_data
    shared.hub.deliveries_done()
    heard = next(
        item for item in shared.ear.of("issues", "opened") if item.body["issue"]["number"] == issue.number
    )
    assert (
        heard.headers["X-Hub-Signature-256"]
        == "sha256=" + hmac.new(SECRET.encode(), heard.raw, hashlib.sha256).hexdigest()
    )
    assert verify(SECRET, heard.raw, heard.headers["X-Hub-Signature-256"])
    assert heard.headers["X-Hub-Signature"].startswith("sha1=")
    assert heard.headers["X-GitHub-Hook-Installation-Target-ID"] == str(shared.app.id)
    assert heard.headers["X-GitHub-Hook-Installation-Target-Type"] == "integration"
    assert len(heard.headers["X-GitHub-Delivery"]) == 36


def test_reactions_fire_no_webhook(world: World) -> None:
    maintainer = world.as_maintainer()
    issue = maintainer.rest.issues.create(OWNER, REPO, title="t").parsed_data
    note = maintainer.rest.issues.create_comment(OWNER, REPO, issue.number, body="n").parsed_data
    world.hub.deliveries_done()
    before = len(world.ear.heard)
    maintainer.rest.reactions.create_for_issue_comment(OWNER, REPO, note.id, content="+1")
    maintainer.rest.reactions.create_for_issue(OWNER, REPO, issue.number, content="heart")
    time.sleep(0.2)
    assert world.hub.deliveries_done()
    assert len(world.ear.heard) == before


def test_what_the_app_does_comes_back_as_a_bots_doing(shared: World) -> None:
    maintainer, bot = shared.as_maintainer(), shared.as_bot()
    issue = maintainer.rest.issues.create(OWNER, REPO, title="t").parsed_data
    note = bot.rest.issues.create_comment(OWNER, REPO, issue.number, body="from the bot").parsed_data
    shared.hub.deliveries_done()
    heard = next(
        item for item in shared.ear.of("issue_comment", "created") if item.body["comment"]["id"] == note.id
    )
    assert (heard.body["sender"]["type"], heard.body["sender"]["login"]) == ("Bot", "liger-bot[bot]")
    assert heard.body["comment"]["performed_via_github_app"]["id"] == shared.app.id
    assert heard.body["comment"]["author_association"] == "NONE"


def test_failed_delivery_is_not_retried_but_listed_and_sent_again_on_request(world: World) -> None:
    world.hub.deliveries_done()
    world.ear.status = 503
    maintainer, app = world.as_maintainer(), world.as_app()
    maintainer.rest.issues.create(OWNER, REPO, title="lost")
    world.hub.deliveries_done()
    assert len(world.ear.of("issues", "opened")) == 1
    failed = app.rest.apps.list_webhook_deliveries(status="failure").parsed_data
    assert [(item.event, item.action, item.status_code, item.redelivery) for item in failed] == [
        ("issues", "opened", 503, False)
    ]
    world.ear.status = 202
    assert app.rest.apps.redeliver_webhook_delivery(failed[0].id).status_code == 202
    first, second = world.ear.wait_for("issues", "opened", count=2)
    assert first.headers["X-GitHub-Delivery"] == second.headers["X-GitHub-Delivery"]
    assert first.raw == second.raw
    world.hub.deliveries_done()
    newest = app.rest.apps.list_webhook_deliveries(per_page=1).parsed_data[0]
    assert (newest.redelivery, newest.status) == (True, "OK")
    whole = app.rest.apps.get_webhook_delivery(newest.id).parsed_data
    assert whole.request.payload.model_dump()["action"] == "opened"


def test_receiver_that_is_down_is_recorded(world: World) -> None:
    world.hub.deliveries_done()
    world.hub.set_webhook("liger-bot", "http://127.0.0.1:9/none")
    maintainer, app = world.as_maintainer(), world.as_app()
    maintainer.rest.issues.create(OWNER, REPO, title="lost")
    world.hub.deliveries_done()
    newest = app.rest.apps.list_webhook_deliveries(per_page=1).parsed_data[0]
    assert (newest.status, newest.status_code) == ("failed to connect to host", 0)


def test_deliveries_are_read_by_cursor(shared: World) -> None:
    maintainer, app = shared.as_maintainer(), shared.as_app()
    for number in range(3):
        maintainer.rest.issues.create(OWNER, REPO, title=f"n{number}")
    shared.hub.deliveries_done()
    first = app.rest.apps.list_webhook_deliveries(per_page=2)
    assert 'rel="next"' in first.headers["Link"]
    cursor = first.headers["Link"].split("cursor=")[1].split(">")[0]
    second = app.rest.apps.list_webhook_deliveries(per_page=2, cursor=cursor).parsed_data
    assert second[0].id < first.parsed_data[1].id


def test_app_hears_only_what_it_subscribed_to_and_may_see(world: World) -> None:
    small = world.hub.register_app(
        "small", OWNER, world.ear.url, "other", permissions={"issues": "read"}, events=["issues", "push"]
    )
    installed = world.hub.install_app("small", OWNER)
    maintainer = world.as_maintainer()
    issue = maintainer.rest.issues.create(OWNER, REPO, title="t").parsed_data
    maintainer.rest.issues.create_comment(OWNER, REPO, issue.number, body="n")
    branch_on(world, "liger-bot/x", "x.py", "x = 1\n")
    world.hub.deliveries_done()
    heard = {
        item.event
        for item in world.ear.heard
        if item.headers["X-GitHub-Hook-Installation-Target-ID"] == str(small.id)
    }
    assert heard == {"ping", "installation", "issues"}, "no contents permission: no push"
    assert installed != world.installation_id


def test_hook_config_can_be_read_and_moved_by_the_app(world: World) -> None:
    app = world.as_app()
    assert app.rest.apps.get_webhook_config_for_app().parsed_data.url == world.ear.url
    app.rest.apps.update_webhook_config_for_app(url=f"{world.ear.url}/moved")
    assert app.rest.apps.get_webhook_config_for_app().parsed_data.url.endswith("/moved")
    maintainer = world.as_maintainer()
    with pytest.raises(RequestFailed):
        maintainer.rest.apps.get_webhook_config_for_app()
