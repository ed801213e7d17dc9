"""A file's patch as rows of a table, with line numbers and colours."""

import re
from dataclasses import dataclass
from html import escape

from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_for_filename
from pygments.util import ClassNotFound

from app.localhub.git_objects import FileChange

_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@(.*)")
MAX_LINES = 3000


@dataclass(frozen=True)
class Row:
    """One line: `kind` is hunk, context, added, removed or note; numbers are 1-based, None where there is no line."""

    kind: str
    old: int | None
    new: int | None
    html: Markup


def _lexer(path: str) -> Lexer | None:
    try:
        return get_lexer_for_filename(path, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


def code_lines(path: str, text: str) -> list[Markup]:
    """The lines of a file as highlighted HTML; a token that spans lines is closed and opened again at each."""
    lexer = _lexer(path)
    if lexer is None:
        return [Markup(escape(line)) for line in text.split("\n")]  # noqa: S704 - escaped
    html = highlight(text, lexer, HtmlFormatter(nowrap=True)).split("\n")
    count = text.count("\n") + 1
    # Pygments ends the last line and drops an empty one after it: the text says how many there are
    lines = [*html, *[""] * count][:count]
    return [Markup(line) for line in lines]  # noqa: S704 - Pygments escapes what it highlights


def rows_of(change: FileChange) -> list[Row]:
    """The rows of a patch. Each side of a hunk is highlighted as one text, so that docstrings keep their colour."""
    rows: list[Row] = []
    hunk: list[tuple[str, str]] = []
    start = (0, 0)

    def flush() -> None:
        old_html = code_lines(change.path, "\n".join(text for sign, text in hunk if sign in " -"))
        new_html = code_lines(change.path, "\n".join(text for sign, text in hunk if sign in " +"))
        old, new = start
        old_index = new_index = 0
        for sign, text in hunk:
            if sign == "\\":
                rows.append(Row("note", None, None, Markup(escape(text))))  # noqa: S704 - escaped
            elif sign == "-":
                rows.append(Row("removed", old + old_index, None, old_html[old_index]))
                old_index += 1
            elif sign == "+":
                rows.append(Row("added", None, new + new_index, new_html[new_index]))
                new_index += 1
            else:
                rows.append(Row("context", old + old_index, new + new_index, new_html[new_index]))
                old_index, new_index = old_index + 1, new_index + 1
        hunk.clear()

    for line in (change.patch or "").split("\n")[:MAX_LINES]:
        match = _HUNK.match(line)
        if match:
            flush()
            start = (int(match[1]), int(match[2]))
            rows.append(Row("hunk", None, None, Markup(escape(line))))  # noqa: S704 - escaped
        elif line.startswith("\\"):
            hunk.append(("\\", line[1:].strip()))
        else:
            hunk.append((line[:1] or " ", line[1:]))
    flush()
    return rows
