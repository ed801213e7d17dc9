"""Long lines are broken at their outermost call, and the code stays the same."""

from __future__ import annotations

import ast

from inline_snapshot import snapshot

from kernels.tidy import WIDTH, tidy

LONG = 'x_target = tl.load(X_ptr + row_idx * n_cols + target, mask=(target >= 0) & (target < n_cols), other=0.0, cache="all").to(tl.float32)'


def test_a_long_call_is_broken_at_its_outermost_bracket():
    assert tidy(LONG) == snapshot("""\
x_target = tl.load(
    X_ptr + row_idx * n_cols + target, mask=(target >= 0) & (target < n_cols), other=0.0, cache="all"
).to(tl.float32)\
""")


def test_arguments_that_still_dont_fit_get_a_line_each():
    line = f"tl.store({'a_long_pointer_name + ' * 5}0, {'another_long_name * ' * 3}1, mask=mask)"
    broken = tidy(line)
    assert len(broken.splitlines()) == 5
    assert ast.dump(ast.parse(broken)) == ast.dump(ast.parse(line))


def test_short_lines_and_comments_are_left_alone():
    text = "# " + "a comment (with brackets) " * 8 + "\nshort(1)"
    assert tidy(text) == text


def test_the_code_stays_the_same():
    assert ast.dump(ast.parse(tidy(LONG))) == ast.dump(ast.parse(LONG))
    assert max(map(len, tidy(LONG).splitlines())) <= WIDTH
