"""Forms of tanh that need one exponential and one division. Pure.

Before: `0.5 * x * (1 + tanh(z))`. After: `x * sigmoid(2 * z)`. Exact, and it doesn't cancel where tanh(z) nears -1.
Beside it, where a derivative needs it, `1 - tanh(z)²` becomes `4 * s * (1 - s)` with the same s = sigmoid(2 * z).

Before: `tanh(x if x > 20 else log1p(exp(x)))` (mish). After, with n = eˣ (eˣ + 2): `1 if x > 20 else n / (n + 2)`. All terms are
positive: nothing cancels; eˣ can't overflow where it is used, and beyond 10 the tanh of x is 1 in fp32. Two logarithms, two
exponentials and two divisions fewer: an H200 has time for about 26 instructions an element before memory is waited for.
"""

from __future__ import annotations

from kernels.passes.graph import Graph
from kernels.passes.rewrite import reachable, rebuild
from kernels.row_program import Map, Node

# Where tanh is 1 in fp32: 1 - tanh(x) < 2**-25 from here on.
TANH_IS_ONE = 10.0


def simplify_tanh(graph: Graph, roots: list[int]) -> tuple[Graph, dict[int, int]]:
    """Rewrite the forms above; a tanh that is read in any other way stays."""
    live = reachable(graph, roots)
    shifted = {z for n in live if (z := _one_plus_tanh(graph, n)) is not None}

    def rewrite(g: Graph, node: Node, old: int) -> int | None:
        z = _one_plus_tanh(graph, old)
        if z is not None:
            # The argument as the new graph names it: the operand of the renamed tanh.
            return g.map("mul", g.const(2), _sigmoid_of_twice(g, node))
        slope = _one_minus_square(graph, old)
        if slope is not None and slope in shifted and isinstance(node, Map):
            s = _sigmoid_of_twice(g, g.nodes[node.args[1]])
            return g.map("mul", g.map("mul", g.const(4), s), g.map("sub", g.const(1), s))
        if isinstance(node, Map) and node.fn == "tanh":
            return _tanh_of_softplus(g, node.args[0])
        return _half_of_double(g, node)

    return rebuild(graph, roots, rewrite)


def _one_plus_tanh(g: Graph, node: int) -> int | None:
    """z of `1 + tanh(z)`."""
    args = g.is_map(node, "add")
    if not args:
        return None
    for one, other in (args, args[::-1]):
        inner = g.is_map(other, "tanh")
        if g.number(one) == 1 and inner:
            return inner[0]
    return None


def _one_minus_square(g: Graph, node: int) -> int | None:
    """z of `1 - tanh(z) * tanh(z)`."""
    args = g.is_map(node, "sub")
    square = g.is_map(args[1], "mul") if args and g.number(args[0]) == 1 else None
    if not square or square[0] != square[1]:
        return None
    inner = g.is_map(square[0], "tanh")
    return inner[0] if inner else None


def _sigmoid_of_twice(g: Graph, node: Node) -> int:
    """sigmoid(2 * z), where one operand of `node` is tanh(z)."""
    arguments = node.args if isinstance(node, Map) else ()
    z = next(inner[0] for a in arguments if (inner := g.is_map(a, "tanh")))
    return g.map("sigmoid", g.map("mul", g.const(2), z))


def _half_of_double(g: Graph, node: Node) -> int | None:
    """`0.5 * x * (2 * sigmoid(z))` is `x * sigmoid(z)`: GELU's half and the two of the form above."""
    if not isinstance(node, Map) or node.fn != "mul":
        return None
    for half, double in (node.args, node.args[::-1]):
        twice, halved = g.is_map(double, "mul"), g.is_map(half, "mul")
        if not twice or g.number(twice[0]) != 2 or not g.is_map(twice[1], "sigmoid"):
            continue
        if g.number(half) == 0.5:
            return twice[1]
        for number, other in (halved, halved[::-1]) if halved else ():
            if g.number(number) == 0.5:
                return g.map("mul", other, twice[1])
    return None


def _tanh_of_softplus(g: Graph, argument: int) -> int | None:
    """tanh(softplus(x)) without logarithm; None when the argument is something else."""
    chosen = g.is_map(argument, "where")
    compared = g.is_map(chosen[0], "gt") if chosen else None
    inner = g.is_map(chosen[2], "log1p") if chosen else None
    grown = g.is_map(inner[0], "exp") if inner else None
    if not chosen or not compared or not grown or not inner:
        return None
    threshold = g.number(compared[1])
    if compared[0] != chosen[1] or grown[0] != chosen[1] or threshold is None or threshold < TANH_IS_ONE:
        return None
    n = g.map("mul", inner[0], g.map("add", inner[0], g.const(2)))
    rational = g.map("div", n, g.map("add", n, g.const(2)))
    return g.map("where", chosen[0], g.const(1), rational)
