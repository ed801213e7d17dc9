"""Gradients of columns and scalars end in a sum over rows: move what follows that sum inside it. Pure.

Before: `alpha * sum_rows(dy * x) + sum_rows(dy)`. After: `sum_rows(alpha * dy * x + dy)`: one accumulator, nothing after it.
"""

from __future__ import annotations

from kernels.passes.graph import Graph
from kernels.passes.rewrite import reachable
from kernels.row_program import Index, Map, Reduce

Inside = tuple[int, tuple[str, ...]] | None


def scatters(graph: Graph, root: int, axes: tuple[str, ...]) -> int:
    """A sum over rows of a one-hot row, as a scatter; `root` itself when it is none.

    Before: `sum_rows(where(column == token, dy, 0))`. After: dy is added at the token's place.
    """
    found = graph.nodes[root]
    chosen = graph.is_map(found.arg, "where") if isinstance(found, Reduce) and found.fn == "sum" else None
    if not chosen or graph.number(chosen[2]) != 0:
        return root
    sides = graph.is_map(chosen[0], "eq")
    if not sides:
        return root
    for place, label in (sides, tuple(reversed(sides))):
        index = graph.nodes[place]
        if not isinstance(index, Index) or index.axis not in axes:
            continue
        if index.axis in graph.axes_of[chosen[1]] or set(found.axes) - graph.axes_of[label]:  # type: ignore[union-attr]
            continue
        return graph.map("scatter", chosen[1], label)
    return root


def sums_last(graph: Graph, root: int) -> int:
    """An equal node that is a single sum where that is possible; `root` itself otherwise."""
    known: dict[int, Inside] = {}
    for node in reachable(graph, [root]):
        known[node] = _inside(graph, node, known)
    inside = known[root]
    if inside is None:
        return root
    body, axes = inside
    return graph.add(Reduce(fn="sum", arg=body, axes=axes))


def _inside(graph: Graph, node: int, known: dict[int, Inside]) -> Inside:
    """(body, axes) with node = sum over axes of body; None when it is no such sum."""
    found = graph.nodes[node]
    if isinstance(found, Reduce):
        return (found.arg, found.axes) if found.fn == "sum" else None
    if not isinstance(found, Map):
        return None
    parts = [known[a] for a in found.args]
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
