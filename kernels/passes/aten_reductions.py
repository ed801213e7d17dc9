"""ATen operations that reduce or scan whole axes. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.derivation import Unsupported
from kernels.passes.aten_elementwise import num
from kernels.passes.aten_rules import rule
from kernels.passes.values import Value
from kernels.quantity import Quantity
from kernels.row_program import Index, Reduce, Scan
from kernels.traced import Arg, ListArg, TracedNode

if TYPE_CHECKING:
    from kernels.passes.lower import Lowering


def positions(low: Lowering, arg: Arg | None, rank: int) -> list[int]:
    """Dimensions named by an argument; all of them when it is empty or None."""
    if arg is None or (arg.kind == "literal" and arg.type == "none"):
        return list(range(rank))
    if isinstance(arg, ListArg):
        found = [low.axis_position(item, rank) for item in arg.items]
        return found or list(range(rank))
    return [low.axis_position(arg, rank)]


def size_of(shape: tuple[Quantity, ...], dims: list[int]) -> Quantity:
    total = Quantity()
    for d in dims:
        total *= shape[d]
    return total


def reduce(low: Lowering, value: Value, shape: tuple[Quantity, ...], dims: list[int], fn: str) -> Value:
    """Reduce whole dimensions; they stay, as ()."""
    graph = low.graph
    kept_dims = tuple(() if d in dims else dim for d, dim in enumerate(value.dims))
    axes = [a for d in dims for a in value.dims[d] if not graph.axes[a].unroll]
    kept: list[int] = []
    position = 0
    for d, dim in enumerate(value.dims):
        for axis in dim:
            if graph.axes[axis].unroll:
                if d not in dims:
                    kept.append(position)
                position += 1
    groups: dict[tuple[int, ...], list[int]] = {}
    for at, node in value.elements.items():
        groups.setdefault(tuple(at[p] for p in kept), []).append(node)
    times = Quantity()
    for d in dims:
        if not value.dims[d]:
            times *= shape[d]
    elements: dict[tuple[int, ...], int] = {}
    for at, nodes in groups.items():
        combined: int | None = None
        for element in nodes:
            node = num(graph, element)
            if fn == "sum":
                varying = tuple(a for a in axes if a in graph.axes_of[node])
                repeats = times
                for axis in axes:
                    if axis not in graph.axes_of[node]:
                        repeats *= graph.axes[axis].size
                part = graph.total(node, varying, repeats)
                combined = part if combined is None else graph.map("add", combined, part)
            else:
                varying = tuple(a for a in axes if a in graph.axes_of[node])
                part = graph.add(Reduce(fn=fn, arg=node, axes=varying)) if varying else node  # type: ignore[arg-type]
                pair = "maximum" if fn == "max" else "minimum"
                combined = part if combined is None else graph.map(pair, combined, part)
        if combined is not None:
            elements[at] = combined
    return Value(kept_dims, elements)


def drop(value: Value, dims: list[int], *, keepdim: bool) -> Value:
    if keepdim:
        return value
    return Value(tuple(dim for d, dim in enumerate(value.dims) if d not in dims), value.elements)


def _reduction(
    low: Lowering, node: TracedNode, fn: str
) -> tuple[Value, list[int], tuple[Quantity, ...], bool]:
    value, shape = low.value(node.args[0]), low.shape(node.args[0])
    dims = positions(low, node.args[1] if len(node.args) > 1 else None, len(shape))
    keepdim = bool(low.literal(node.args[2])) if len(node.args) > 2 else False
    return reduce(low, value, shape, dims, fn), dims, shape, keepdim


@rule("sum.dim_IntList", "sum.default")
def sum_(low: Lowering, node: TracedNode) -> Value:
    value, dims, _, keepdim = _reduction(low, node, "sum")
    return drop(value, dims, keepdim=keepdim)


@rule("mean.dim", "mean.default")
def mean(low: Lowering, node: TracedNode) -> Value:
    total, dims, shape, keepdim = _reduction(low, node, "sum")
    count = low.graph.symbol(size_of(shape, dims))
    value = low.per_element([total], lambda a: low.graph.map("div", a, count))
    return drop(value, dims, keepdim=keepdim)


@rule("amax.default")
def amax(low: Lowering, node: TracedNode) -> Value:
    value, dims, _, keepdim = _reduction(low, node, "max")
    return drop(value, dims, keepdim=keepdim)


@rule("amin.default")
def amin(low: Lowering, node: TracedNode) -> Value:
    value, dims, _, keepdim = _reduction(low, node, "min")
    return drop(value, dims, keepdim=keepdim)


@rule("max.dim", "min.dim")
def extremum(low: Lowering, node: TracedNode) -> tuple[Value, ...]:
    value, shape = low.value(node.args[0]), low.shape(node.args[0])
    dims = positions(low, node.args[1], len(shape))
    keepdim = bool(low.literal(node.args[2])) if len(node.args) > 2 else False
    fn = "max" if ".max." in node.op else "min"
    best = drop(reduce(low, value, shape, dims, fn), dims, keepdim=keepdim)
    where = drop(reduce(low, value, shape, dims, f"arg{fn}"), dims, keepdim=keepdim)
    return best, where


@rule("any.dim", "any.default")
def any_(low: Lowering, node: TracedNode) -> Value:
    value, dims, _, keepdim = _reduction(low, node, "max")
    return drop(
        low.per_element([value], lambda a: low.graph.map("ne", a, low.graph.const(0))), dims, keepdim=keepdim
    )


@rule("cumsum.default")
def cumsum(low: Lowering, node: TracedNode) -> Value:
    value = low.value(node.args[0])
    position = low.axis_position(node.args[1], len(value.dims))
    dim = value.dims[position]
    if len(dim) != 1 or low.graph.axes[dim[0]].unroll:
        raise Unsupported("a cumulative sum over an axis that is split", needed="a whole axis")
    return low.per_element(
        [value], lambda a: low.graph.add(Scan(fn="sum", arg=num(low.graph, a), axis=dim[0]))
    )


@rule("flip.default")
def flip(low: Lowering, node: TracedNode) -> Value:
    """Only around a scan: flip(cumsum(flip(x))) is a suffix sum."""
    value = low.value(node.args[0])
    for position in positions(low, node.args[1], len(value.dims)):
        if len(value.dims[position]) != 1 or low.graph.axes[value.dims[position][0]].unroll:
            raise Unsupported("a flip of an axis that is split", needed="a whole axis")
        axis = value.dims[position][0]
        value = low.per_element([value], lambda a, axis=axis: _flipped(low, a, axis))
    return value


def _flipped(low: Lowering, node: int, axis: str) -> int:
    g = low.graph
    index = g.add(Index(axis=axis))
    if axis not in g.axes_of[node]:
        return node
    inner = g.is_map(node, "flip")
    if inner and inner[1] == index:
        return inner[0]
    found = g.nodes[node]
    if isinstance(found, Scan) and found.axis == axis:
        source = g.is_map(found.arg, "flip")
        if source and source[1] == index:
            return g.add(Scan(fn=found.fn, arg=source[0], axis=axis, reverse=not found.reverse))
    return g.map("flip", node, index)
