"""Layer and group norms and their gradients, in the textbook form. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.passes.aten_reductions import drop, reduce, size_of
from kernels.passes.aten_rules import rule
from kernels.passes.aten_shapes import view_as
from kernels.passes.aten_statistics import centered_variance, mean_of, minus, plus, times
from kernels.passes.values import Value
from kernels.quantity import Quantity
from kernels.traced import Arg, TracedNode

if TYPE_CHECKING:
    from kernels.passes.lower import Lowering


def _optional(low: Lowering, node: TracedNode, position: int) -> Value | None:
    arg = node.args[position]
    return None if arg.kind == "literal" and arg.type == "none" else low.value(arg)


def _rstd(low: Lowering, squares: Value, count: Quantity, eps: Value) -> Value:
    graph = low.graph
    size = graph.symbol(count)
    return low.per_element(
        [squares, eps], lambda a, e: graph.map("rsqrt", graph.map("add", graph.map("div", a, size), e))
    )


@rule("native_layer_norm.default")
def layer_norm(low: Lowering, node: TracedNode) -> tuple[Value, ...]:
    value, shape = low.value(node.args[0]), low.shape(node.args[0])
    dims = list(range(len(shape) - len(low.items(node.args[1])), len(shape)))
    weight, bias, eps = _optional(low, node, 2), _optional(low, node, 3), low.value(node.args[4])
    mean_value, centered, squares = centered_variance(low, value, shape, dims)
    rstd = _rstd(low, squares, size_of(shape, dims), eps)
    result = times(low, centered, rstd)
    if weight is not None:
        result = times(low, result, weight)
    if bias is not None:
        result = plus(low, result, bias)
    return result, mean_value, rstd


def _norm_input_gradient(
    low: Lowering, grad: Value, normal: Value, rstd: Value, shape: tuple[Quantity, ...], dims: list[int]
) -> Value:
    """rstd * (g - mean(g) - normal * mean(g * normal)), with g the gradient of the normalised value."""
    along = mean_of(low, times(low, grad, normal), shape, dims)
    inner = minus(low, minus(low, grad, mean_of(low, grad, shape, dims)), times(low, normal, along))
    return times(low, rstd, inner)


@rule("native_layer_norm_backward.default")
def layer_norm_backward(low: Lowering, node: TracedNode) -> tuple[Value, ...]:
    grad, value, shape = low.value(node.args[0]), low.value(node.args[1]), low.shape(node.args[1])
    n = len(low.items(node.args[2]))
    dims = list(range(len(shape) - n, len(shape)))
    lead = list(range(len(shape) - n))
    mean_value, rstd = low.value(node.args[3]), low.value(node.args[4])
    weight = _optional(low, node, 5)
    normal = times(low, minus(low, value, mean_value), rstd)
    inner = times(low, grad, weight) if weight is not None else grad
    dx = _norm_input_gradient(low, inner, normal, rstd, shape, dims)
    dweight = drop(reduce(low, times(low, grad, normal), shape, lead, "sum"), lead, keepdim=False)
    dbias = drop(reduce(low, grad, shape, lead, "sum"), lead, keepdim=False)
    return dx, dweight, dbias


def _grouped(low: Lowering, arg: Arg, node: TracedNode, first: int) -> tuple[Value, tuple[Quantity, ...]]:
    """A group norm operand as (N, groups, channels in a group, space)."""
    batch, channels, space, groups = (low.quantity(a) for a in node.args[first : first + 4])
    target = (batch, groups, channels / groups, space)
    return view_as(low, low.value(arg), low.shape(arg), target), target


def _per_channel(low: Lowering, arg: Arg, target: tuple[Quantity, ...]) -> Value:
    """A channel vector as (groups, channels in a group, 1)."""
    value = view_as(low, low.value(arg), low.shape(arg), target[1:3])
    return Value((*value.dims, ()), value.elements)


@rule("native_group_norm.default")
def group_norm(low: Lowering, node: TracedNode) -> tuple[Value, ...]:
    value, target = _grouped(low, node.args[0], node, 3)
    eps = low.value(node.args[7])
    mean_value, centered, squares = centered_variance(low, value, target, [2, 3])
    rstd = _rstd(low, squares, target[2] * target[3], eps)
    result = times(low, centered, rstd)
    if not _is_none(node.args[1]):
        result = times(low, result, _per_channel(low, node.args[1], target))
    if not _is_none(node.args[2]):
        result = plus(low, result, _per_channel(low, node.args[2], target))
    statistics = [Value(v.dims[:2], v.elements) for v in (mean_value, rstd)]
    return view_as(low, result, target, low.shape(node.args[0])), *statistics


def _is_none(arg: Arg) -> bool:
    return arg.kind == "literal" and arg.type == "none"


@rule("native_group_norm_backward.default")
def group_norm_backward(low: Lowering, node: TracedNode) -> tuple[Value | None, ...]:
    grad, target = _grouped(low, node.args[0], node, 5)
    value, _ = _grouped(low, node.args[1], node, 5)
    mean_value, rstd = (Value((*v.dims, (), ()), v.elements) for v in (low.value(a) for a in node.args[2:4]))
    normal = times(low, minus(low, value, mean_value), rstd)
    inner = grad if _is_none(node.args[4]) else times(low, grad, _per_channel(low, node.args[4], target))
    dx = view_as(
        low, _norm_input_gradient(low, inner, normal, rstd, target, [2, 3]), target, low.shape(node.args[1])
    )
    channels = (target[1] * target[2],)
    sums = []
    for product in (times(low, grad, normal), grad):
        total = drop(reduce(low, product, target, [0, 3], "sum"), [0, 3], keepdim=False)
        sums.append(view_as(low, total, target[1:3], channels))
    return dx, *sums
