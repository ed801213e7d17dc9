"""Branch knowledge: inside `where(x <= 0, a, b)`, b sees an x that is positive or NaN. Pure.

Before: `where(relu(x) <= 0, 0, 2 * dy * relu(x))`. After: `where(x <= 0, 0, 2 * dy * x)`. Holds for every value: with x
positive or NaN relu(x) is x, and relu(x) <= 0 exactly when x <= 0.
"""

from __future__ import annotations

from kernels.passes.graph import Graph
from kernels.passes.rewrite import rebuild, substitute
from kernels.row_program import Map, Node


def simplify_branches(graph: Graph, roots: list[int]) -> tuple[Graph, dict[int, int]]:
    return rebuild(graph, roots, _rewrite)


def _rewrite(g: Graph, node: Node, _old: int) -> int | None:
    if not isinstance(node, Map):
        return None
    if node.fn in ("le", "gt") and g.number(node.args[1]) == 0:
        inner = _relu_argument(g, node.args[0])
        if inner is not None:
            return g.map(node.fn, inner, node.args[1])
    if node.fn == "where":
        condition, then, otherwise = node.args
        for fn in ("le", "gt", "lt", "ge"):
            compared = g.is_map(condition, fn)
            if compared and g.number(compared[1]) == 0:
                relu = g.map("maximum", compared[0], compared[1])
                if fn in ("le", "lt"):
                    otherwise = substitute(g, otherwise, {relu: compared[0]})
                else:
                    then = substitute(g, then, {relu: compared[0]})
        if (then, otherwise) != node.args[1:]:
            return g.map("where", condition, then, otherwise)
    return None


def _relu_argument(g: Graph, node: int) -> int | None:
    args = g.is_map(node, "maximum")
    return args[0] if args and g.number(args[1]) == 0 else None
