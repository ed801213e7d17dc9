"""The softmax family: shifted by the row maximum, forward and gradients. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.passes.aten_reductions import drop, positions, reduce
from kernels.passes.aten_rules import rule
from kernels.passes.aten_statistics import minus, times
from kernels.passes.values import Value
from kernels.quantity import Quantity
from kernels.traced import TracedNode

if TYPE_CHECKING:
    from kernels.passes.lower import Lowering


def _shifted(
    low: Lowering, value: Value, shape: tuple[Quantity, ...], dims: list[int]
) -> tuple[Value, Value, Value]:
    """(maximum, value - maximum, sum of exponentials)."""
    graph = low.graph
    largest = reduce(low, value, shape, dims, "max")
    shifted = minus(low, value, largest)
    exponentials = low.per_element([shifted], lambda a: graph.map("exp", a))
    return largest, shifted, reduce(low, exponentials, shape, dims, "sum")


@rule("_softmax.default")
def softmax(low: Lowering, node: TracedNode) -> Value:
    value, shape = low.value(node.args[0]), low.shape(node.args[0])
    dims = positions(low, node.args[1], len(shape))
    _, shifted, total = _shifted(low, value, shape, dims)
    graph = low.graph
    return low.per_element([shifted, total], lambda a, s: graph.map("div", graph.map("exp", a), s))


@rule("_log_softmax.default")
def log_softmax(low: Lowering, node: TracedNode) -> Value:
    value, shape = low.value(node.args[0]), low.shape(node.args[0])
    dims = positions(low, node.args[1], len(shape))
    _, shifted, total = _shifted(low, value, shape, dims)
    # x - max - log(sum), not x - lse: at |x| >= 1e4 the sum max + log(sum) has lost the logarithm.
    graph = low.graph
    return low.per_element([shifted, total], lambda a, s: graph.map("sub", a, graph.map("log", s)))


@rule("logsumexp.default")
def logsumexp(low: Lowering, node: TracedNode) -> Value:
    value, shape = low.value(node.args[0]), low.shape(node.args[0])
    dims = positions(low, node.args[1], len(shape))
    keepdim = bool(low.literal(node.args[2])) if len(node.args) > 2 else False
    largest, _, total = _shifted(low, value, shape, dims)
    graph = low.graph
    result = low.per_element([largest, total], lambda m, s: graph.map("add", m, graph.map("log", s)))
    return drop(result, dims, keepdim=keepdim)


@rule("_softmax_backward_data.default")
def softmax_backward(low: Lowering, node: TracedNode) -> Value:
    grad, y, shape = low.value(node.args[0]), low.value(node.args[1]), low.shape(node.args[1])
    dims = positions(low, node.args[2], len(shape))
    dot = reduce(low, times(low, grad, y), shape, dims, "sum")
    return times(low, y, minus(low, grad, dot))


@rule("_log_softmax_backward_data.default")
def log_softmax_backward(low: Lowering, node: TracedNode) -> Value:
    grad, y, shape = low.value(node.args[0]), low.value(node.args[1]), low.shape(node.args[1])
    dims = positions(low, node.args[2], len(shape))
    total = reduce(low, grad, shape, dims, "sum")
    probability = low.per_element([y], lambda a: low.graph.map("exp", a))
    return minus(low, grad, times(low, probability, total))
