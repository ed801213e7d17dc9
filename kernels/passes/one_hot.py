"""One-hot sums: a row that is zero but at one label adds up to the value at that label. Pure.

Before: `sum(where((col == target) & valid, v, 0))`. After: `where(valid, v, 0)`, with no pass over the row. A label outside
its row is refused by eager; here it is the caller's error too.
"""

from __future__ import annotations

from kernels.passes.graph import Graph
from kernels.passes.rewrite import rebuild
from kernels.row_program import Index, Node, Reduce


def close_one_hot_sums(graph: Graph, roots: list[int]) -> tuple[Graph, dict[int, int]]:
    return rebuild(graph, roots, _rewrite)


def _rewrite(g: Graph, node: Node, _old: int) -> int | None:
    if not isinstance(node, Reduce) or node.fn != "sum" or len(node.axes) != 1:
        return None
    axis = node.axes[0]
    chosen = g.is_map(node.arg, "where")
    if not chosen or g.number(chosen[2]) != 0 or axis in g.axes_of[chosen[1]]:
        return None
    condition, value, zero = chosen
    if _is_label(g, condition, axis):
        return value
    both = g.is_map(condition, "and")
    for label, rest in (both, tuple(reversed(both))) if both else ():
        if _is_label(g, label, axis) and axis not in g.axes_of[rest]:
            return g.map("where", rest, value, zero)
    return None


def _is_label(g: Graph, node: int, axis: str) -> bool:
    """Whether `node` is column == label, with a label that is the same all along the row."""
    sides = g.is_map(node, "eq")
    if not sides:
        return False
    return any(
        g.nodes[a] == Index(axis=axis) and axis not in g.axes_of[b]
        for a, b in (sides, tuple(reversed(sides)))
    )
