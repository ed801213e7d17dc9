"""Mean, variance and vector norms of an axis. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.derivation import Unsupported
from kernels.passes.aten_elementwise import num
from kernels.passes.aten_reductions import drop, positions, reduce, size_of
from kernels.passes.aten_rules import rule
from kernels.passes.values import Value
from kernels.quantity import Quantity
from kernels.traced import TracedNode

if TYPE_CHECKING:
    from kernels.passes.lower import Lowering


def mean_of(low: Lowering, value: Value, shape: tuple[Quantity, ...], dims: list[int]) -> Value:
    count = low.graph.symbol(size_of(shape, dims))
    return low.per_element([reduce(low, value, shape, dims, "sum")], lambda a: low.graph.map("div", a, count))


def times(low: Lowering, a: Value, b: Value) -> Value:
    return low.per_element([a, b], lambda x, y: low.graph.map("mul", num(low.graph, x), num(low.graph, y)))


def minus(low: Lowering, a: Value, b: Value) -> Value:
    return low.per_element([a, b], lambda x, y: low.graph.map("sub", x, y))


def plus(low: Lowering, a: Value, b: Value) -> Value:
    return low.per_element([a, b], lambda x, y: low.graph.map("add", x, y))


def centered_variance(
    low: Lowering, value: Value, shape: tuple[Quantity, ...], dims: list[int]
) -> tuple[Value, Value, Value]:
    """(mean, centered, sum of squares of centered): two passes over registers, which doesn't cancel."""
    mean_value = mean_of(low, value, shape, dims)
    centered = minus(low, value, mean_value)
    return mean_value, centered, reduce(low, times(low, centered, centered), shape, dims, "sum")


@rule("var.correction", "var_mean.correction", "std.correction")
def variance(low: Lowering, node: TracedNode) -> Value | tuple[Value, ...]:
    value, shape = low.value(node.args[0]), low.shape(node.args[0])
    dims = positions(low, node.args[1] if len(node.args) > 1 else None, len(shape))
    correction = low.literal(node.kwargs["correction"]) if "correction" in node.kwargs else 1
    keepdim = bool(low.literal(node.kwargs["keepdim"])) if "keepdim" in node.kwargs else False
    graph = low.graph
    mean_value, _, squares = centered_variance(low, value, shape, dims)
    count = graph.symbol(size_of(shape, dims))
    if correction:
        count = graph.map("sub", count, graph.const(float(correction)))
    result = low.per_element([squares], lambda a: graph.map("div", a, count))
    if ".std." in node.op:
        result = low.per_element([result], lambda a: graph.map("sqrt", a))
    result = drop(result, dims, keepdim=keepdim)
    return (result, drop(mean_value, dims, keepdim=keepdim)) if "var_mean" in node.op else result


@rule("linalg_vector_norm.default", "norm.ScalarOpt_dim")
def vector_norm(low: Lowering, node: TracedNode) -> Value:
    value, shape = low.value(node.args[0]), low.shape(node.args[0])
    order = low.literal(node.args[1]) if len(node.args) > 1 else 2
    dims = positions(low, node.args[2] if len(node.args) > 2 else None, len(shape))
    keepdim = bool(low.literal(node.args[3])) if len(node.args) > 3 else False
    graph = low.graph
    if order in (1, 1.0):
        absolute = low.per_element([value], lambda a: graph.map("abs", a))
        result = reduce(low, absolute, shape, dims, "sum")
    elif order in (2, 2.0, None):
        result = reduce(low, times(low, value, value), shape, dims, "sum")
        result = low.per_element([result], lambda a: graph.map("sqrt", a))
    elif order == float("inf"):
        result = reduce(low, low.per_element([value], lambda a: graph.map("abs", a)), shape, dims, "max")
    else:
        raise Unsupported(f"a norm of order {order}", needed="order 1, 2 or inf")
    return drop(result, dims, keepdim=keepdim)
