"""Text from people and web pages, made safe to quote to a model: nothing hidden in it, bounded, fenced. Pure."""

from __future__ import annotations

import re
import unicodedata

from agents.markdown import fence

MAX_CHARACTERS = 8_000
_HTML_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_HIDDEN = {
    "Cc",
    "Cf",
    "Cs",
    "Co",
    "Cn",
}  # control, format (zero-width, bidirectional, tags), surrogates, unassigned


def as_seen(text: str, limit: int = MAX_CHARACTERS) -> str:
    """The text as a person sees it: without HTML comments and hidden characters, at most `limit` characters."""
    text = _HTML_COMMENT.sub("", text[: 4 * limit])
    return "".join(c for c in text if c in "\n\t" or unicodedata.category(c) not in _HIDDEN)[:limit]


def fenced(text: str, limit: int = MAX_CHARACTERS) -> str:
    """The text as a person sees it, inside a fence that it can't close."""
    return fence(as_seen(text, limit), "text")
