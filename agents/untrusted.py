"""Text from people and web pages, made safe to quote to a model: hidden characters removed, length bounded, fenced. Pure."""

from __future__ import annotations

import re
import unicodedata

MAX_CHARACTERS = 8_000
_HTML_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)


def visible(text: str, limit: int = MAX_CHARACTERS) -> str:
    """The text as a person sees it: without HTML comments, zero-width, bidirectional and control characters."""
    text = _HTML_COMMENT.sub("", text[: 4 * limit])
    kept = (c for c in text if c in "\n\t" or unicodedata.category(c) not in {"Cc", "Cf", "Cs", "Co", "Cn"})
    return "".join(kept)[:limit]


def fenced(text: str, limit: int = MAX_CHARACTERS) -> str:
    """The visible text inside a fence that it can't close."""
    shown = visible(text, limit)
    longest = max((len(run) for run in re.findall(r"`+", shown)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{shown}\n{fence}"
