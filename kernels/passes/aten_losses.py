"""ATen's losses, with their reduction modes, and their gradients. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.derivation import Unsupported
from kernels.passes.aten_gathers import gather_at, single_axis
from kernels.passes.aten_reductions import drop, reduce, size_of
from kernels.passes.aten_rules import rule
from kernels.passes.values import Value
from kernels.row_program import Index
from kernels.traced import Arg, TracedNode

if TYPE_CHECKING:
    from kernels.passes.lower import Lowering

NONE, MEAN, SUM = 0, 1, 2  # ATen's reduction argument


def _argument(low: Lowering, node: TracedNode, position: int, default: float | int) -> float | int:
    if len(node.args) <= position:
        return default
    return low.literal(node.args[position])  # type: ignore[return-value]


def reduced(low: Lowering, value: Value, node: TracedNode, shape_of: Arg, reduction: int) -> Value:
    """A loss as its reduction mode asks."""
    if reduction == NONE:
        return value
    shape = low.shape(shape_of)
    dims = list(range(len(shape)))
    total = drop(reduce(low, value, shape, dims, "sum"), dims, keepdim=False)
    if reduction == SUM:
        return total
    count = low.graph.symbol(size_of(shape, dims))
    _ = node
    return low.per_element([total], lambda a: low.graph.map("div", a, count))


def spread(low: Lowering, grad: Value, shape_of: Arg, reduction: int) -> Value:
    """The gradient of a reduction mode: divided by the count for a mean."""
    if reduction != MEAN:
        return grad
    shape = low.shape(shape_of)
    count = low.graph.symbol(size_of(shape, list(range(len(shape)))))
    return low.per_element([grad], lambda a: low.graph.map("div", a, count))


@rule("binary_cross_entropy_with_logits.default")
def bce_with_logits(low: Lowering, node: TracedNode) -> Value:
    if any(not (a.kind == "literal" and a.type == "none") for a in node.args[2:4]):
        raise Unsupported("binary cross entropy with weights", needed="the weights written out")
    g = low.graph

    def loss(a: int, target: int) -> int:
        # max(x, 0) - x * t + log(1 + exp(-|x|)): never overflows.
        tail = g.map("log1p", g.map("exp", g.map("neg", g.map("abs", a))))
        return g.map("add", g.map("sub", g.map("maximum", a, g.const(0)), g.map("mul", a, target)), tail)

    value = low.per_element([low.value(node.args[0]), low.value(node.args[1])], loss)
    return reduced(low, value, node, node.args[0], int(_argument(low, node, 4, MEAN)))


@rule("mse_loss.default")
def mse_loss(low: Lowering, node: TracedNode) -> Value:
    g = low.graph

    def loss(a: int, b: int) -> int:
        difference = g.map("sub", a, b)
        return g.map("mul", difference, difference)

    value = low.per_element([low.value(node.args[0]), low.value(node.args[1])], loss)
    return reduced(low, value, node, node.args[0], int(_argument(low, node, 2, MEAN)))


@rule("mse_loss_backward.default")
def mse_loss_backward(low: Lowering, node: TracedNode) -> Value:
    g = low.graph
    grad = spread(low, low.value(node.args[0]), node.args[1], int(_argument(low, node, 3, MEAN)))
    return low.per_element(
        [grad, low.value(node.args[1]), low.value(node.args[2])],
        lambda d, a, b: g.map("mul", g.map("mul", g.const(2), g.map("sub", a, b)), d),
    )


@rule("huber_loss.default", "smooth_l1_loss.default")
def huber_loss(low: Lowering, node: TracedNode) -> Value:
    g = low.graph
    delta = low.value(node.args[3]).node() if len(node.args) > 3 else g.const(1)
    smooth = "smooth_l1" in node.op

    def loss(a: int, b: int) -> int:
        size = g.map("abs", g.map("sub", a, b))
        square = g.map("mul", g.map("mul", g.const(0.5), size), size)
        line = g.map("sub", size, g.map("mul", g.const(0.5), delta))
        inside = g.map("div", square, delta) if smooth else square
        outside = line if smooth else g.map("mul", delta, line)
        return g.map("where", g.map("lt" if smooth else "le", size, delta), inside, outside)

    value = low.per_element([low.value(node.args[0]), low.value(node.args[1])], loss)
    return reduced(low, value, node, node.args[0], int(_argument(low, node, 2, MEAN)))


@rule("huber_loss_backward.default", "smooth_l1_loss_backward.default")
def huber_loss_backward(low: Lowering, node: TracedNode) -> Value:
    g = low.graph
    delta = low.value(node.args[4]).node()
    smooth = "smooth_l1" in node.op
    grad = spread(low, low.value(node.args[0]), node.args[1], int(_argument(low, node, 3, MEAN)))

    def slope(d: int, a: int, b: int) -> int:
        difference = g.map("sub", a, b)
        end = g.const(1) if smooth else delta
        inner = g.map("div", difference, delta) if smooth else difference
        large = g.map("where", g.map("gt", difference, g.const(0)), end, g.map("neg", end))
        inside = g.map("lt", g.map("abs", difference), delta)
        return g.map("mul", d, g.map("where", inside, inner, large))

    return low.per_element([grad, low.value(node.args[1]), low.value(node.args[2])], slope)


@rule("nll_loss_forward.default")
def nll_loss(low: Lowering, node: TracedNode) -> tuple[Value, ...]:
    g = low.graph
    value, target = low.value(node.args[0]), low.value(node.args[1])
    if not (node.args[2].kind == "literal" and node.args[2].type == "none"):
        raise Unsupported(
            "a negative log likelihood with class weights", needed="the weights written out with a gather"
        )
    reduction, ignored = int(_argument(low, node, 3, MEAN)), low.value(node.args[4]).node()
    axis = single_axis(low, value.dims[-1])
    rows = Value(value.dims[:-1], value.elements)

    def loss(a: int, t: int) -> int:
        picked = g.map("neg", gather_at(g, a, axis, t))
        return g.map("where", g.map("eq", t, ignored), g.const(0), picked)

    losses = low.per_element([rows, target], loss)
    valid = low.per_element([target], lambda t: g.map("float", g.map("ne", t, ignored)))
    shape = low.shape(node.args[1])
    dims = list(range(len(shape)))
    count = drop(reduce(low, valid, shape, dims, "sum"), dims, keepdim=False)
    if reduction == NONE:
        return losses, count
    total = drop(reduce(low, losses, shape, dims, "sum"), dims, keepdim=False)
    if reduction == SUM:
        return total, count
    return low.per_element([total, count], lambda a, n: g.map("div", a, n)), count


@rule("nll_loss_backward.default")
def nll_loss_backward(low: Lowering, node: TracedNode) -> Value:
    g = low.graph
    grad, value, target = (low.value(a) for a in node.args[:3])
    reduction, ignored = int(_argument(low, node, 4, MEAN)), low.value(node.args[5]).node()
    axis = single_axis(low, value.dims[-1])
    if reduction == MEAN:
        grad = low.per_element([grad, low.value(node.args[6])], lambda d, n: g.map("div", d, n))

    def place(d: int, t: int) -> int:
        here = g.map("and", g.map("eq", g.add(Index(axis=axis)), t), g.map("ne", t, ignored))
        return g.map("where", here, g.map("neg", d), g.const(0))

    rank = len(value.dims) - 1
    spread_grad = Value(((),) * (rank - len(grad.dims)) + grad.dims, grad.elements)
    placed = low.per_element([spread_grad, target], place)
    return Value((*placed.dims, (axis,)), placed.elements)


@rule("soft_margin_loss.default")
def soft_margin(low: Lowering, node: TracedNode) -> Value:
    g = low.graph

    def loss(a: int, target: int) -> int:
        # log(1 + exp(-t x)) as max(-t x, 0) + log1p(exp(-|t x|)): ATen's own overflows.
        z = g.map("neg", g.map("mul", target, a))
        tail = g.map("log1p", g.map("exp", g.map("neg", g.map("abs", z))))
        return g.map("add", g.map("maximum", z, g.const(0)), tail)

    value = low.per_element([low.value(node.args[0]), low.value(node.args[1])], loss)
    return reduced(low, value, node, node.args[0], int(_argument(low, node, 2, MEAN)))


@rule("soft_margin_loss_backward.default")
def soft_margin_backward(low: Lowering, node: TracedNode) -> Value:
    g = low.graph
    grad = spread(low, low.value(node.args[0]), node.args[1], int(_argument(low, node, 3, MEAN)))

    def slope(d: int, a: int, target: int) -> int:
        sig = g.map("sigmoid", g.map("neg", g.map("mul", target, a)))
        return g.map("neg", g.map("mul", g.map("mul", target, sig), d))

    return low.per_element([grad, low.value(node.args[1]), low.value(node.args[2])], slope)
