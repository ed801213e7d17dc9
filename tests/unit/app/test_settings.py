"""Settings: secrets, refusals, and that each is documented."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from app.settings import Settings, child_environment, documented_names

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in documented_names():
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def complete(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("LIGER_BOT_WEBHOOK_SECRET", "hush")
    monkeypatch.setenv("LIGER_BOT_APP_ID", "42")
    monkeypatch.setenv("LIGER_BOT_PRIVATE_KEY", "-----BEGIN KEY-----")
    return monkeypatch


def test_every_setting_is_documented():
    text = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert [name for name in documented_names() if f"`{name}`" not in text] == []


def test_every_documented_setting_exists():
    text = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    named = {line.split("`")[1] for line in text.splitlines() if line.startswith("| `LIGER_BOT_")}
    assert named == set(documented_names())


@pytest.mark.parametrize("secret", [None, "", "  "])
def test_without_a_webhook_secret_it_does_not_start(complete: pytest.MonkeyPatch, secret: str | None):
    complete.delenv("LIGER_BOT_WEBHOOK_SECRET")
    if secret is not None:
        complete.setenv("LIGER_BOT_WEBHOOK_SECRET", secret)
    with pytest.raises(ValidationError, match="LIGER_BOT_WEBHOOK_SECRET"):
        Settings()


def test_without_an_app_it_does_not_start(complete: pytest.MonkeyPatch):
    complete.delenv("LIGER_BOT_APP_ID")
    with pytest.raises(ValidationError, match="LIGER_BOT_APP_ID"):
        Settings()


def test_a_secret_may_come_from_a_file(complete: pytest.MonkeyPatch, tmp_path: Path):
    complete.delenv("LIGER_BOT_WEBHOOK_SECRET")
    (tmp_path / "secret").write_text("from a file\n")
    complete.setenv("LIGER_BOT_WEBHOOK_SECRET_FILE", str(tmp_path / "secret"))
    assert Settings().webhook_secret.get_secret_value() == "from a file"


def test_a_secret_file_that_is_not_there_is_named(complete: pytest.MonkeyPatch, tmp_path: Path):
    complete.delenv("LIGER_BOT_PRIVATE_KEY")
    complete.setenv("LIGER_BOT_PRIVATE_KEY_FILE", str(tmp_path / "none"))
    with pytest.raises(ValidationError, match="LIGER_BOT_PRIVATE_KEY_FILE: can't read"):
        Settings()


def test_secrets_are_not_shown(complete: pytest.MonkeyPatch):
    settings = Settings()
    assert "hush" not in repr(settings)
    complete.setenv("LIGER_BOT_PORT", "not a port")
    complete.setenv("LIGER_BOT_WEBHOOK_SECRET", "hush")
    with pytest.raises(ValidationError) as caught:
        Settings()
    assert "hush" not in str(caught.value)


def test_a_github_on_this_machine_is_asked_more_often(complete: pytest.MonkeyPatch):
    assert Settings().fresh_poll_seconds == 15.0
    complete.setenv("LIGER_BOT_GITHUB_URL", "http://127.0.0.1:3000/api/v3")
    assert Settings().fresh_poll_seconds == 2.0
    complete.setenv("LIGER_BOT_POLL_SECONDS", "0.5")
    assert Settings().fresh_poll_seconds == 0.5


def test_a_runner_inherits_no_setting(complete: pytest.MonkeyPatch):
    assert not any(name.startswith("LIGER_BOT_") for name in child_environment())


def test_workers_need_a_database_that_can_be_shared(complete: pytest.MonkeyPatch):
    complete.setenv("LIGER_BOT_STAGES", "workers")
    with pytest.raises(ValidationError, match="LIGER_BOT_DATABASE_URL"):
        Settings()
    complete.setenv("LIGER_BOT_DATABASE_URL", "postgresql+psycopg://database/liger-bot")
    assert Settings().stages == "workers"
