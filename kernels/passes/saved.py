"""What the forward keeps for the backward, and what the backward computes again. Pure.

Every subset of the full results is tried in place of recomputing it from the inputs; the cheapest wins, counting 1 for a
full tensor that the backward reads, 0.02 for a row statistic and 0.03 for a transcendental function of a full value.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

from kernels.passes.functions import FUNCTIONS
from kernels.passes.graph import Graph
from kernels.row_program import Gather, Load, Map, Reduce, Scan, operands

FULL, ROW_STATISTIC, TRANSCENDENTAL, REDUCTION = 1.0, 0.02, 0.03, 0.05
MAX_RESULTS = 4


@dataclass(frozen=True)
class Choice:
    """`results`: outputs kept (by name); `statistics`: row values kept (by node)."""

    results: tuple[str, ...]
    statistics: tuple[int, ...]
    cost: float


def choose_saved(
    graph: Graph,
    forward: set[int],
    results: dict[str, int],
    gradients: list[int],
    rows: set[str],
    cols: set[str],
) -> Choice:
    """The cheapest set of results and row statistics to save.

    forward: nodes that the forward computes. results: name -> node of the full results without unrolled axes.
    """
    names = sorted(results)[:MAX_RESULTS]
    choices = [
        _evaluate(graph, forward, {results[n]: n for n in subset}, gradients, rows, cols)
        for size in range(len(names) + 1)
        for subset in combinations(names, size)
    ]
    # Strictly cheaper wins; a tie goes to fewer saved results, because inputs are usually alive anyway.
    return min(choices, key=lambda c: (round(c.cost, 6), len(c.results)))


def _evaluate(
    graph: Graph,
    forward: set[int],
    kept: dict[int, str],
    gradients: list[int],
    rows: set[str],
    cols: set[str],
) -> Choice:
    statistics = _statistics(graph, forward, set(kept), gradients, rows, cols)
    live = _cut(graph, gradients, set(kept) | set(statistics))
    cost = 0.0
    used: set[str] = set()
    for node in live:
        if node in kept:
            used.add(kept[node])
            cost += FULL
            continue
        if node in statistics:
            cost += ROW_STATISTIC
            continue
        found = graph.nodes[node]
        full = bool(graph.axes_of[node] & cols) and bool(graph.axes_of[node] & rows)
        if isinstance(found, Load) and full:
            cost += FULL
        elif isinstance(found, Map) and full and FUNCTIONS[found.fn].transcendental:
            cost += TRANSCENDENTAL
        elif isinstance(found, Reduce | Scan) and node in forward:
            cost += REDUCTION
    return Choice(tuple(sorted(used)), tuple(statistics), cost)


def _cut(graph: Graph, roots: list[int], stops: set[int]) -> set[int]:
    """Nodes needed by the roots when computation stops at `stops` (which are included)."""
    seen: set[int] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node not in stops:
            stack.extend(operands(graph.nodes[node]))
    return seen


def _statistics(
    graph: Graph, forward: set[int], kept: set[int], gradients: list[int], rows: set[str], cols: set[str]
) -> list[int]:
    """A minimal set of row values that spares the backward every forward reduction."""
    reduced: set[int] = set()  # values that hold a reduction
    for node in sorted(forward):
        found = graph.nodes[node]
        if isinstance(found, Reduce) or any(o in reduced for o in operands(found)):
            reduced.add(node)
    candidates = {n for n in reduced if not graph.axes_of[n] >= rows | cols}

    frontier: set[int] = set()
    seen: set[int] = set()
    stack = list(gradients)
    while stack:
        node = stack.pop()
        if node in seen or node in kept:
            continue
        seen.add(node)
        if node in candidates:
            frontier.add(node)
            continue
        stack.extend(operands(graph.nodes[node]))

    def derivable(node: int, others: set[int]) -> bool:
        """Whether `node` follows from `others` and inputs without a reduction, a gather or a full tensor."""
        for beneath in _cut(graph, [node], others):
            found = graph.nodes[beneath]
            if beneath in others:
                continue
            if isinstance(found, Reduce | Scan | Gather):
                return False
            if isinstance(found, Load) and graph.axes_of[beneath] >= rows | cols:
                return False
        return True

    for node in sorted(frontier, reverse=True):
        if derivable(node, frontier - {node}):
            frontier.discard(node)
    return sorted(frontier)
