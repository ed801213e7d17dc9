"""Text that others wrote, put into Markdown of ours without letting it act: no mention, reference, HTML or broken fence. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

ZERO_WIDTH_SPACE = "\u200b"
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_INVISIBLE = re.compile(
    "[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u200b-\u200f\u2028\u2029\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
_SPECIAL = re.compile(r"[\\`*_\[\]|~>#]|^[-+=]")
_NUMBERED = re.compile(r"^(\d{1,9})([.)])(?=\s|$)")
_MENTION = re.compile(r"@(?=[A-Za-z0-9])")
_REFERENCE = re.compile(r"(#|\bGH\\?-)(?=\d)", re.IGNORECASE)
_ADDRESS = re.compile(r"(?<=[A-Za-z]):(?=//)|(?<=\bwww)\.", re.IGNORECASE)
_COMMIT = re.compile(r"\b(?=[0-9]*[a-f])[0-9a-f]{7,40}\b")


def visible(text: str) -> str:
    """Text without terminal colours, control, zero-width and direction-changing characters."""
    return _INVISIBLE.sub("", _ANSI.sub("", text).replace("\r\n", "\n").replace("\r", "\n"))


def plain(text: str) -> str:
    """One paragraph that shows the text as it is: nothing in it links, notifies, closes or formats; safe in a table cell."""
    text = " ".join(visible(text).split())
    text = text.replace("&", "&amp;").replace("<", "&lt;")
    text = _NUMBERED.sub(r"\1\\\2", _SPECIAL.sub(lambda found: "\\" + found[0], text))
    text = _MENTION.sub("@" + ZERO_WIDTH_SPACE, text)
    text = _REFERENCE.sub(r"\1" + ZERO_WIDTH_SPACE, text)
    text = _COMMIT.sub(lambda found: ZERO_WIDTH_SPACE.join(re.findall(".{1,6}", found[0])), text)
    return _ADDRESS.sub(lambda found: found[0] + ZERO_WIDTH_SPACE, text)


def code(text: str) -> str:
    """Inline code that shows the text, whatever backticks it holds; put it through `cell` in a table."""
    text = " ".join(visible(text).split())
    if not text:
        return ""
    ticks = "`" * (_longest_run(text) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"


def cell(markdown: str) -> str:
    """Finished Markdown for a table cell: one line, with no bar that ends the cell."""
    return re.sub(r"(?<!\\)\|", r"\\|", markdown.replace("\n", "<br>"))


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of finished Markdown cells."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell(one) for one in line) + " |" for line in lines)


def fence(text: str, language: str = "") -> str:
    """A code block that shows the text, whatever fences it holds."""
    text = visible(text).rstrip("\n")
    ticks = "`" * max(3, _longest_run(text) + 1)
    return f"{ticks}{language}\n{text}\n{ticks}"


def cut(text: str, limit: int, note: str = "… cut here") -> str:
    """Markdown of at most `limit` characters, cut at a line and saying so; a code block that was open is closed."""
    if len(text) <= limit:
        return text
    closing = _open_fence(text[:limit])
    kept = text[: max(limit - len(note) - len(closing) - 4, 0)]
    kept = kept[: kept.rfind("\n")] if "\n" in kept else kept
    closing = _open_fence(kept)
    return f"{kept}\n{closing}\n\n{note}"[:limit] if closing else f"{kept}\n\n{note}"[:limit]


def _open_fence(text: str) -> str:
    opened = ""
    for line in text.splitlines():
        found = re.match(r"`{3,}", line)
        if found and not opened:
            opened = found[0]
        elif opened and line.strip() == opened:
            opened = ""
    return opened


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall(r"`+", text)), default=0)
