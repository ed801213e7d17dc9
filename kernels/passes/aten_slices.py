"""Slices, selections and splits: coordinates on small unrolled axes, or a signal to refine an axis. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.derivation import Unsupported
from kernels.passes.aten_rules import rule
from kernels.passes.values import (
    MAX_UNROLL,
    Dims,
    Value,
)
from kernels.quantity import Quantity
from kernels.traced import Arg, ListArg, TracedNode

if TYPE_CHECKING:
    from kernels.passes.lower import Lowering


def piece(low: Lowering, dims: Dims, position: int, size: Quantity, count: int, *, interleaved: bool) -> Dims:
    """Dimensions with `position` split into `count` unrolled pieces (outermost, or innermost when interleaved).

    Raises Refine when its axes aren't split there yet.
    """
    dim = dims[position]
    edge = dim[-1] if interleaved else dim[0]
    if low.graph.axes[edge].unroll == count:
        return dims
    if low.graph.axes[edge].unroll is not None or len(dim) > 1:
        raise Unsupported("a slice across axes that are already split another way")
    length, number = size / Quantity.number(count), Quantity.number(count)
    raise low.split(edge, length, number) if interleaved else low.split(edge, number, length)


def take(low: Lowering, value: Value, position: int, which: int, *, interleaved: bool) -> Value:
    """Fix the coordinate on the unrolled axis at the edge of one dimension."""
    before = sum(1 for dim in value.dims[:position] for a in dim if low.graph.axes[a].unroll)
    inside = sum(1 for a in value.dims[position] if low.graph.axes[a].unroll)
    index = before + inside - 1 if interleaved else before
    dim = value.dims[position][:-1] if interleaved else value.dims[position][1:]
    elements = {at[:index] + at[index + 1 :]: n for at, n in value.elements.items() if at[index] == which}
    return Value((*value.dims[:position], dim, *value.dims[position + 1 :]), elements)


def pieces_of(whole: Quantity, part: Quantity) -> int:
    """How many pieces of size `part` make `whole`."""
    count = whole / part
    if not count.is_number or count.coef != int(count.coef) or not 1 <= count.coef <= MAX_UNROLL:
        raise Unsupported(
            f"a slice of {part.text()} out of {whole.text()} elements",
            needed=f"slices that cut an axis into at most {MAX_UNROLL} equal pieces",
        )
    return int(count.coef)


def whole(quantity: Quantity) -> int:
    if quantity.coef == 0:
        return 0
    if not quantity.is_number or quantity.coef != int(quantity.coef):
        raise Unsupported(
            f"a slice that starts at {quantity.text()}", needed="a start that is a multiple of the length"
        )
    return int(quantity.coef)


def bounds(low: Lowering, node: TracedNode, first: int, size: Quantity) -> tuple[Quantity, Quantity, int]:
    """Start, length and step of a slice whose arguments begin at `first`."""
    start = Quantity.number(0)
    step = 1
    if len(node.args) > first and is_set(node.args[first]):
        start = low.quantity(node.args[first])
    if start.coef < 0:
        start = _plus(size, start)
    if len(node.args) > first + 2:
        step = int(low.literal(node.args[first + 2]))  # type: ignore[arg-type]
    end = size
    if len(node.args) > first + 1 and is_set(node.args[first + 1]):
        given = low.quantity(node.args[first + 1])
        if given.coef < 0:
            given = _plus(size, given)
        if low.numeric(given) < low.numeric(size):
            end = given
    return start, end, step


def _plus(size: Quantity, negative: Quantity) -> Quantity:
    if size.is_number and negative.is_number:
        return Quantity.number(size.coef + negative.coef)
    if size.factors == negative.factors:
        return Quantity(coef=size.coef + negative.coef, factors=size.factors)
    raise Unsupported(f"a slice that starts {negative.text()} from the end of {size.text()} elements")


def is_set(arg: Arg) -> bool:
    return not (arg.kind == "literal" and arg.type == "none")


@rule("slice.Tensor")
def slice_(low: Lowering, node: TracedNode) -> Value:
    value, shape = low.value(node.args[0]), low.shape(node.args[0])
    position = low.axis_position(node.args[1], len(shape)) if len(node.args) > 1 else 0
    size = shape[position]
    start, _, step = bounds(low, node, 2, size)
    length = node.shape[position]
    if length.same(size) or not value.dims[position]:
        return value
    if step != 1:
        count = pieces_of(size, length)
        if count != step:
            raise Unsupported(f"a slice with step {step} that doesn't cover its axis evenly")
        piece(low, value.dims, position, size, count, interleaved=True)
        return take(low, value, position, whole(start), interleaved=True)
    count = pieces_of(size, length)
    piece(low, value.dims, position, size, count, interleaved=False)
    return take(low, value, position, whole(start / length), interleaved=False)


@rule("select.int")
def select(low: Lowering, node: TracedNode) -> Value:
    value, shape = low.value(node.args[0]), low.shape(node.args[0])
    position = low.axis_position(node.args[1], len(shape))
    dropped = Value((*value.dims[:position], *value.dims[position + 1 :]), value.elements)
    if not value.dims[position]:
        return dropped
    size = shape[position]
    index = whole(low.quantity(node.args[2]))
    if not size.is_number:
        raise Unsupported(
            f"one element of an axis of size {size.text()}", needed="an axis of at most 8 elements"
        )
    count = int(size.coef)
    index = index + count if index < 0 else index
    piece(low, value.dims, position, size, count, interleaved=False)
    taken = take(low, value, position, index, interleaved=False)
    if taken.dims[position]:
        raise Unsupported("one element of an axis that is split another way")
    return Value((*taken.dims[:position], *taken.dims[position + 1 :]), taken.elements)


@rule("unbind.int")
def unbind(low: Lowering, node: TracedNode) -> tuple[Value, ...]:
    value, shape = low.value(node.args[0]), low.shape(node.args[0])
    position = low.axis_position(node.args[1], len(shape)) if len(node.args) > 1 else 0
    count = pieces_of(shape[position], Quantity())
    piece(low, value.dims, position, shape[position], count, interleaved=False)
    parts = [take(low, value, position, i, interleaved=False) for i in range(count)]
    return tuple(Value((*p.dims[:position], *p.dims[position + 1 :]), p.elements) for p in parts)


@rule("split.Tensor", "split_with_sizes.default", "chunk.default", "unsafe_split.Tensor")
def split(low: Lowering, node: TracedNode) -> tuple[Value, ...]:
    value, shape = low.value(node.args[0]), low.shape(node.args[0])
    position = low.axis_position(node.args[2], len(shape)) if len(node.args) > 2 else 0
    size = shape[position]
    if node.op.startswith("aten.chunk"):
        count = int(low.literal(node.args[1]))  # type: ignore[arg-type]
    elif isinstance(node.args[1], ListArg):
        lengths = [low.quantity(item) for item in node.args[1].items]
        if any(not length.same(lengths[0]) for length in lengths):
            raise Unsupported("a split into pieces of different sizes", needed="equal pieces")
        count = len(lengths)
    else:
        count = pieces_of(size, low.quantity(node.args[1]))
    if count == 1:
        return (value,)
    piece(low, value.dims, position, size, count, interleaved=False)
    return tuple(take(low, value, position, i, interleaved=False) for i in range(count))
