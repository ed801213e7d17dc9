"""What a value of a row that the backward needs is called where it is saved. Pure."""

from __future__ import annotations

from kernels.passes.graph import Graph
from kernels.row_program import Const, Map, Reduce

REDUCED = {"max": "row_max", "min": "row_min", "sum": "row_sum"}


def statistic_name(graph: Graph, node: int, index: int, taken: set[str]) -> str:
    """A name that is free: rstd, mean, row_max, … or stat_0 for the statistic number `index`."""
    name, count = _wanted(graph, node, index), 2
    base = name
    while name in taken:
        name, count = f"{base}_{count}", count + 1
    return name


def _wanted(graph: Graph, node: int, index: int) -> str:
    found = graph.nodes[node]
    if not graph.axes_of[node]:
        return "count" if isinstance(found, Reduce) else f"stat_{index}"
    if isinstance(found, Reduce):
        return REDUCED.get(found.fn, "row_index")
    if isinstance(found, Map) and found.fn == "rsqrt":
        return "rstd"
    if isinstance(found, Map) and found.fn == "log":
        return "log_sum"
    if isinstance(found, Map) and found.fn == "div" and isinstance(graph.nodes[found.args[0]], Reduce):
        return "mean" if graph.quantity(found.args[1]) is not None else f"stat_{index}"
    if isinstance(found, Map) and found.fn == "div" and _is_row_sum(graph, found.args[1]):
        above = graph.nodes[found.args[0]]
        return "inverse_row_sum" if isinstance(above, Const) and above.value == 1 else f"stat_{index}"
    return f"stat_{index}"


def _is_row_sum(graph: Graph, node: int) -> bool:
    found = graph.nodes[node]
    return isinstance(found, Reduce) and found.fn == "sum"
