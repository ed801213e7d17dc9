"""Which axes a kernel's programs run over and which its blocks span. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.derivation import Unsupported
from kernels.passes.graph import Graph
from kernels.passes.rewrite import reachable
from kernels.row_program import Load, Reduce, Scan, operands

Dims = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Layout:
    rows: tuple[str, ...]
    cols: tuple[str, ...]


def final_sums(graph: Graph, roots: list[int]) -> set[int]:
    """Sums whose result is a root and read by nothing else: gradients of columns and of scalars, losses."""
    live = reachable(graph, roots)
    read = {operand for node in live for operand in operands(graph.nodes[node])}
    reduces = {n: graph.nodes[n] for n in set(roots) if n not in read}
    return {n for n, found in reduces.items() if isinstance(found, Reduce) and found.fn == "sum"}


def candidate_layouts(graph: Graph, roots: list[int], results: list[Dims]) -> list[Layout]:
    """Layouts to try, best first. Columns are the axes that reductions inside a row span.

    A reduction that includes the outermost axis is first taken as one over rows (a kernel can't hold a whole tensor),
    and only then as one inside a column of strided elements.
    """
    live = reachable(graph, roots)
    final = final_sums(graph, roots)
    order = _axis_order(graph, live, results)
    if not order:
        raise Unsupported("the op has no axes", needed="at least one tensor with an axis")
    inner: list[set[str]] = []
    for node in live:
        found = graph.nodes[node]
        if isinstance(found, Reduce) and node not in final:
            inner.append(set(found.axes))
        elif isinstance(found, Scan):
            inner.append({found.axis})
    last = _last_axes(graph, live, results, order)
    choices: list[set[str]] = []
    outer = order[0]
    within = [axes for axes in inner if outer not in axes and not _rows_only(graph, live, axes, last)]
    if within:
        choices += [set().union(*within), within[0]]
    if not within or len(within) < len(inner):
        choices.append(set(last))
    if inner:
        choices.append(set().union(*inner))
    layouts: list[Layout] = []
    for cols in choices:
        layout = Layout(tuple(a for a in order if a not in cols), tuple(a for a in order if a in cols))
        if layout not in layouts and layout.cols:
            layouts.append(layout)
    return layouts


def _rows_only(graph: Graph, live: list[int], axes: set[str], last: tuple[str, ...]) -> bool:
    """Whether these axes are only reduced on values without columns (a mean of row statistics)."""
    for node in live:
        found = graph.nodes[node]
        if isinstance(found, Reduce) and set(found.axes) == axes and graph.axes_of[found.arg] & set(last):
            return False
    return not axes & set(last)


def _last_axes(graph: Graph, live: list[int], results: list[Dims], order: list[str]) -> tuple[str, ...]:
    """The axes of the last dimension of the largest tensor."""
    dims = [d for d in results if d]
    dims += [graph.tensors[n.tensor].dims for n in (graph.nodes[i] for i in live) if isinstance(n, Load)]
    dims = [d for d in dims if d and any(not graph.axes[a].unroll for a in d[-1])]
    if not dims:
        return (order[-1],)
    largest = max(dims, key=lambda d: sum(1 for dim in d for a in dim if not graph.axes[a].unroll))
    return tuple(a for a in largest[-1] if not graph.axes[a].unroll)


def _axis_order(graph: Graph, live: list[int], results: list[Dims]) -> list[str]:
    """Axes in the order of the largest tensor, then of the others."""
    dims = list(results)
    dims += [graph.tensors[n.tensor].dims for n in (graph.nodes[i] for i in live) if isinstance(n, Load)]
    dims.sort(key=lambda d: -sum(len(x) for x in d))
    order: list[str] = []
    for shape in dims:
        for dim in shape:
            for axis in dim:
                if axis not in order and not graph.axes[axis].unroll:
                    order.append(axis)
    for node in live:  # an index may run over an axis that no tensor shows
        order += [a for a in sorted(graph.axes_of[node]) if a not in order and not graph.axes[a].unroll]
    return order
