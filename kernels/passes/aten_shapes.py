"""ATen operations that only move elements: views, permutes and constants become rewrites of named axes. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.derivation import Unsupported
from kernels.passes.aten_rules import rule
from kernels.passes.values import (
    Value,
)
from kernels.quantity import Quantity
from kernels.traced import TracedNode

if TYPE_CHECKING:
    from kernels.passes.lower import Lowering


@rule(
    "detach.default", "clone.default", "alias.default", "contiguous.default", "lift_fresh_copy.default", "expand.default",
    "expand_as.default", "positive.default",
)  # fmt: skip
def same(low: Lowering, node: TracedNode) -> Value:
    """No element moves. An expanded dimension stays (): it broadcasts wherever it is used."""
    value = low.value(node.args[0])
    missing = len(node.shape) - len(value.dims)
    return Value(((),) * missing + value.dims, value.elements)


@rule("getitem")
def getitem(low: Lowering, node: TracedNode) -> Value | None:
    parts = low.values[low.node(node.args[0]).id]
    index = int(low.literal(node.args[1]))  # type: ignore[arg-type]
    if isinstance(parts, Value):  # an element-wise rule for an operation that also returns a scratch buffer
        return parts if index == 0 else None
    if not isinstance(parts, tuple) or index >= len(parts):
        raise Unsupported("a part of a result that has no such part")
    return parts[index]


@rule(
    "zeros.default", "ones.default", "full.default", "scalar_tensor.default", "new_zeros.default", "new_ones.default",
    "new_full.default", "zeros_like.default", "ones_like.default", "full_like.default", "empty_like.default",
    "new_empty.default", "fill.Scalar", "fill.Tensor",
)  # fmt: skip
def constant(low: Lowering, node: TracedNode) -> Value:
    """A constant tensor broadcasts: all its dimensions are ()."""
    name = node.op.split(".")[1]
    rank = len(node.shape)
    if name in ("full", "full_like", "fill"):
        filled = low.value(node.args[1])
        return Value.scalar(filled.node(), rank)
    if name == "scalar_tensor":
        return Value.scalar(low.value(node.args[0]).node(), rank)
    if name == "new_full":
        return Value.scalar(low.value(node.args[2]).node(), rank)
    # An uninitialised tensor is only ever filled next; as 0 it can't bring in a NaN.
    return Value.scalar(low.graph.const(1 if name in ("ones", "new_ones", "ones_like") else 0), rank)


@rule("permute.default")
def permute(low: Lowering, node: TracedNode) -> Value:
    value = low.value(node.args[0])
    order = [low.axis_position(item, len(value.dims)) for item in low.items(node.args[1])]
    return reorder(low, value, order)


@rule("transpose.int")
def transpose(low: Lowering, node: TracedNode) -> Value:
    value = low.value(node.args[0])
    order = list(range(len(value.dims)))
    a, b = (low.axis_position(arg, len(order)) for arg in node.args[1:3])
    order[a], order[b] = order[b], order[a]
    return reorder(low, value, order)


@rule("t.default", "numpy_T.default")
def matrix_transpose(low: Lowering, node: TracedNode) -> Value:
    value = low.value(node.args[0])
    return reorder(low, value, list(reversed(range(len(value.dims)))))


def reorder(low: Lowering, value: Value, order: list[int]) -> Value:
    """Permute dimensions; the elements' coordinates follow."""
    positions: list[int] = []
    start = 0
    starts = []
    for dim in value.dims:
        starts.append(start)
        start += sum(1 for a in dim if low.graph.axes[a].unroll)
    for d in order:
        count = sum(1 for a in value.dims[d] if low.graph.axes[a].unroll)
        positions.extend(range(starts[d], starts[d] + count))
    elements = {tuple(at[p] for p in positions): n for at, n in value.elements.items()}
    return Value(tuple(value.dims[d] for d in order), elements)


@rule("unsqueeze.default")
def unsqueeze(low: Lowering, node: TracedNode) -> Value:
    value = low.value(node.args[0])
    position = low.axis_position(node.args[1], len(value.dims) + 1)
    return Value((*value.dims[:position], (), *value.dims[position:]), value.elements)


@rule("squeeze.dim", "squeeze.dims", "squeeze.default", "view.default", "reshape.default", "_unsafe_view.default",
      "flatten.using_ints", "unflatten.int")  # fmt: skip
def view(low: Lowering, node: TracedNode) -> Value:
    return view_as(low, low.value(node.args[0]), low.shape(node.args[0]), node.shape)


def view_as(low: Lowering, value: Value, source: tuple[Quantity, ...], target: tuple[Quantity, ...]) -> Value:
    """Deal the source's axes, in order, to the target's dimensions. Raises Refine where one must be split."""
    queue: list[tuple[str | None, Quantity]] = []
    for dim, size in zip(value.dims, source, strict=True):
        if dim:
            queue.extend((axis, low.graph.axes[axis].size) for axis in dim)
        elif not size.same(Quantity()):
            queue.append((None, size))  # a broadcast dimension: no axis, but it takes its place
    dims: list[tuple[str, ...]] = []
    for wanted in target:
        dealt: list[str] = []
        left = wanted
        broadcasts = False
        while not left.same(Quantity()):
            if not queue:
                raise Unsupported("a reshape whose sizes don't follow from the axes")
            axis, size = queue.pop(0)
            if low.numeric(size) > low.numeric(left) * (1 + 1e-9):
                rest = size / left
                if axis is None:
                    queue.insert(0, (None, rest))
                    left, broadcasts = Quantity(), True
                    break
                raise low.split(axis, left, rest)
            if axis is None:
                broadcasts = True
            else:
                dealt.append(axis)
            left = left / size
        if broadcasts and dealt:
            raise Unsupported("a reshape that merges an expanded dimension with a real one")
        dims.append(tuple(dealt))
    return Value(tuple(dims), value.elements)
