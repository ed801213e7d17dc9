"""Log lines: text for people or JSON for machines, each with the request and the delivery that it is about."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Literal

from app.github import redact

LogFormat = Literal["text", "json"]
_FIELDS: ContextVar[Mapping[str, str]] = ContextVar("log fields", default={})  # noqa: B039 - never changed in place


@contextmanager
def log_fields(**fields: str) -> Iterator[None]:
    """Add fields, such as request, stage and delivery, to every line that is logged inside."""
    token = _FIELDS.set({**_FIELDS.get(), **fields})
    try:
        yield
    finally:
        _FIELDS.reset(token)


class TextFormatter(logging.Formatter):
    """`time LEVEL logger: message [request=… stage=…]`; without secrets."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        first, newline, rest = redact(super().format(record)).partition("\n")
        fields = " ".join(f"{name}={value}" for name, value in _FIELDS.get().items())
        return f"{first} [{fields}]{newline}{rest}" if fields else f"{first}{newline}{rest}"


class JsonFormatter(logging.Formatter):
    """One JSON object a line: at, level, logger, message, the fields, and `error` with its traceback; without secrets."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": redact(record.getMessage()),
            **_FIELDS.get(),
        }
        if record.exc_info:
            line["error"] = redact(self.formatException(record.exc_info))
        return json.dumps(line, ensure_ascii=False)


def configure_logs(level: str, log_format: LogFormat) -> None:
    """Send every logger's lines to standard error in that format, the engine's and the web server's too."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    engine = logging.getLogger("dbos")
    # with a handler of its own it would write in its own format; with none it makes one
    engine.handlers = [logging.NullHandler()]
    engine.propagate = True
