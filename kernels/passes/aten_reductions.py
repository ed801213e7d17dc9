"""ATen operations that reduce or scan axes, and the norms and softmaxes built on them. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kernels.derivation import Unsupported
from kernels.passes.aten_elementwise import num
from kernels.passes.values import Value
from kernels.quantity import Quantity
from kernels.row_program import Index, Reduce, Scan
from kernels.traced import Arg, ListArg, TracedNode

if TYPE_CHECKING:
    from kernels.passes.lower import Lowering

Rule = Callable[["Lowering", TracedNode], "Value | tuple[Value, ...] | None"]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    def register(function: Rule) -> Rule:
        for name in names:
            RULES[f"aten.{name}"] = function
        return function

    return register


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
        for node in nodes:
            node = num(graph, node)
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
        assert combined is not None
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


# --- statistics ------------------------------------------------------------------------------------------------------


def _mean(low: Lowering, value: Value, shape: tuple[Quantity, ...], dims: list[int]) -> Value:
    count = low.graph.symbol(size_of(shape, dims))
    return low.per_element([reduce(low, value, shape, dims, "sum")], lambda a: low.graph.map("div", a, count))


def _mul(low: Lowering, a: Value, b: Value) -> Value:
    return low.per_element([a, b], lambda x, y: low.graph.map("mul", num(low.graph, x), num(low.graph, y)))


def _sub(low: Lowering, a: Value, b: Value) -> Value:
    return low.per_element([a, b], lambda x, y: low.graph.map("sub", x, y))


def _add(low: Lowering, a: Value, b: Value) -> Value:
    return low.per_element([a, b], lambda x, y: low.graph.map("add", x, y))


def _centered_variance(
    low: Lowering, value: Value, shape: tuple[Quantity, ...], dims: list[int]
) -> tuple[Value, Value, Value]:
    """(mean, centered, sum of squares of centered): two passes over registers, which doesn't cancel."""
    mean_value = _mean(low, value, shape, dims)
    centered = _sub(low, value, mean_value)
    return mean_value, centered, reduce(low, _mul(low, centered, centered), shape, dims, "sum")


@rule("var.correction", "var_mean.correction", "std.correction")
def variance(low: Lowering, node: TracedNode) -> Value | tuple[Value, ...]:
    value, shape = low.value(node.args[0]), low.shape(node.args[0])
    dims = positions(low, node.args[1] if len(node.args) > 1 else None, len(shape))
    correction = low.literal(node.kwargs["correction"]) if "correction" in node.kwargs else 1
    keepdim = bool(low.literal(node.kwargs["keepdim"])) if "keepdim" in node.kwargs else False
    graph = low.graph
    mean_value, _, squares = _centered_variance(low, value, shape, dims)
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
        result = reduce(low, _mul(low, value, value), shape, dims, "sum")
        result = low.per_element([result], lambda a: graph.map("sqrt", a))
    elif order == float("inf"):
        result = reduce(low, low.per_element([value], lambda a: graph.map("abs", a)), shape, dims, "max")
    else:
        raise Unsupported(f"a norm of order {order}", needed="order 1, 2 or inf")
    return drop(result, dims, keepdim=keepdim)


# --- softmax family --------------------------------------------------------------------------------------------------


def _shifted(
    low: Lowering, value: Value, shape: tuple[Quantity, ...], dims: list[int]
) -> tuple[Value, Value, Value]:
    """(maximum, value - maximum, sum of exponentials)."""
    graph = low.graph
    largest = reduce(low, value, shape, dims, "max")
    shifted = _sub(low, value, largest)
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
    dot = reduce(low, _mul(low, grad, y), shape, dims, "sum")
    return _mul(low, y, _sub(low, grad, dot))


@rule("_log_softmax_backward_data.default")
def log_softmax_backward(low: Lowering, node: TracedNode) -> Value:
    grad, y, shape = low.value(node.args[0]), low.value(node.args[1]), low.shape(node.args[1])
    dims = positions(low, node.args[2], len(shape))
    total = reduce(low, grad, shape, dims, "sum")
    probability = low.per_element([y], lambda a: low.graph.map("exp", a))
    return _sub(low, grad, _mul(low, probability, total))


# --- norms -----------------------------------------------------------------------------------------------------------


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
    assert isinstance(node.args[1], ListArg)
    dims = list(range(len(shape) - len(node.args[1].items), len(shape)))
    weight, bias, eps = _optional(low, node, 2), _optional(low, node, 3), low.value(node.args[4])
    mean_value, centered, squares = _centered_variance(low, value, shape, dims)
    rstd = _rstd(low, squares, size_of(shape, dims), eps)
    result = _mul(low, centered, rstd)
    if weight is not None:
        result = _mul(low, result, weight)
    if bias is not None:
        result = _add(low, result, bias)
    return result, mean_value, rstd


