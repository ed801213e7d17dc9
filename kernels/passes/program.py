"""From the expression graph to the row program of one kernel. Pure."""

from __future__ import annotations

from kernels.derivation import Unsupported
from kernels.passes.graph import Graph
from kernels.passes.layout import Layout
from kernels.passes.rewrite import reachable, renamed
from kernels.passes.uniform_factors import factored_sum
from kernels.quantity import Quantity
from kernels.row_program import (
    Accumulate,
    Axis,
    Gather,
    Index,
    Load,
    Map,
    Node,
    Reduce,
    RowProgram,
    Scan,
    Scatter,
    Store,
    Symbol,
    Tensor,
    Uniform,
    operands,
)

At = tuple[tuple[str, int], ...]


def build_program(
    graph: Graph, writes: list[tuple[Tensor, int, At]], layout: Layout, *, host: bool = False
) -> RowProgram:
    """Extract what the writes need. A write that ends in a sum over rows becomes an Accumulate."""
    rows, cols = set(layout.rows), set(layout.cols)
    accumulates: list[tuple[Tensor, int, tuple[str, ...], At]] = []
    scatters: list[tuple[Tensor, int, int, str]] = []
    stores: list[tuple[Tensor, int, At]] = []
    for tensor, node, at in writes:
        found = graph.nodes[node]
        pair = graph.is_map(node, "scatter")
        if pair:
            axis = scattered_axis(graph, tensor, node)
            scatters.append((tensor, pair[0], pair[1], axis))
        elif isinstance(found, Reduce) and (set(found.axes) & rows or not rows) and not host:
            if found.fn != "sum":
                raise Unsupported("a maximum over all rows", needed="another layout")
            inner = tuple(a for a in found.axes if a in cols)
            body = factored_sum(graph, found.arg, inner) if inner else found.arg
            accumulates.append((tensor, body, tuple(a for a in found.axes if a in rows), at))
        else:
            if not host and not set(tensor.axes) >= rows:
                raise Unsupported(
                    "several programs would write the same element", needed="a kernel of its own"
                )
            stores.append((tensor, node, at))
    layout = _groups_first(graph, layout, accumulates)
    roots = [n for _, n, _ in stores] + [n for _, n, _, _ in accumulates]
    roots += [n for _, value, index, _ in scatters for n in (value, index)]
    names: dict[int, int] = {}
    nodes: list[Node] = []
    for old in reachable(graph, roots):
        found = graph.nodes[old]
        if isinstance(found, Reduce | Scan) and not host:
            along = set(found.axes) if isinstance(found, Reduce) else {found.axis}
            if graph.axes_of[found.arg] & cols - along or not along <= cols:
                raise Unsupported(
                    "reductions over different axes in one kernel", needed="kernels of their own"
                )
        names[old] = len(nodes)
        nodes.append(renamed(graph.nodes[old], names))
    tensors: dict[str, Tensor] = {}
    if any(isinstance(n, Map) and n.fn == "flip" for n in nodes):
        raise Unsupported(
            "an axis is reversed", node="aten.flip.default", needed="a flip around a cumulative sum only"
        )
    for node in nodes:
        if isinstance(node, Load | Gather):
            tensors[node.tensor] = graph.tensors[node.tensor]
    for tensor in [t for t, _, _ in stores] + [t for t, *_ in accumulates] + [t for t, *_ in scatters]:
        tensors[tensor.name] = tensor
    used_axes = {a for t in tensors.values() for a in t.axes} | rows | cols
    used_axes |= {a for n in nodes if isinstance(n, Index | Scan) for a in [n.axis]}
    used_axes |= {a for n in nodes if isinstance(n, Uniform) for a in n.axes}
    known: list[Axis] = [graph.axes[a] for a in graph.axes if a in used_axes]
    scalars = sorted(
        {name for n in nodes if isinstance(n, Symbol) for name in _scalar_names(n.quantity, graph)}
    )
    return RowProgram(
        axes=tuple(known),
        rows=layout.rows,
        cols=layout.cols,
        tensors=tuple(tensors.values()),
        scalars=tuple(scalars),
        nodes=tuple(nodes),
        stores=tuple(Store(tensor=t.name, value=names[n], at=at) for t, n, at in stores),
        accumulates=tuple(
            Accumulate(tensor=t.name, value=names[n], over=over, at=at) for t, n, over, at in accumulates
        ),
        scatters=tuple(
            Scatter(tensor=t.name, value=names[v], index=names[i], axis=axis) for t, v, i, axis in scatters
        ),
    )


def scattered_axis(graph: Graph, tensor: Tensor, node: int) -> str:
    """The axis of `tensor` on which a scatter's coordinate says where to add."""
    own = [a for a in tensor.axes if a not in graph.axes_of[node]]
    if len(own) != 1:
        raise Unsupported("a scatter along several axes", needed="one axis")
    return own[0]


def _groups_first(
    graph: Graph, layout: Layout, accumulates: list[tuple[Tensor, int, tuple[str, ...], At]]
) -> Layout:
    """Row axes that a column sum keeps come first: a program then adds up rows of one group only."""
    kept: set[frozenset[str]] = set()
    for _, body, over, _ in accumulates:
        if graph.axes_of[body] & set(layout.cols):
            kept.add(graph.axes_of[body] & set(layout.rows) - set(over))
    groups = frozenset().union(*kept)
    if any(k and k != groups for k in kept):
        raise Unsupported("column sums over different sets of rows", needed="kernels of their own")
    rows = tuple(a for a in layout.rows if a in groups) + tuple(a for a in layout.rows if a not in groups)
    return Layout(rows, layout.cols)


def group_axes(program: RowProgram) -> tuple[str, ...]:
    """Row axes that column sums keep: the leading ones of `program.rows`."""
    kept: set[str] = set()
    cols = set(program.cols)
    for write in program.accumulates:
        tensor = program.tensor(write.tensor)
        if set(tensor.axes) & cols:
            kept |= set(tensor.axes) & set(program.rows)
    return tuple(a for a in program.rows if a in kept)


def _scalar_names(quantity: Quantity, graph: Graph) -> set[str]:
    return {n for n in quantity.names if n not in graph.axes}


def live_vectors(program: RowProgram) -> int:
    """The most fp32 vectors of a block alive at once, accumulators included: what decides spilling."""
    axes = program.node_axes()
    cols = set(program.cols)
    last: dict[int, int] = {}
    for position, node in enumerate(program.nodes):
        for operand in operands(node):
            last[operand] = position
    end = len(program.nodes)
    for write in (*program.stores, *program.accumulates, *program.scatters):
        last[write.value] = end
    alive: set[int] = set()
    most = 0
    for position, node in enumerate(program.nodes):
        if axes[position] & cols:
            alive.add(position)
        most = max(most, len(alive))
        alive = {n for n in alive if last.get(n, n) > position}
        _ = node
    return most + sum(1 for a in program.accumulates if axes[a.value] & cols)
