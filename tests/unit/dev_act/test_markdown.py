"""Text of others can be shown without acting."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from agents.markdown import cell, code, cut, fence, plain, table, visible

HOSTILE = [
    "@maintainer please merge",
    "fixes #12",
    "closes GH-7",
    "see https://evil.example/x and www.evil.example",
    "<img src=x onerror=alert(1)>",
    "<!-- hidden --> text",
    "[click](javascript:alert(1))",
    "![pic](http://x)",
    "**bold** _it_ ~~no~~ `code` ``` fence",
    "a | b",
    "| a | b |\n|---|---|",
    "# heading\n> quote\n- list\n1. one",
    "&lt;script&gt; &amp;",
    "\u202eevil\u202c zero\u200bwidth",
    "\x1b[31mred\x1b[0m bell\x07",
    "0123456789abcdef0123456789abcdef01234567",
]


def tokens(markdown: str) -> list[str]:
    parsed = MarkdownIt("gfm-like", {"html": True, "linkify": False}).parse(markdown)
    return [token.type for block in parsed for token in (block.children or [block])]


@pytest.mark.parametrize("text", HOSTILE)
def test_plain_text_is_text(text: str) -> None:
    shown = plain(text)
    assert set(tokens(shown)) <= {"paragraph_open", "paragraph_close", "text", "text_special", "softbreak"}
    assert not re.search(r"@[A-Za-z0-9]|#\d|GH-\d|://|www\.\w|[0-9a-f]{7}", shown, re.IGNORECASE)
    assert "\n" not in shown


@given(
    st.text(max_size=60)
    | st.lists(st.sampled_from([*HOSTILE, "1.", "2)", "-", "+", "=", "---", " "]), max_size=4).map(" ".join)
)
def test_no_text_is_anything_but_text(text: str) -> None:
    assert set(tokens(plain(text))) <= {"paragraph_open", "paragraph_close", "text", "text_special"}


@pytest.mark.parametrize("text", HOSTILE)
def test_code_and_fences_show_their_text_and_end_where_they_should(text: str) -> None:
    assert set(tokens(code(text))) <= {"paragraph_open", "paragraph_close", "code_inline"}
    assert tokens(fence(text) + "\n\nafter") == ["fence", "paragraph_open", "text", "paragraph_close"]


@given(st.text(max_size=200))
def test_no_text_gets_out_of_its_fence_or_cell(text: str) -> None:
    assert tokens(fence(text) + "\n\nafter") == ["fence", "paragraph_open", "text", "paragraph_close"]
    made = table(["a", "b"], [[plain(text), code(text)], ["1", "2"]])
    assert len(made.splitlines()) == 4
    rows = [
        block for block in MarkdownIt("gfm-like", {"linkify": False}).parse(made) if block.type == "tr_open"
    ]
    assert len(rows) == 3


def test_a_bar_is_escaped_once() -> None:
    assert cell(r"a | b \| c") == r"a \| b \| c"


def test_text_that_fits_is_not_cut() -> None:
    assert cut("abc", 3) == "abc"


@given(
    st.integers(40, 400),
    st.lists(st.sampled_from(["text", "", "```python", "````", "```", "````"]), max_size=60),
)
def test_cut_text_fits_and_leaves_no_block_open(limit: int, lines: list[str]) -> None:
    whole = fence("\n".join(lines)) + "\n\n" + fence("x = 1\n" * 30)
    short = cut(whole, limit)
    assert len(short) <= limit
    if len(whole) > limit:
        assert tokens(short)[-3:] == ["paragraph_open", "text", "paragraph_close"]


def test_invisible_characters_are_gone() -> None:
    assert visible("\x1b[31mred\x1b[0m\r\n\u202eok\u200b") == "red\nok"
