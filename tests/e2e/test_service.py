"""The service from comment to verified pull request, and what it answers to everything else: over HTTP and git."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.exhaustive import exhaustive
from tests.liger_checkout import liger_checkout
from tests.service_process import SECRET, Scene, scene, wait_for

WAITING = "waiting for your decision"
WANTED = """import torch

LIMIT = 3.0


def damped(x, k: float = 0.5):
    return LIMIT * torch.tanh(k * x / LIMIT)
"""


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("service")
    files = liger_checkout(folder / "files")
    (files / "dev" / "wanted.py").write_text(WANTED)
    with scene(folder, files) as running:
        yield running


def profile_hash(body: str) -> str:
    found = re.search(r"hash `([0-9a-f]{12})`", body)
    assert found is not None
    return found[1]


@exhaustive  # tests/browser/test_person.py and test_kill.py go the same way in every run
@pytest.mark.slow
def test_a_comment_becomes_a_verified_draft_pull_request(here: Scene):
    issue = here.open_issue()
    command = here.comment(issue, "Could we have this?\n\n/liger dev relu2\n")
    here.wait_for_reaction(command, "eyes")

    status = here.wait_for_comment(issue, WAITING)
    assert "`y = max(x, 0)²`" in status["body"]
    here.comment(here.open_issue("again"), "/liger dev ReLU squared", "second")
    here.react(status["id"], login="stranger")
    here.react(status["id"], login="maintainer")

    here.wait_for_comment(issue, "ready for review", 240)
    assert len(here.bot_comments(issue)) == 1  # one status comment, edited in place
    here.wait_for_reaction(command, "rocket")
    (pull,) = here.call("GET", "/pulls")
    assert pull["draft"]
    assert pull["head"]["ref"].startswith("liger-bot/relu-squared-")
    assert "approved by maintainer" in pull["body"]
    files = {one["filename"] for one in here.call("GET", f"/pulls/{pull['number']}/files")}
    assert files == {
        "benchmark/scripts/benchmark_relu_squared.py",
        "src/liger_kernel/ops/__init__.py",
        "src/liger_kernel/ops/relu_squared.py",
        "src/liger_kernel/transformers/__init__.py",
        "src/liger_kernel/transformers/functional.py",
        "src/liger_kernel/transformers/relu_squared.py",
        "test/transformers/test_relu_squared.py",
    }
    runs = here.check_runs(pull["head"]["sha"])
    assert {name: (run["status"], run["conclusion"]) for name, run in runs.items()} == {
        "liger-bot / style": ("completed", "success"),
        "liger-bot / correctness": ("completed", "success"),
        "liger-bot / compile": ("completed", "success"),
        "liger-bot / benchmark": ("completed", "neutral"),
    }

    here.call("PATCH", f"/pulls/{pull['number']}", json={"state": "closed"})
    here.wait_for_comment(issue, "was closed without merging")


def test_a_second_command_for_a_live_op_links_to_the_first(here: Scene):
    first, second = here.open_issue(), here.open_issue()
    here.comment(first, "/liger dev squareplus")
    here.wait_for_comment(first, "/liger dev squareplus")
    here.comment(second, "/liger dev  SquarePlus", "second")
    reply = here.wait_for_comment(second, "is being worked on already")
    assert "/requests/" in reply["body"]
    here.wait_for_comment(first, WAITING)
    here.comment(first, "/liger reject not now")
    here.wait_for_comment(first, "This request was rejected by maintainer")


def test_an_approval_before_a_revision_does_not_carry_over(here: Scene):
    issue = here.open_issue()
    here.comment(issue, "/liger dev tanh(a) * b")
    status = here.wait_for_comment(issue, WAITING)
    before = profile_hash(status["body"])
    here.react(status["id"], "heart", "maintainer")
    here.react(status["id"], "+1", "stranger")
    here.comment(issue, "/liger revise operation_name=tanh_gate")
    wait_for(
        lambda: WAITING in (body := here.bot_comments(issue)[0]["body"]) and "`tanh_gate`" in body,
        60,
        "the revised profile",
    )
    revised = here.bot_comments(issue)[0]
    assert profile_hash(revised["body"]) != before

    here.comment(issue, f"/liger approve {before}")
    here.wait_for_comment(
        issue, f"the profile that waits here has the hash `{profile_hash(revised['body'])}`"
    )

    # someone with write access edits the bot's comment, and someone approves what stands there now
    here.call(
        "PATCH",
        f"/issues/comments/{revised['id']}",
        "second",
        json={"body": revised["body"].replace("tanh_gate", "evil")},
    )
    here.react(revised["id"], "+1", "maintainer")
    here.wait_for_comment(issue, "the profile's comment had been edited")
    assert "evil" not in here.bot_comments(issue)[0]["body"]
    assert here.call("GET", "/pulls", params={"head": "linkedin:liger-bot/tanh-gate"}) == []

    here.comment(issue, "/liger revise operation_nam=x")
    reply = here.wait_for_comment(issue, "the profile stays as it was")
    assert "operation_name" in reply["body"].replace("\\", "")
    here.wait_for_comment(issue, WAITING)
    here.comment(issue, "/liger cancel", "second")
    here.wait_for_comment(issue, "This request was cancelled by second")


def test_people_without_write_access_are_told_once(here: Scene):
    issue = here.open_issue()
    first = here.comment(issue, "/liger dev mish", "stranger")
    here.wait_for_comment(issue, "needs write access")
    here.comment(issue, "/liger dev mish", "stranger")
    here.comment(issue, "/liger approve", "stranger")
    last = here.comment(issue, "/liger help", "stranger")
    here.wait_for_reaction(last, "eyes")
    here.wait_for_comment(issue, "one command a comment")
    assert len(here.bot_comments(issue)) == 2
    assert here.call("GET", f"/issues/comments/{first}/reactions") == []


@pytest.mark.parametrize(
    ("comment", "answer"),
    [
        ("/liger deev relu2", "Did you mean `dev`?"),
        ("/liger dev relu2\n/liger dev silu", "2 commands in one comment"),
        ("/liger dev sqareplus", "`/liger dev squareplus`"),
        ("/liger dev", "`dev` needs an op"),
        ("/liger approve", "there is nothing to approve here"),
        ("/liger status", "no request was made here yet"),
        ("/liger perf rms_norm", "`/liger perf` is not available yet"),
        ("/liger autopatch acme/tiny", "nothing is fetched from the Hub"),
        ("/liger dev\n```python\ndef f(x:\n    return x\n```", "line 1"),
        ("/liger dev\n```python\nimport os\n\ndef f(x):\n    os.system('true')\n    return x\n```", "os"),
        ("/liger dev https://example.com/a/b/blob/main/c.py#L1-L3", "Only links to"),
    ],
)
def test_a_mistake_is_answered_in_one_reply(here: Scene, comment: str, answer: str):
    issue = here.open_issue()
    here.comment(issue, comment)
    reply = here.wait_for_comment(issue, answer)
    assert reply["body"].startswith("<!-- liger-bot:")
    time.sleep(0.3)
    assert len(here.bot_comments(issue)) == 1


@pytest.mark.parametrize(
    ("comment", "answer"),
    [
        ("/liger dev swiglu", "already has"),
        (
            "/liger dev\n```python\nimport torch\n\ndef sorted_values(x):\n    return torch.sort(x)[0]\n```",
            "can't be derived",
        ),
        (
            "/liger dev a kernel that is nicer to its cache than anything before it",
            "no language model is configured",
        ),
        ("/liger dev {hub}/linkedin/Liger-Kernel/blob/main/src/nowhere.py#L1-L3", "can't be read"),
    ],
)
def test_what_can_not_be_derived_says_why_and_what_to_do(here: Scene, comment: str, answer: str):
    issue = here.open_issue()
    here.comment(issue, comment.replace("{hub}", here.served.url))
    status = here.wait_for_comment(issue, answer)
    assert "can't be derived" in status["body"]


def test_a_link_to_code_is_read_through_the_api_and_pinned_to_its_commit(here: Scene):
    issue = here.open_issue()
    here.comment(issue, f"/liger dev {here.served.url}/{here.repository}/blob/main/dev/wanted.py#L6-L7")
    status = here.wait_for_comment(issue, WAITING)
    assert "damped" in status["body"]
    head = here.call("GET", "/commits/main")["sha"]
    assert f"at {head[:12]}" in status["body"].replace("\\", "")
    here.comment(issue, "/liger reject")
    here.wait_for_comment(issue, "This request was rejected")


def test_comments_that_are_not_for_the_bot_are_left_alone(here: Scene):
    issue = here.open_issue()
    here.comment(issue, "> /liger dev mish\n\nI would not do that.")
    here.comment(issue, "`/liger dev mish` is how one asks")
    edited = here.comment(issue, "nothing yet")
    here.call("PATCH", f"/issues/comments/{edited}", json={"body": "/liger dev mish"})
    marker = here.comment(issue, "/liger status")
    here.wait_for_reaction(marker, "eyes")
    here.wait_for_comment(issue, "no request was made here yet")
    assert len(here.bot_comments(issue)) == 1


def test_the_same_delivery_twice_is_one_request(here: Scene):
    issue = here.open_issue()
    comment = here.call("GET", f"/issues/comments/{here.comment(issue, '/liger help dev')}")
    here.wait_for_comment(issue, "one command a comment")
    payload = {
        "action": "created",
        "issue": {"number": issue},
        "comment": {**comment, "performed_via_github_app": None},
        "repository": {"full_name": here.repository},
        "installation": {"id": here.installation_id},
        "sender": comment["user"],
    }
    body = json.dumps(payload).encode()
    for guid in ("same", "same", "another, of the same comment"):
        headers = {
            "X-GitHub-Event": "issue_comment",
            "X-GitHub-Delivery": guid,
            "X-Hub-Signature-256": "sha256=" + hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest(),
        }
        assert httpx.post(f"{here.service.url}/webhook", content=body, headers=headers).status_code == 202
    time.sleep(3.0)
    assert len(here.bot_comments(issue)) == 1


def test_a_forged_delivery_is_refused(here: Scene):
    headers = {
        "X-GitHub-Event": "issue_comment",
        "X-GitHub-Delivery": "forged",
        "X-Hub-Signature-256": "sha256=" + "0" * 64,
    }
    assert httpx.post(f"{here.service.url}/webhook", content=b"{}", headers=headers).status_code == 401


def test_what_was_missed_while_the_service_was_down_is_caught_up_with(here: Scene):
    issue = here.open_issue()
    here.service.stop()
    here.comment(issue, "/liger help revise")
    assert here.hub.deliveries_done(30)
    here.service.start()
    here.wait_for_comment(issue, "one command a comment", 30)


def test_a_request_can_be_cancelled_while_its_jobs_run_and_taken_up_again(here: Scene):
    issue = here.open_issue()
    here.comment(issue, "/liger dev mish")
    here.wait_for_comment(issue, WAITING)
    here.comment(issue, "/liger approve")
    (pull,) = wait_for(
        lambda: [one for one in here.call("GET", "/pulls") if "mish" in one["head"]["ref"]],
        60,
        "the pull request",
    )
    wait_for(
        lambda: "liger-bot / correctness" in here.check_runs(pull["head"]["sha"]), 60, "the correctness check"
    )
    here.comment(issue, "/liger cancel")
    here.wait_for_comment(issue, "This request was cancelled by maintainer")
    runs = here.check_runs(pull["head"]["sha"])
    assert {run["status"] for run in runs.values()} == {"completed"}
    assert runs["liger-bot / correctness"]["conclusion"] == "cancelled"
    here.comment(issue, "/liger retry")
    here.wait_for_comment(issue, WAITING)
    here.comment(issue, "/liger reject")
    here.wait_for_comment(issue, "This request was rejected")


def test_the_pages_show_the_requests(here: Scene):
    listing = httpx.get(f"{here.service.url}/requests").text
    assert "/liger dev squareplus" in listing
    identifier = re.search(r'/requests/([a-z0-9]{7})">', listing)
    assert identifier is not None
    page = httpx.get(f"{here.service.url}/requests/{identifier[1]}")
    assert page.status_code == 200
    assert "History" in page.text
    assert httpx.get(f"{here.service.url}/requests/none").status_code == 404


def test_the_service_logged_no_secret(here: Scene):
    log = here.service.log.read_text()
    assert SECRET not in log
    assert "PRIVATE KEY" not in log
    assert "ghs_" not in log


@exhaustive
@pytest.mark.slow
def test_the_compiled_schedules_are_added_to_the_same_profile(tmp_path: Path):
    with scene(tmp_path, liger_checkout(tmp_path / "files"), COMPILE_SCHEDULES="true") as here:
        issue = here.open_issue()
        here.comment(issue, "/liger dev relu2")
        shown = here.wait_for_comment(issue, WAITING)
        assert "Every schedule considered" not in shown["body"], "the profile doesn't wait for the compiler"
        extended = here.wait_for_comment(issue, "Every schedule considered", 120)
        assert extended["id"] == shown["id"]
        assert profile_hash(extended["body"]) == profile_hash(shown["body"])
        assert all(arch in extended["body"] for arch in ("sm_80", "sm_90", "sm_100", "gfx942"))
        here.react(shown["id"])
        here.wait_for_comment(issue, "Approved by maintainer")


def test_a_repository_that_is_not_a_kernel_library_is_told_so(tmp_path: Path):
    files = tmp_path / "files"
    files.mkdir()
    (files / "README.md").write_text("# Recipes\n")
    with scene(tmp_path, files, "acme/recipes") as elsewhere:
        issue = elsewhere.open_issue()
        elsewhere.comment(issue, "/liger dev relu2")
        status = elsewhere.wait_for_comment(issue, "can't be derived")
        assert "our fault" not in status["body"]
