"""Product flattening: one chain of factors, constants merged and first, then scalars, row values, columns, full values. Pure.

Before: `-0.5 * dot * rstd**3 / n_cols * 2 * x`. After: `-dot * rstd * rstd * rstd / n_cols * x`: what varies least is
multiplied first, so that a block does one multiplication and not five. Before: `exp(x - max) / total`. After:
`exp(x - max) * (1 / total)`: a division a row and not one an element, where the divisor's reciprocal can't overflow.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kernels.passes.graph import Graph
from kernels.passes.rewrite import rebuild, uses
from kernels.quantity import Quantity
from kernels.row_program import Const, Load, Map, Node, Reduce, Symbol


@dataclass
class Chain:
    """coef * numerators / denominators, ids in the old graph."""

    coef: Quantity = field(default_factory=Quantity)
    top: list[int] = field(default_factory=list)
    bottom: list[int] = field(default_factory=list)


def flatten_products(graph: Graph, roots: list[int], cols: set[str]) -> tuple[Graph, dict[int, int]]:
    """Rewrite every product chain. A factor that is used elsewhere too is left whole."""
    counts = uses(graph, roots)
    inner = {
        a
        for i, node in enumerate(graph.nodes)
        if i in counts and _is_product(node)
        for a in node.args  # type: ignore[union-attr]
        if _is_product(graph.nodes[a]) and counts[a] == 1
    }
    names: dict[int, int] = {}

    def rewrite(g: Graph, node: Node, old: int) -> int | None:
        result = None
        if _is_product(node) and old not in inner:
            chain = Chain()
            _collect(graph, old, chain, counts, inverted=False, top=True)
            result = _build(g, chain, names, graph, cols)
        names[old] = result if result is not None else _copy(g, node)
        return names[old]

    return rebuild(graph, roots, rewrite)


def _copy(g: Graph, node: Node) -> int:
    from kernels.passes.rewrite import copy

    return copy(g, node)


def _is_product(node: Node) -> bool:
    return isinstance(node, Map) and node.fn in ("mul", "div", "neg")


def _collect(
    graph: Graph, node: int, chain: Chain, counts: dict[int, int], *, inverted: bool, top: bool
) -> None:
    found = graph.nodes[node]
    if isinstance(found, Const | Symbol):
        quantity = graph.quantity(node)
        if quantity is not None and quantity.coef:
            chain.coef = chain.coef / quantity if inverted else chain.coef * quantity
            return
    if isinstance(found, Map) and _is_product(found) and (top or counts[node] == 1):
        _collect(graph, found.args[0], chain, counts, inverted=inverted, top=False)
        if found.fn == "neg":
            chain.coef = chain.coef * Quantity.number(-1)
        else:
            _collect(graph, found.args[1], chain, counts, inverted=inverted ^ (found.fn == "div"), top=False)
        return
    (chain.bottom if inverted else chain.top).append(node)


def _build(g: Graph, chain: Chain, names: dict[int, int], old: Graph, cols: set[str]) -> int:
    def weight(node: int) -> int:
        axes = old.axes_of[node]
        if not axes & cols:
            return 1 if axes else 0
        found = old.nodes[node]
        tangent = isinstance(found, Load) and old.tensors[found.tensor].kind == "tangent"
        return 3 if tangent else 2 if len(axes) == len(axes & cols) else 4

    top = sorted(chain.top, key=weight)
    bottom = sorted(chain.bottom, key=weight)
    outer = Quantity(factors=tuple(f for f in chain.coef.factors if f.power > 0))
    under = Quantity(factors=tuple(f for f in chain.coef.factors if f.power < 0)) ** -1.0
    coef = chain.coef.coef
    negative = coef < 0
    coef = abs(coef)
    if 0 < coef < 1 and abs(1 / coef - round(1 / coef)) < 1e-12 and not _is_power_of_two(1 / coef):
        under, coef = under * Quantity.number(round(1 / coef)), 1.0
    light = [n for n in top if weight(n) < 2]
    heavy = [n for n in top if weight(n) >= 2]
    result: int | None = None
    leading = Quantity(coef=coef, factors=outer.factors)
    if not leading.same(Quantity()):
        result = g.symbol(leading)
    for node in light:
        result = names[node] if result is None else g.map("mul", result, names[node])
    divisors = [g.symbol(under)] if not under.same(Quantity()) else []
    divisors += [names[n] for n in bottom if weight(n) < 2]
    once = None
    if result is None and heavy and any(_at_least_one(old, n) for n in bottom if weight(n) < 2):
        once = g.const(1)
        for divisor in divisors:
            once = g.map("div", once, divisor)
        divisors = []
    if result is not None:
        for divisor in divisors:
            result = g.map("div", result, divisor)
        divisors = []
    for node in heavy:
        result = names[node] if result is None else g.map("mul", result, names[node])
    if once is not None and result is not None:
        result = g.map("mul", result, once)
    for divisor in divisors:
        result = g.const(1) if result is None else result
        result = g.map("div", result, divisor)
    for node in bottom:
        if weight(node) >= 2:
            result = g.map("div", g.const(1) if result is None else result, names[node])
    result = g.const(1) if result is None else result
    return g.map("neg", result) if negative else result


def _at_least_one(graph: Graph, node: int) -> bool:
    """A sum of exponentials of what is below its own maximum: it holds the maximum's 1, and its reciprocal is finite."""
    total = graph.nodes[node]
    if not (isinstance(total, Reduce) and total.fn == "sum"):
        return False
    power = graph.is_map(total.arg, "exp")
    difference = graph.is_map(power[0], "sub") if power else None
    if difference is None:
        return False
    largest = graph.nodes[difference[1]]
    return (
        isinstance(largest, Reduce)
        and largest.fn == "max"
        and (largest.arg, largest.axes) == (difference[0], total.axes)
    )


def _is_power_of_two(value: float) -> bool:
    whole = round(value)
    return whole & (whole - 1) == 0
