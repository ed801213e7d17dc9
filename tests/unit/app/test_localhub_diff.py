"""The rows of a patch on the local GitHub's pages."""

from __future__ import annotations

import pytest

from app.localhub.pages.diff import code_lines


@pytest.mark.parametrize(
    "text", ["", "\n", "x = 1", "x = 1\n", "x = 1\n\n", "\n\nx = 1\n\n\n", '"""a\n\nb"""\n']
)
@pytest.mark.parametrize("path", ["a.py", "a.unknown"])
def test_a_text_has_as_many_highlighted_lines_as_lines(path: str, text: str):
    assert len(code_lines(path, text)) == text.count("\n") + 1
