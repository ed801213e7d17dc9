"""Factors that don't vary along a sum leave it. Pure.

Before: `sum(w * dy * x)` and `sum(dy * (rstd * x))` with w a number and rstd a value of the row. After: `w * sum(dy * x)` and
`rstd * sum(dy * x)`: one reduction instead of two, and no multiplication (or division) an element. A sum is as finite as
its terms are; a factor that is inf or NaN makes either form NaN or inf.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from dataclasses import dataclass, field

from kernels.passes.graph import Graph
from kernels.passes.rewrite import copy, rebuild, uses
from kernels.row_program import Map, Node, Reduce


@dataclass
class Factors:
    """value * numerators / denominators, with the sign."""

    value: int
    numerators: list[int] = field(default_factory=list)
    denominators: list[int] = field(default_factory=list)
    negative: bool = False


def uniform_factors(
    graph: Graph, roots: list[int], cols: set[str], outputs: set[int]
) -> tuple[Graph, dict[int, int]]:
    """Take the uniform factors out of the sums within a row.

    An output stays whole: it may be saved and read again. So does a product that others read too, for it would only be
    one value more, unless taking it apart makes two sums one.
    """
    counts = uses(graph, roots)
    sums = {n: node for n in counts if isinstance(node := graph.nodes[n], Reduce) and node.fn == "sum"}
    bodies = {n: _split(graph, r.arg, set(r.axes) & cols, outputs).value for n, r in sums.items()}
    alike = Counter(bodies.values())
    whole: set[int] = set()
    shared: set[int] = set()

    def rewrite(g: Graph, node: Node, old: int) -> int | None:
        if old in sums and isinstance(node, Reduce) and set(node.axes) <= cols:
            return factored_sum(g, node.arg, node.axes, whole if alike[bodies[old]] > 1 else whole | shared)
        if old in outputs:
            whole.add(copy(g, node))
        elif counts[old] > 1:
            shared.add(copy(g, node))
        return None

    return rebuild(graph, roots, rewrite)


def factored_sum(g: Graph, arg: int, axes: tuple[str, ...], whole: Set[int] = frozenset()) -> int:
    """Sum of `arg` over `axes`, its uniform factors outside; the nodes in `whole` are not taken apart."""
    parts = _split(g, arg, set(axes), whole)
    result = g.add(Reduce(fn="sum", arg=parts.value, axes=axes))
    for factor in parts.numerators:
        result = g.map("mul", factor, result)
    for factor in parts.denominators:
        result = g.map("div", result, factor)
    return g.map("neg", result) if parts.negative else result


def _split(g: Graph, node: int, axes: set[str], whole: Set[int]) -> Factors:
    """The factors of a product; a product of uniform factors alone stays whole, for its sum is a count."""
    found = g.nodes[node]
    if node in whole or not isinstance(found, Map) or not g.axes_of[node] & axes:
        return Factors(node)
    if found.fn == "neg":
        inner = _split(g, found.args[0], axes, whole)
        return Factors(inner.value, inner.numerators, inner.denominators, not inner.negative)
    if found.fn == "div" and not g.axes_of[found.args[1]] & axes:
        inner = _split(g, found.args[0], axes, whole)
        return Factors(inner.value, inner.numerators, [*inner.denominators, found.args[1]], inner.negative)
    if found.fn == "mul":
        first, second = found.args
        if not g.axes_of[first] & axes:
            first, second = second, first
        if not g.axes_of[second] & axes:
            inner = _split(g, first, axes, whole)
            return Factors(inner.value, [second, *inner.numerators], inner.denominators, inner.negative)
        one, two = (_split(g, a, axes, whole) for a in found.args)
        if (one.value, two.value) == found.args:
            return Factors(node)
        return Factors(
            g.map("mul", one.value, two.value),
            one.numerators + two.numerators,
            one.denominators + two.denominators,
            one.negative != two.negative,
        )
    return Factors(node)
