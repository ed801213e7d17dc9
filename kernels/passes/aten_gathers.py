"""Gathers and scatters along an axis: the label's element, one-hot gradients, lookups and top k. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.derivation import Unsupported
from kernels.passes.aten_elementwise import num
from kernels.passes.aten_joins import join
from kernels.passes.aten_rules import rule
from kernels.passes.aten_slices import take
from kernels.passes.graph import Graph
from kernels.passes.rewrite import reachable
from kernels.passes.values import MAX_UNROLL, Value
from kernels.row_program import Cast, Gather, Index, Load, Map, Reduce
from kernels.traced import Arg, TracedNode

if TYPE_CHECKING:
    from kernels.passes.lower import Lowering


def gather_at(g: Graph, root: int, axis: str, index: int) -> int:
    """`root` at coordinate `index` of an axis: an indirect load where that is possible, a one-hot sum elsewhere.

    Gathering moves inward: (x - max - log(sum))[t] is x[t] - max - log(sum), one element and no pass over the row.
    """
    at: dict[int, int] = {}
    for node in reachable(g, [root]):
        at[node] = _gathered(g, node, axis, index, at)
    return at[root]


def _gathered(g: Graph, node: int, axis: str, index: int, at: dict[int, int]) -> int:
    """One node at the coordinate, given the nodes beneath it there."""
    if axis not in g.axes_of[node]:
        return node
    found = g.nodes[node]
    if isinstance(found, Load):
        return g.add(Gather(tensor=found.tensor, axis=axis, index=index, at=found.at))
    if isinstance(found, Index):
        return index
    if isinstance(found, Map):
        return g.map(found.fn, *(at[a] for a in found.args))
    if isinstance(found, Cast):
        return g.add(Cast(arg=at[found.arg], like=found.like))
    chosen = g.map("where", g.map("eq", g.add(Index(axis=axis)), index), node, g.const(0))
    return g.add(Reduce(fn="sum", arg=chosen, axes=(axis,)))


def single_axis(low: Lowering, dim: tuple[str, ...]) -> str:
    if len(dim) != 1 or low.graph.axes[dim[0]].unroll:
        raise Unsupported("a gather along an axis that is split", needed="a whole axis")
    return dim[0]


def require_one(low: Lowering, index: Arg, position: int) -> None:
    size = low.shape(index)[position]
    if not (size.is_number and size.coef == 1):
        raise Unsupported(f"a gather of {size.text()} elements a row", needed="one element a row")


@rule("gather.default")
def gather(low: Lowering, node: TracedNode) -> Value:
    value, index = low.value(node.args[0]), low.value(node.args[2])
    position = low.axis_position(node.args[1], len(value.dims))
    if not any(low.graph.axes[a].unroll for a in index.dims[position]):
        require_one(low, node.args[2], position)
    axis = single_axis(low, value.dims[position])
    without = Value((*value.dims[:position], (), *value.dims[position + 1 :]), value.elements)
    return low.per_element([without, index], lambda a, i: gather_at(low.graph, a, axis, i))


@rule("scatter_add.default", "scatter.value", "scatter.src")
def scatter(low: Lowering, node: TracedNode) -> Value:
    """One element a row is added or replaced: a one-hot comparison with the column."""
    g = low.graph
    base, index, source = low.value(node.args[0]), low.value(node.args[2]), low.value(node.args[3])
    position = low.axis_position(node.args[1], len(node.shape))
    if len(index.elements) == 1:
        require_one(low, node.args[2], position)
    dim = base.dims[position] or low.dims_of_size(node.shape[position])
    axis = single_axis(low, dim)
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
    if not any(low.graph.axes[a].unroll for a in value.dims[position]):
        return value
    return take(low, value, position, which, interleaved=False)


@rule("index.Tensor")
def index(low: Lowering, node: TracedNode) -> Value:
    """Rows (or elements) of a tensor picked by one index tensor."""
    value = low.value(node.args[0])
    given = [
        (d, item)
        for d, item in enumerate(low.items(node.args[1]))
        if not (item.kind == "literal" and item.type == "none")
    ]
    if len(given) != 1:
        raise Unsupported("an index by several tensors", needed="one index tensor")
    position, item = given[0]
    return lookup(low, value, position, low.value(item))


def lookup(low: Lowering, value: Value, position: int, places: Value) -> Value:
    axis = single_axis(low, value.dims[position])
    dims = (*value.dims[:position], *places.dims, *value.dims[position + 1 :])
    if len(value.elements) > 1 or len(places.elements) > 1:
        raise Unsupported("a lookup in a tensor that is split into parts")
    return Value(dims, {(): gather_at(low.graph, value.node(), axis, places.node())})


@rule("embedding.default")
def embedding(low: Lowering, node: TracedNode) -> Value:
    return lookup(low, low.value(node.args[0]), 0, low.value(node.args[1]))


@rule("embedding_dense_backward.default")
def embedding_backward(low: Lowering, node: TracedNode) -> Value:
    """For each row of the table the sum of the gradients of its tokens: a one-hot sum, which becomes a scatter."""
    g = low.graph
    grad, tokens = low.value(node.args[0]), low.value(node.args[1])
    padding = int(low.literal(node.args[3]))  # type: ignore[arg-type]
    if low.literal(node.args[4]):
        raise Unsupported("an embedding whose gradient is scaled by frequency")
    axis = single_axis(low, low.dims_of_size(node.shape[0]))
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
    g = low.graph
    value, shape = low.value(node.args[0]), low.shape(node.args[0])
    k = int(low.literal(node.args[1]))  # type: ignore[arg-type]
    position = low.axis_position(node.args[2], len(shape)) if len(node.args) > 2 else len(shape) - 1
    if k > MAX_UNROLL or (len(node.args) > 3 and not low.literal(node.args[3])):
        raise Unsupported(f"the {k} smallest or largest", needed=f"the largest, at most {MAX_UNROLL} of them")
    axis = single_axis(low, value.dims[position])
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
