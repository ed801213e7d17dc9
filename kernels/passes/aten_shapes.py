"""ATen operations that only move elements: each becomes a rewrite of named axes, or a signal to refine one. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kernels.derivation import Unsupported
from kernels.passes.values import MAX_UNROLL, Coordinates, Dims, Value, coordinates, unrolled
from kernels.quantity import Quantity
from kernels.row_program import Axis
from kernels.traced import Arg, ListArg, NodeArg, TracedNode

if TYPE_CHECKING:
    from kernels.passes.lower import Lowering

Rule = Callable[["Lowering", TracedNode], "Value | tuple[Value, ...] | None"]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    def register(function: Rule) -> Rule:
        for name in names:
            RULES[name if name == "getitem" else f"aten.{name}"] = function
        return function

    return register


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
    assert isinstance(node.args[0], NodeArg)
    parts = low.values[node.args[0].id]
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
    assert isinstance(node.args[1], ListArg)
    order = [low.axis_position(item, len(value.dims)) for item in node.args[1].items]
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
    before = unrolled(low.graph, value.dims)
    positions: list[int] = []
    start = 0
    starts = []
    for dim in value.dims:
        starts.append(start)
        start += sum(1 for a in dim if low.graph.axes[a].unroll)
    for d in order:
        count = sum(1 for a in value.dims[d] if low.graph.axes[a].unroll)
        positions.extend(range(starts[d], starts[d] + count))
    assert len(positions) == len(before)
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


# --- slices ----------------------------------------------------------------------------------------------------------


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


def _count(low: Lowering, whole: Quantity, part: Quantity) -> int:
    """How many pieces of size `part` make `whole`."""
    count = whole / part
    if not count.is_number or count.coef != int(count.coef) or not 1 <= count.coef <= MAX_UNROLL:
        raise Unsupported(
            f"a slice of {part.text()} out of {whole.text()} elements",
            needed=f"slices that cut an axis into at most {MAX_UNROLL} equal pieces",
        )
    return int(count.coef)


def _whole(quantity: Quantity) -> int:
    if quantity.coef == 0:
        return 0
    if not quantity.is_number or quantity.coef != int(quantity.coef):
        raise Unsupported(
            f"a slice that starts at {quantity.text()}", needed="a start that is a multiple of the length"
        )
    return int(quantity.coef)


def _bounds(low: Lowering, node: TracedNode, first: int, size: Quantity) -> tuple[Quantity, Quantity, int]:
    """Start, length and step of a slice whose arguments begin at `first`."""
    start = Quantity.number(0)
    step = 1
    if len(node.args) > first and low_is_set(node.args[first]):
        start = low.quantity(node.args[first])
    if start.coef < 0:
        start = _plus(size, start)
    if len(node.args) > first + 2:
        step = int(low.literal(node.args[first + 2]))  # type: ignore[arg-type]
    end = size
    if len(node.args) > first + 1 and low_is_set(node.args[first + 1]):
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


def low_is_set(arg: Arg) -> bool:
    return not (arg.kind == "literal" and arg.type == "none")


@rule("slice.Tensor")
def slice_(low: Lowering, node: TracedNode) -> Value:
    value, shape = low.value(node.args[0]), low.shape(node.args[0])
    position = low.axis_position(node.args[1], len(shape)) if len(node.args) > 1 else 0
    size = shape[position]
    start, _, step = _bounds(low, node, 2, size)
    length = node.shape[position]
    if length.same(size) or not value.dims[position]:
        return value
    if step != 1:
        count = _count(low, size, length)
        if count != step:
            raise Unsupported(f"a slice with step {step} that doesn't cover its axis evenly")
        piece(low, value.dims, position, size, count, interleaved=True)
        return take(low, value, position, _whole(start), interleaved=True)
    count = _count(low, size, length)
    piece(low, value.dims, position, size, count, interleaved=False)
    return take(low, value, position, _whole(start / length), interleaved=False)


@rule("select.int")
def select(low: Lowering, node: TracedNode) -> Value:
    value, shape = low.value(node.args[0]), low.shape(node.args[0])
    position = low.axis_position(node.args[1], len(shape))
    dropped = Value((*value.dims[:position], *value.dims[position + 1 :]), value.elements)
    if not value.dims[position]:
        return dropped
    size = shape[position]
    index = _whole(low.quantity(node.args[2]))
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
    count = _count(low, shape[position], Quantity())
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
        count = _count(low, size, low.quantity(node.args[1]))
    if count == 1:
        return (value,)
    piece(low, value.dims, position, size, count, interleaved=False)
    return tuple(take(low, value, position, i, interleaved=False) for i in range(count))


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


# --- joins -----------------------------------------------------------------------------------------------------------


def _new_axis(low: Lowering, count: int) -> str:
    name = f"unroll_{count}"
    low.graph.axes.setdefault(name, Axis(name=name, size=Quantity.number(count), unroll=count))
    return name


def join(low: Lowering, values: list[Value], position: int, *, interleaved: bool) -> Value:
    """Values side by side on a new unrolled axis at the edge of one dimension (innermost when interleaved)."""
    if len(values) > MAX_UNROLL:
        raise Unsupported(f"a join of {len(values)} tensors", needed=f"at most {MAX_UNROLL}")
    from kernels.passes.values import broadcast, element

    dims, aligned = broadcast(low.graph, values)
    axis = _new_axis(low, len(values))
    dim = (*dims[position], axis) if interleaved else (axis, *dims[position])
    before = sum(1 for d in dims[:position] for a in d if low.graph.axes[a].unroll)
    inside = sum(1 for a in dims[position] if low.graph.axes[a].unroll)
    index = before + inside if interleaved else before
    elements: dict[Coordinates, int] = {}
    for which, value in enumerate(aligned):
        for at in coordinates(low.graph, dims):
            elements[at[:index] + (which,) + at[index:]] = element(low.graph, value, dims, at)
    return Value((*dims[:position], dim, *dims[position + 1 :]), elements)


@rule("cat.default")
def cat(low: Lowering, node: TracedNode) -> Value:
    assert isinstance(node.args[0], ListArg)
    parts = list(node.args[0].items)
    rank = len(node.shape)
    position = low.axis_position(node.args[1], rank) if len(node.args) > 1 else 0
    sizes = [low.shape(p)[position] for p in parts]
    if any(not size.same(sizes[0]) for size in sizes):
        raise Unsupported("a concatenation of pieces of different sizes", needed="equal pieces")
    return join(low, [low.value(p) for p in parts], position, interleaved=False)


@rule("stack.default")
def stack(low: Lowering, node: TracedNode) -> Value:
    assert isinstance(node.args[0], ListArg)
    rank = len(node.shape)
    position = low.axis_position(node.args[1], rank) if len(node.args) > 1 else 0
    values = []
    for part in node.args[0].items:
        value = low.value(part)
        values.append(Value((*value.dims[:position], (), *value.dims[position:]), value.elements))
    return join(low, values, position, interleaved=False)


@rule("slice_backward.default")
def slice_backward(low: Lowering, node: TracedNode) -> Value:
    """Zeros, with the gradient in the slice."""
    grad = low.value(node.args[0])
    position = low.axis_position(node.args[2], len(node.shape))
    size, length = node.shape[position], low.shape(node.args[0])[position]
    start, _, step = _bounds(low, node, 3, size)
    if length.same(size):
        return grad
    count = _count(low, size, length)
    which = _whole(start) if step != 1 else _whole(start / length)
    return _place(low, grad, position, count, which, interleaved=step != 1)


@rule("select_backward.default")
def select_backward(low: Lowering, node: TracedNode) -> Value:
    grad = low.value(node.args[0])
    position = low.axis_position(node.args[2], len(node.shape))
    count = _count(low, node.shape[position], Quantity())
    index = _whole(low.quantity(node.args[3]))
    grad = Value((*grad.dims[:position], (), *grad.dims[position:]), grad.elements)
    return _place(low, grad, position, count, index + count if index < 0 else index, interleaved=False)


def _place(low: Lowering, grad: Value, position: int, count: int, which: int, *, interleaved: bool) -> Value:
    zero = Value.scalar(low.graph.const(0), len(grad.dims))
    if count == 1:
        return grad
    parts = [grad if i == which else zero for i in range(count)]
    return join(low, parts, position, interleaved=interleaved)
