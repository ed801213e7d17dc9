"""Gradients of columns and scalars end in a sum over rows: move what follows that sum inside it. Pure.

Before: `alpha * sum_rows(dy * x) + sum_rows(dy)`. After: `sum_rows(alpha * dy * x + dy)`: one accumulator, nothing after it.
"""

from __future__ import annotations

from kernels.passes.graph import Graph
from kernels.row_program import Map, Reduce


def sums_last(graph: Graph, root: int) -> int:
    """An equal node that is a single sum where that is possible; `root` itself otherwise."""
    inside = _inside(graph, root)
    if inside is None:
        return root
    body, axes = inside
    return graph.add(Reduce(fn="sum", arg=body, axes=axes))


def _inside(graph: Graph, node: int) -> tuple[int, tuple[str, ...]] | None:
    """(body, axes) with node = sum over axes of body."""
    found = graph.nodes[node]
    if isinstance(found, Reduce):
        return (found.arg, found.axes) if found.fn == "sum" else None
    if not isinstance(found, Map):
        return None
    parts = [_inside(graph, a) for a in found.args]
    if found.fn in ("add", "sub") and parts[0] and parts[1] and parts[0][1] == parts[1][1]:
        return graph.map(found.fn, parts[0][0], parts[1][0]), parts[0][1]
    if found.fn == "neg" and parts[0]:
        return graph.map("neg", parts[0][0]), parts[0][1]
    for which, other in ((0, 1), (1, 0)):
        part = parts[which] if len(parts) == 2 else None
        if part is None or parts[other] is not None or (found.fn == "div" and which == 1):
            continue
        if found.fn in ("mul", "div") and not graph.axes_of[found.args[other]] & set(part[1]):
            args = [0, 0]
            args[which], args[other] = part[0], found.args[other]
            return graph.map(found.fn, *args), part[1]
    return None
