"""Python source to syntax tree, also where several threads parse at once."""

from __future__ import annotations

import ast
from typing import Literal, overload

_ATTEMPTS = 8
"""A collision needs another thread's parse inside ours; eight in a row were never seen."""


@overload
def syntax_tree(source: str, mode: Literal["exec"] = "exec") -> ast.Module: ...
@overload
def syntax_tree(source: str, mode: Literal["eval"]) -> ast.Expression: ...
def syntax_tree(source: str, mode: Literal["exec", "eval"] = "exec") -> ast.Module | ast.Expression:
    """`ast.parse`, tried again when CPython confuses two threads.

    Before 3.13 the depth of the recursion is kept for the interpreter and not for the call: when the garbage
    collector runs Python code in the middle (a finalizer, a callback), another thread may parse meanwhile, and
    the first call ends in `SystemError: AST constructor recursion depth mismatch` (python/cpython#106905).
    Parsing is pure, so asking again is right.

    Raises:
        SyntaxError: the source is not Python.
        ValueError: the source holds null bytes.
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            return ast.parse(source, mode=mode)
        except SystemError:
            continue
    return ast.parse(source, mode=mode)
