"""Whether a reference multiplies matrices: then torch does that for a candidate too, and rounds as it does for eager. Pure."""

from __future__ import annotations

import ast

from kernels.syntax import syntax_tree

NAMES = frozenset({"linear", "matmul", "mm", "addmm", "bmm", "baddbmm", "einsum", "Linear"})


def has_product(source: str) -> bool:
    """By its text, which must be valid Python: an `@`, or a call by one of torch's names for a product."""
    for node in ast.walk(syntax_tree(source)):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            return True
        if isinstance(node, ast.Attribute) and node.attr in NAMES:
            return True
    return False
