"""Source text as coloured HTML. Whatever is in it is escaped."""

from __future__ import annotations

from html import escape

from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_for_filename
from pygments.util import ClassNotFound

MAX_COLOURED_CHARS = 200_000  # beyond that it is shown plain: colouring takes time


def highlighted(path: str, text: str) -> Markup:
    """The whole text."""
    return Markup("\n").join(code_lines(path, text))


def code_lines(path: str, text: str) -> list[Markup]:
    """Its lines, each with complete tags: a token that spans lines is closed and opened again at each."""
    lexer = _lexer(path)
    if lexer is None or len(text) > MAX_COLOURED_CHARS:
        return [Markup(escape(line)) for line in text.split("\n")]  # noqa: S704 - escaped
    html = highlight(text, lexer, HtmlFormatter(nowrap=True)).split("\n")
    count = text.count("\n") + 1
    # Pygments ends the last line and drops an empty one after it: the text says how many there are
    lines = [*html, *[""] * count][:count]
    return [Markup(line) for line in lines]  # noqa: S704 - Pygments escapes what it highlights


def warm_up() -> None:
    """Load what colours the kinds of text that pages show."""
    for path, text in (("warm.py", 'def f(x):\n    """One."""\n    return x + 1\n'), ("warm.yaml", "a: 1\n")):
        code_lines(path, text)


def _lexer(path: str) -> Lexer | None:
    try:
        return get_lexer_for_filename(path, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None
