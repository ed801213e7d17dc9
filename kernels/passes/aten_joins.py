"""Concatenations, stacks, gated halves, and the gradients of slices: pieces side by side on an unrolled axis. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.derivation import Unsupported
from kernels.passes.aten_rules import rule
from kernels.passes.aten_slices import bounds, piece, pieces_of, take, whole
from kernels.passes.values import (
    MAX_UNROLL,
    Coordinates,
    Value,
    broadcast,
    coordinates,
    element,
)
from kernels.quantity import Quantity
from kernels.row_program import Axis
from kernels.traced import TracedNode

if TYPE_CHECKING:
    from kernels.passes.lower import Lowering


def _new_axis(low: Lowering, count: int) -> str:
    name = f"unroll_{count}"
    low.graph.axes.setdefault(name, Axis(name=name, size=Quantity.number(count), unroll=count))
    return name


def join(low: Lowering, values: list[Value], position: int, *, interleaved: bool) -> Value:
    """Values side by side on a new unrolled axis at the edge of one dimension (innermost when interleaved)."""
    if len(values) > MAX_UNROLL:
        raise Unsupported(f"a join of {len(values)} tensors", needed=f"at most {MAX_UNROLL}")
    dims, aligned = broadcast(low.graph, values)
    axis = _new_axis(low, len(values))
    dim = (*dims[position], axis) if interleaved else (axis, *dims[position])
    before = sum(1 for d in dims[:position] for a in d if low.graph.axes[a].unroll)
    inside = sum(1 for a in dims[position] if low.graph.axes[a].unroll)
    index = before + inside if interleaved else before
    elements: dict[Coordinates, int] = {}
    for which, value in enumerate(aligned):
        for at in coordinates(low.graph, dims):
            elements[(*at[:index], which, *at[index:])] = element(low.graph, value, dims, at)
    return Value((*dims[:position], dim, *dims[position + 1 :]), elements)


@rule("cat.default")
def cat(low: Lowering, node: TracedNode) -> Value:
    parts = list(low.items(node.args[0]))
    rank = len(node.shape)
    position = low.axis_position(node.args[1], rank) if len(node.args) > 1 else 0
    sizes = [low.shape(p)[position] for p in parts]
    if any(not size.same(sizes[0]) for size in sizes):
        raise Unsupported("a concatenation of pieces of different sizes", needed="equal pieces")
    return join(low, [low.value(p) for p in parts], position, interleaved=False)


@rule("stack.default")
def stack(low: Lowering, node: TracedNode) -> Value:
    rank = len(node.shape)
    position = low.axis_position(node.args[1], rank) if len(node.args) > 1 else 0
    values = []
    for part in low.items(node.args[0]):
        value = low.value(part)
        values.append(Value((*value.dims[:position], (), *value.dims[position:]), value.elements))
    return join(low, values, position, interleaved=False)


@rule("slice_backward.default")
def slice_backward(low: Lowering, node: TracedNode) -> Value:
    """Zeros, with the gradient in the slice."""
    grad = low.value(node.args[0])
    position = low.axis_position(node.args[2], len(node.shape))
    size, length = node.shape[position], low.shape(node.args[0])[position]
    start, _, step = bounds(low, node, 3, size)
    if length.same(size):
        return grad
    count = pieces_of(size, length)
    which = whole(start) if step != 1 else whole(start / length)
    return _place(low, grad, position, count, which, interleaved=step != 1)


@rule("select_backward.default")
def select_backward(low: Lowering, node: TracedNode) -> Value:
    grad = low.value(node.args[0])
    position = low.axis_position(node.args[2], len(node.shape))
    count = pieces_of(node.shape[position], Quantity())
    index = whole(low.quantity(node.args[3]))
    grad = Value((*grad.dims[:position], (), *grad.dims[position:]), grad.elements)
    return _place(low, grad, position, count, index + count if index < 0 else index, interleaved=False)


def _place(low: Lowering, grad: Value, position: int, count: int, which: int, *, interleaved: bool) -> Value:
    zero = Value.scalar(low.graph.const(0), len(grad.dims))
    if count == 1:
        return grad
    parts = [grad if i == which else zero for i in range(count)]
    return join(low, parts, position, interleaved=interleaved)


@rule("glu.default")
def glu(low: Lowering, node: TracedNode) -> Value:
    value, shape = low.value(node.args[0]), low.shape(node.args[0])
    position = low.axis_position(node.args[1], len(shape)) if len(node.args) > 1 else len(shape) - 1
    piece(low, value.dims, position, shape[position], 2, interleaved=False)
    first, second = (take(low, value, position, i, interleaved=False) for i in range(2))
    g = low.graph
    return low.per_element([first, second], lambda a, b: g.map("mul", a, g.map("sigmoid", b)))


@rule("glu_backward.default")
def glu_backward(low: Lowering, node: TracedNode) -> Value:
    grad, value, shape = low.value(node.args[0]), low.value(node.args[1]), low.shape(node.args[1])
    position = low.axis_position(node.args[2], len(shape))
    piece(low, value.dims, position, shape[position], 2, interleaved=False)
    first, second = (take(low, value, position, i, interleaved=False) for i in range(2))
    g = low.graph

    def slope(d: int, a: int, b: int) -> int:
        sig = g.map("sigmoid", b)
        rest = g.map("mul", g.map("sub", g.const(1), sig), sig)
        return g.map("mul", g.map("mul", rest, a), d)

    dfirst = low.per_element([grad, second], lambda d, b: g.map("mul", g.map("sigmoid", b), d))
    return join(low, [dfirst, low.per_element([grad, first, second], slope)], position, interleaved=False)
