"""What setup asks GitHub for, what it refuses before it asks, and what it leaves on disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import SecretStr
from typer.testing import CliRunner

from app.cli import app as command_line
from app.deliveries import MODELS
from app.github.manifest import RegisteredApp
from app.setup.files import require_room, with_values, write_app
from app.setup.flow import Wanted, check_wanted
from app.setup.manifest import EVENTS, PERMISSIONS, api_url, form_url, manifest
from app.usage import UsageMistake

WANTED = Wanted(name="liger-bot", web_url="https://github.com", public_url="https://bot.example.org")
APP = RegisteredApp(
    id=7,
    slug="liger-bot",
    url="https://github.test/apps/liger-bot",
    private_key=SecretStr("KEY\n"),
    webhook_secret=SecretStr("hush"),
    client_id="Iv1",
    client_secret=SecretStr("shh"),
)


def test_the_manifest_asks_for_what_is_needed_and_not_for_workflows():
    asked = manifest("liger-bot", "https://bot.example.org/", "http://127.0.0.1:1/callback")
    assert asked["default_permissions"] == {
        "metadata": "read",
        "issues": "write",
        "pull_requests": "write",
        "contents": "write",
        "checks": "write",
        "actions": "write",
    }
    assert asked["hook_attributes"] == {"url": "https://bot.example.org/webhook", "active": True}
    assert asked["callback_urls"] == ["https://bot.example.org/login/callback"]
    assert asked["public"] is False
    more = manifest("a" * 50, "https://b", "http://c", teams=True, runner_status=True)
    extra = {
        name: more["default_permissions"][name]
        for name in set(more["default_permissions"]) - set(PERMISSIONS)
    }
    assert extra == {"members": "read", "administration": "read"}
    assert len(more["name"]) == 34


def test_every_event_that_the_service_reads_is_subscribed_to():
    assert set(MODELS) - set(EVENTS) <= {"ping", "installation", "installation_repositories"}
    assert {"issue_comment", "pull_request", "check_run", "workflow_run"} <= set(EVENTS)


@pytest.mark.parametrize(
    ("web", "api"),
    [
        ("https://github.com", "https://api.github.com"),
        ("https://github.com/", "https://api.github.com"),
        ("https://ghe.example.org", "https://ghe.example.org/api/v3"),
        ("http://127.0.0.1:3000/", "http://127.0.0.1:3000/api/v3"),
    ],
)
def test_the_api_of_a_github(web: str, api: str):
    assert api_url(web) == api


def test_the_page_for_an_organisation_is_its_own():
    assert form_url("https://g/", "", "s") == "https://g/settings/apps/new?state=s"
    assert form_url("https://g", "acme", "s") == "https://g/organizations/acme/settings/apps/new?state=s"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"public_url": ""}, "--public-url https://bot.example.org"),
        ({"public_url": "bot.example.org"}, "must be an address"),
        ({"public_url": "http://localhost:8000"}, "an address that GitHub can reach"),
        ({"web_url": "github.com"}, "--github must be an address"),
        ({"org": "a/b"}, "--org must be the name"),
        ({"name": "n" * 35}, "at most 34 characters"),
    ],
)
def test_what_can_not_work_is_refused_before_anything_is_registered(change: dict[str, str], words: str):
    check_wanted(WANTED)
    with pytest.raises(UsageMistake, match=words):
        check_wanted(replace(WANTED, **change))


def test_a_github_on_this_machine_may_deliver_to_it():
    check_wanted(replace(WANTED, web_url="http://127.0.0.1:3000", public_url="http://127.0.0.1:8000"))


def test_secrets_are_readable_by_their_owner_alone_and_other_lines_stay(tmp_path: Path):
    (tmp_path / ".env").write_text("# mine\nLIGER_BOT_PORT=9000\nLIGER_BOT_APP_ID=1\n")
    require_room(tmp_path, replace=False)
    write_app(tmp_path, APP, {"LIGER_BOT_PUBLIC_URL": "https://bot.example.org"})
    assert (tmp_path / ".env").read_text().splitlines() == [
        "# mine",
        "LIGER_BOT_PORT=9000",
        "LIGER_BOT_APP_ID=7",
        "LIGER_BOT_PRIVATE_KEY_FILE=.liger-bot/secrets/private-key.pem",
        "LIGER_BOT_WEBHOOK_SECRET_FILE=.liger-bot/secrets/webhook-secret",
        "LIGER_BOT_CLIENT_ID=Iv1",
        "LIGER_BOT_CLIENT_SECRET_FILE=.liger-bot/secrets/client-secret",
        "LIGER_BOT_PUBLIC_URL=https://bot.example.org",
    ]
    for path in (tmp_path / ".env", *(tmp_path / ".liger-bot" / "secrets").iterdir()):
        assert path.stat().st_mode & 0o077 == 0, path
    assert (tmp_path / ".liger-bot/secrets/webhook-secret").read_text() == "hush"
    with pytest.raises(UsageMistake, match="--replace"):
        require_room(tmp_path, replace=False)
    require_room(tmp_path, replace=True)


def test_a_value_that_would_be_read_otherwise_is_quoted():
    assert with_values("", {"A": "/a b", "B": "plain"}) == "A='/a b'\nB=plain\n"


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("approval_days: 3\n", 0, '"approval_days": 3.0'),
        ("", 0, "all is as by default"),
        ("\naprovers: write\n", 1, "line 2: unknown key `aprovers`, did you mean `approvers`?"),
    ],
)
def test_config_check_says_whether_a_file_will_do(tmp_path: Path, text: str, code: int, words: str):
    (tmp_path / "liger-bot.yml").write_text(text)
    done = CliRunner().invoke(command_line, ["config", "check", str(tmp_path / "liger-bot.yml")])
    assert done.exit_code == code
    assert words in done.output