def _norm_input_gradient(
    low: Lowering, grad: Value, normal: Value, rstd: Value, shape: tuple[Quantity, ...], dims: list[int]
) -> Value:
    """rstd * (g - mean(g) - normal * mean(g * normal)), with g the gradient of the normalised value."""
    along = _mean(low, _mul(low, grad, normal), shape, dims)
    inner = _sub(low, _sub(low, grad, _mean(low, grad, shape, dims)), _mul(low, normal, along))
    return _mul(low, rstd, inner)


@rule("native_layer_norm_backward.default")
def layer_norm_backward(low: Lowering, node: TracedNode) -> tuple[Value, ...]:
    grad, value, shape = low.value(node.args[0]), low.value(node.args[1]), low.shape(node.args[1])
    assert isinstance(node.args[2], ListArg)
    n = len(node.args[2].items)
    dims = list(range(len(shape) - n, len(shape)))
    lead = list(range(len(shape) - n))
    mean_value, rstd = low.value(node.args[3]), low.value(node.args[4])
    weight = _optional(low, node, 5)
    normal = _mul(low, _sub(low, value, mean_value), rstd)
    inner = _mul(low, grad, weight) if weight is not None else grad
    dx = _norm_input_gradient(low, inner, normal, rstd, shape, dims)
    dweight = drop(reduce(low, _mul(low, grad, normal), shape, lead, "sum"), lead, keepdim=False)
    dbias = drop(reduce(low, grad, shape, lead, "sum"), lead, keepdim=False)
    return dx, dweight, dbias


def _grouped(low: Lowering, arg: Arg, node: TracedNode, first: int) -> tuple[Value, tuple[Quantity, ...]]:
    """A group norm operand as (N, groups, channels in a group, space)."""
    from kernels.passes.aten_shapes import view_as

    batch, channels, space, groups = (low.quantity(a) for a in node.args[first : first + 4])
    target = (batch, groups, channels / groups, space)
    return view_as(low, low.value(arg), low.shape(arg), target), target


def _per_channel(low: Lowering, arg: Arg, target: tuple[Quantity, ...]) -> Value:
    """A channel vector as (groups, channels in a group, 1)."""
    from kernels.passes.aten_shapes import view_as

    value = view_as(low, low.value(arg), low.shape(arg), target[1:3])
    return Value((*value.dims, ()), value.elements)


@rule("native_group_norm.default")
def group_norm(low: Lowering, node: TracedNode) -> tuple[Value, ...]:
    from kernels.passes.aten_shapes import view_as

    value, target = _grouped(low, node.args[0], node, 3)
    eps = low.value(node.args[7])
    mean_value, centered, squares = _centered_variance(low, value, target, [2, 3])
    rstd = _rstd(low, squares, target[2] * target[3], eps)
    result = _mul(low, centered, rstd)
    if not _is_none(node.args[1]):
        result = _mul(low, result, _per_channel(low, node.args[1], target))
    if not _is_none(node.args[2]):
        result = _add(low, result, _per_channel(low, node.args[2], target))
    statistics = [Value(v.dims[:2], v.elements) for v in (mean_value, rstd)]
    return view_as(low, result, target, low.shape(node.args[0])), *statistics


def _is_none(arg: Arg) -> bool:
    return arg.kind == "literal" and arg.type == "none"


@rule("native_group_norm_backward.default")
def group_norm_backward(low: Lowering, node: TracedNode) -> tuple[Value | None, ...]:
    from kernels.passes.aten_shapes import view_as

    grad, target = _grouped(low, node.args[0], node, 5)
    value, _ = _grouped(low, node.args[1], node, 5)
    mean_value, rstd = (Value((*v.dims, (), ()), v.elements) for v in (low.value(a) for a in node.args[2:4]))
    normal = _mul(low, _sub(low, value, mean_value), rstd)
    inner = grad if _is_none(node.args[4]) else _mul(low, grad, _per_channel(low, node.args[4], target))
    dx = view_as(
        low, _norm_input_gradient(low, inner, normal, rstd, target, [2, 3]), target, low.shape(node.args[1])
    )
    channels = (target[1] * target[2],)
    sums = []
    for product in (_mul(low, grad, normal), grad):
        total = drop(reduce(low, product, target, [0, 3], "sum"), [0, 3], keepdim=False)
        sums.append(view_as(low, total, target[1:3], channels))
    return dx, *sums


# --- scans -----------------------------------------------------------------------------------------------------------


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
