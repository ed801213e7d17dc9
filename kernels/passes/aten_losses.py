"""ATen's losses, and gathers along a row: the label's element, and one-hot gradients. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kernels.derivation import Unsupported
from kernels.passes.aten_elementwise import num
from kernels.passes.aten_reductions import drop, reduce, size_of
from kernels.passes.graph import Graph
from kernels.passes.values import MAX_UNROLL, Value
from kernels.row_program import Cast, Gather, Index, Load, Map, Reduce
from kernels.traced import Arg, ListArg, TracedNode

if TYPE_CHECKING:
    from kernels.passes.lower import Lowering

Rule = Callable[["Lowering", TracedNode], "Value | tuple[Value, ...] | None"]
RULES: dict[str, Rule] = {}
NONE, MEAN, SUM = 0, 1, 2  # ATen's reduction argument


def rule(*names: str) -> Callable[[Rule], Rule]:
    def register(function: Rule) -> Rule:
        for name in names:
            RULES[f"aten.{name}"] = function
        return function

    return register


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


# --- gathers ---------------------------------------------------------------------------------------------------------


def gather_at(g: Graph, node: int, axis: str, index: int) -> int:
    """`node` at coordinate `index` of an axis: an indirect load where that is possible, a one-hot sum elsewhere.

    Gathering moves inward: (x - max - log(sum))[t] is x[t] - max - log(sum), one element and no pass over the row.
    """
    if axis not in g.axes_of[node]:
        return node
    found = g.nodes[node]
    if isinstance(found, Load):
        return g.add(Gather(tensor=found.tensor, axis=axis, index=index, at=found.at))
    if isinstance(found, Index):
        return index
    if isinstance(found, Map):
        return g.map(found.fn, *(gather_at(g, a, axis, index) for a in found.args))
    if isinstance(found, Cast):
        return g.add(Cast(arg=gather_at(g, found.arg, axis, index), like=found.like))
    chosen = g.map("where", g.map("eq", g.add(Index(axis=axis)), index), node, g.const(0))
    return g.add(Reduce(fn="sum", arg=chosen, axes=(axis,)))


def _single_axis(low: Lowering, dim: tuple[str, ...]) -> str:
    if len(dim) != 1 or low.graph.axes[dim[0]].unroll:
        raise Unsupported("a gather along an axis that is split", needed="a whole axis")
    return dim[0]


def _require_one(low: Lowering, index: Arg, position: int) -> None:
    size = low.shape(index)[position]
    if not (size.is_number and size.coef == 1):
        raise Unsupported(f"a gather of {size.text()} elements a row", needed="one element a row")


@rule("gather.default")
def gather(low: Lowering, node: TracedNode) -> Value:
    value, index = low.value(node.args[0]), low.value(node.args[2])
    position = low.axis_position(node.args[1], len(value.dims))
    if not any(low.graph.axes[a].unroll for a in index.dims[position]):
        _require_one(low, node.args[2], position)
    axis = _single_axis(low, value.dims[position])
    without = Value((*value.dims[:position], (), *value.dims[position + 1 :]), value.elements)
    return low.per_element([without, index], lambda a, i: gather_at(low.graph, a, axis, i))


@rule("scatter_add.default", "scatter.value", "scatter.src")
def scatter(low: Lowering, node: TracedNode) -> Value:
    """One element a row is added or replaced: a one-hot comparison with the column."""
    g = low.graph
    base, index, source = low.value(node.args[0]), low.value(node.args[2]), low.value(node.args[3])
    position = low.axis_position(node.args[1], len(node.shape))
    if len(index.elements) == 1:
        _require_one(low, node.args[2], position)
    dim = base.dims[position] or low.dims_of_size(node.shape[position])
    axis = _single_axis(low, dim)
    adds = "scatter_add" in node.op

    def place(old: int, at: int, new: int) -> int:
        here = g.map("eq", g.add(Index(axis=axis)), at)
        new = num(g, new)
        if adds:
            return g.map("add", old, g.map("where", here, new, g.const(0)))
        return g.map("where", here, new, old)

    placed = base
    for which in range(max(len(index.elements), 1)):  # a few elements a row (top k): one after the other
        one, new = (_element(low, v, position, which) for v in (index, source))
        placed = low.per_element([placed, one, new], place)
    return Value((*placed.dims[:position], (axis,), *placed.dims[position + 1 :]), placed.elements)


def _element(low: Lowering, value: Value, position: int, which: int) -> Value:
    from kernels.passes.aten_shapes import take

    if not any(low.graph.axes[a].unroll for a in value.dims[position]):
        return value
    return take(low, value, position, which, interleaved=False)


@rule("index.Tensor")
def index(low: Lowering, node: TracedNode) -> Value:
    """Rows (or elements) of a tensor picked by one index tensor."""
    value = low.value(node.args[0])
    assert isinstance(node.args[1], ListArg)
    given = [
        (d, item)
        for d, item in enumerate(node.args[1].items)
        if not (item.kind == "literal" and item.type == "none")
    ]
    if len(given) != 1:
        raise Unsupported("an index by several tensors", needed="one index tensor")
    position, item = given[0]
    return _lookup(low, value, position, low.value(item))


def _lookup(low: Lowering, value: Value, position: int, places: Value) -> Value:
    axis = _single_axis(low, value.dims[position])
    dims = (*value.dims[:position], *places.dims, *value.dims[position + 1 :])
    if len(value.elements) > 1 or len(places.elements) > 1:
        raise Unsupported("a lookup in a tensor that is split into parts")
    return Value(dims, {(): gather_at(low.graph, value.node(), axis, places.node())})


@rule("embedding.default")
def embedding(low: Lowering, node: TracedNode) -> Value:
    return _lookup(low, low.value(node.args[0]), 0, low.value(node.args[1]))


@rule("embedding_dense_backward.default")
def embedding_backward(low: Lowering, node: TracedNode) -> Value:
    """For each row of the table the sum of the gradients of its tokens: a one-hot sum, which becomes a scatter."""
    g = low.graph
    grad, tokens = low.value(node.args[0]), low.value(node.args[1])
    padding = int(low.literal(node.args[3]))  # type: ignore[arg-type]
    if low.literal(node.args[4]):
        raise Unsupported("an embedding whose gradient is scaled by frequency")
    axis = _single_axis(low, low.dims_of_size(node.shape[0]))
    here = g.map("eq", g.add(Index(axis=axis)), tokens.node())
    value = grad.node()
    if padding >= 0:
        value = g.map("where", g.map("eq", tokens.node(), g.const(padding)), g.const(0), value)
    over = tuple(a for dim in tokens.dims for a in dim)
    total = g.add(Reduce(fn="sum", arg=g.map("where", here, value, g.const(0)), axes=over))
    return Value(((axis,), grad.dims[-1]), {(): total})


@rule("topk.default")
def topk(low: Lowering, node: TracedNode) -> tuple[Value, ...]:
    """k times the largest that is left: k rounds of maximum and mask over a row in registers."""
    from kernels.passes.aten_shapes import join

    g = low.graph
    value, shape = low.value(node.args[0]), low.shape(node.args[0])
    k = int(low.literal(node.args[1]))  # type: ignore[arg-type]
    position = low.axis_position(node.args[2], len(shape)) if len(node.args) > 2 else len(shape) - 1
    if k > MAX_UNROLL or (len(node.args) > 3 and not low.literal(node.args[3])):
        raise Unsupported(f"the {k} smallest or largest", needed=f"the largest, at most {MAX_UNROLL} of them")
    axis = _single_axis(low, value.dims[position])
    row = Value((*value.dims[:position], (), *value.dims[position + 1 :]), value.elements)
    best: list[Value] = []
    places: list[Value] = []
    for _ in range(k):
        best.append(low.per_element([row], lambda a: g.add(Reduce(fn="max", arg=a, axes=(axis,)))))
        places.append(low.per_element([row], lambda a: g.add(Reduce(fn="argmax", arg=a, axes=(axis,)))))
        row = low.per_element(
            [row, places[-1]],
            lambda a, i: g.map("where", g.map("eq", g.add(Index(axis=axis)), i), g.const(float("-inf")), a),
        )
    return tuple(
        join(low, parts, position, interleaved=False) if k > 1 else parts[0] for parts in (best, places)
    )


@rule("nll_loss_forward.default")
def nll_loss(low: Lowering, node: TracedNode) -> tuple[Value, ...]:
    g = low.graph
    value, target = low.value(node.args[0]), low.value(node.args[1])
    if not (node.args[2].kind == "literal" and node.args[2].type == "none"):
        raise Unsupported(
            "a negative log likelihood with class weights", needed="the weights written out with a gather"
        )
    reduction, ignored = int(_argument(low, node, 3, MEAN)), low.value(node.args[4]).node()
    axis = _single_axis(low, value.dims[-1])
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
    axis = _single_axis(low, value.dims[-1])
    if reduction == MEAN:
        grad = low.per_element([grad, low.value(node.args[6])], lambda d, n: g.map("div", d, n))

    def place(d: int, t: int) -> int:
        here = g.map("and", g.map("eq", g.add(Index(axis=axis)), t), g.map("ne", t, ignored))
        return g.map("where", here, g.map("neg", d), g.const(0))

    rank = len(value.dims) - 1
    spread_grad = Value(((),) * (rank - len(grad.dims)) + grad.dims, grad.elements)
    placed = low.per_element([spread_grad, target], place)
    return Value((*placed.dims, (axis,)), placed.elements)
