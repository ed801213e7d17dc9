"""The expressions of workflow files, as many of them as a simple workflow needs: paths into the contexts and `fromJSON`. Pure."""

import json
import re
from collections.abc import Mapping
from typing import Any

_EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}", re.DOTALL)
_FROM_JSON = re.compile(r"fromJSON\(\s*([\w.-]+)\s*\)", re.IGNORECASE)
_PATH = re.compile(r"[A-Za-z_][\w-]*(?:\.[A-Za-z_][\w-]*)+")


class ExpressionError(ValueError):
    """An expression that can't be evaluated here; the message holds it."""


def evaluate(expression: str, contexts: Mapping[str, Any]) -> Any:
    """The value of one expression, without its braces. What a path doesn't lead to is an empty text, as on GitHub."""
    if (call := _FROM_JSON.fullmatch(expression)) is not None:
        try:
            return json.loads(str(evaluate(call[1], contexts)))
        except ValueError:
            raise ExpressionError(f"Error parsing fromJson: {expression}") from None
    if _PATH.fullmatch(expression) is None:
        raise ExpressionError(f"Unrecognized expression: {expression}")
    value: Any = contexts
    for part in expression.split("."):
        value = value.get(part, "") if isinstance(value, Mapping) else ""
    return value


def value_of(text: Any, contexts: Mapping[str, Any]) -> Any:
    """A value of the workflow file: one expression alone keeps its type, anything else is text."""
    if not isinstance(text, str):
        return text
    whole = _EXPRESSION.fullmatch(text.strip())
    if whole is not None:
        return evaluate(whole[1], contexts)
    return _EXPRESSION.sub(lambda found: _as_text(evaluate(found[1], contexts)), text)


def text_of(text: Any, contexts: Mapping[str, Any]) -> str:
    """The same, as text."""
    return _as_text(value_of(text, contexts))


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else json.dumps(value)
