"""Log lines: one JSON object each or text, with what they are about, and without secrets."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator

import pytest

from app.logs import JsonFormatter, LogFormat, TextFormatter, configure_logs, log_fields

TOKEN = "ghs_" + "a" * 40


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield logging.getLogger("app.test")
    root.handlers, root.level = before, level


def lines(log: logging.Logger, log_format: LogFormat, capsys: pytest.CaptureFixture[str]) -> list[str]:
    configure_logs("info", log_format)
    with log_fields(request="abc2345", step="push the branch"):
        log.info("pushed with %s\nand more", TOKEN)
        try:
            raise ValueError(f"bad {TOKEN}")
        except ValueError:
            log.exception("failed")
    logging.getLogger("dbos").warning("from the engine")
    return capsys.readouterr().err.splitlines()


def test_json_is_one_object_a_line(log: logging.Logger, capsys: pytest.CaptureFixture[str]):
    first, second, third = (json.loads(line) for line in lines(log, "json", capsys))
    assert (first["level"], first["logger"], first["request"]) == ("INFO", "app.test", "abc2345")
    assert first["step"] == "push the branch"
    assert first["message"] == "pushed with [redacted]\nand more"
    assert "ValueError: bad [redacted]" in second["error"]
    assert (third["logger"], "request" in third) == ("dbos", False)


def test_text_says_what_a_line_is_about(log: logging.Logger, capsys: pytest.CaptureFixture[str]):
    shown = lines(log, "text", capsys)
    assert shown[0].endswith("app.test: pushed with [redacted] [request=abc2345 step=push the branch]")
    assert shown[1] == "and more"
    assert TOKEN not in "\n".join(shown)


async def test_tasks_do_not_mix_their_fields():
    said: list[str] = []

    async def work(name: str) -> None:
        with log_fields(request=name):
            await asyncio.sleep(0)
            record = logging.LogRecord("x", logging.INFO, "", 0, "m", None, None)
            said.append(json.loads(JsonFormatter().format(record))["request"])

    await asyncio.gather(work("a"), work("b"))
    assert sorted(said) == ["a", "b"]
    assert "[" not in TextFormatter().format(logging.LogRecord("x", logging.INFO, "", 0, "m", None, None))
