"""Stage split: one kernel where possible, several with small host steps where a sum over all rows is needed on the way. Pure.

A reduction inside a row is the kernel's business. A reduction over rows can't be: no program knows the others' sums. So
the kernel before it writes partial sums, the host adds them up, and whatever needs the total runs in the next kernel.
Results with different layouts (q and k of different head counts, a group norm's input and weight gradients) get kernels
of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernels.derivation import Unsupported
from kernels.passes.graph import Graph
from kernels.passes.layout import Layout, candidate_layouts
from kernels.passes.program import At, build_program, scattered_axis
from kernels.passes.rewrite import reachable, rebuild
from kernels.row_program import Load, Reduce, RowProgram, Tensor, operands

MAX_KERNELS = 6


@dataclass(frozen=True)
class Target:
    """Something to be written: a tensor's elements at coordinates on its unrolled axes."""

    tensor: Tensor
    node: int
    at: At = ()


@dataclass(frozen=True)
class Stage:
    """One kernel, or one host step (small tensors, torch operations)."""

    program: RowProgram
    host: bool = False


def plan_stages(graph: Graph, targets: list[Target]) -> list[Stage]:
    """Kernels and host steps that write all targets, in order. Raises Unsupported."""
    groups: dict[frozenset[str], list[Target]] = {}
    for target in targets:
        groups.setdefault(_grid_axes(graph, target.node), []).append(target)
    stages: list[Stage] = []
    namer = Namer({t.tensor.name for t in targets} | set(graph.tensors))
    for group in _absorbed(graph, groups):
        stages += _plan_group(graph, group, namer)
    if sum(not s.host for s in stages) > MAX_KERNELS:
        raise Unsupported(f"more than {MAX_KERNELS} kernels would be needed")
    return stages


class Namer:
    """Names for the small tensors between kernels."""

    def __init__(self, taken: set[str]):
        self.taken = taken

    def fresh(self, base: str) -> str:
        name, count = base, 2
        while name in self.taken:
            name, count = f"{base}_{count}", count + 1
        self.taken.add(name)
        return name


def _absorbed(graph: Graph, groups: dict[frozenset[str], list[Target]]) -> list[list[Target]]:
    """Groups that need no columns of their own join the larger group whose host steps can make them."""
    result: list[tuple[frozenset[str], list[Target]]] = []
    for axes, group in sorted(groups.items(), key=lambda item: -len(item[0])):
        for larger, joined in result:
            if axes >= larger:
                continue
            layout = candidate_layouts(graph, [t.node for t in joined], [_dims(graph, t) for t in joined])[0]
            if axes < larger and not axes & set(layout.cols):
                joined.extend(group)
                break
        else:
            result.append((axes, list(group)))
    return [group for _, group in result]


def _grid_axes(graph: Graph, root: int) -> frozenset[str]:
    axes: set[str] = set()
    for node in reachable(graph, [root]):
        axes |= graph.axes_of[node]
    return frozenset(a for a in axes if not graph.axes[a].unroll)


def _plan_group(graph: Graph, targets: list[Target], namer: Namer) -> list[Stage]:
    error: Unsupported | None = None
    for layout in candidate_layouts(graph, [t.node for t in targets], [_dims(graph, t) for t in targets]):
        try:
            return _stages(graph, targets, layout, Namer(set(namer.taken)))
        except Unsupported as reason:
            error = error or reason
    names = list(dict.fromkeys(t.tensor.name for t in targets))
    if len(names) > 1:
        return _split_by_layout(graph, targets, namer)
    raise error or Unsupported("no layout fits")


def _dims(graph: Graph, target: Target) -> tuple[tuple[str, ...], ...]:
    """A target's dimensions without the axis that a scatter runs over: no program spans it."""
    if not graph.is_map(target.node, "scatter"):
        return target.tensor.dims
    axis = scattered_axis(graph, target.tensor, target.node)
    return tuple(tuple(a for a in dim if a != axis) for dim in target.tensor.dims)


def _split_by_layout(graph: Graph, targets: list[Target], namer: Namer) -> list[Stage]:
    """One kernel for each set of results that agree on a layout."""
    by_layout: dict[Layout, list[Target]] = {}
    for name in dict.fromkeys(t.tensor.name for t in targets):
        own = [t for t in targets if t.tensor.name == name]
        chosen: Layout | None = None
        error: Unsupported | None = None
        for layout in candidate_layouts(graph, [t.node for t in own], [_dims(graph, t) for t in own]):
            try:
                _stages(graph, own, layout, Namer(set(namer.taken)))
                chosen = layout
                break
            except Unsupported as reason:
                error = error or reason
        if chosen is None:
            raise error or Unsupported("no layout fits")
        by_layout.setdefault(chosen, []).extend(own)
    stages: list[Stage] = []
    for layout, group in by_layout.items():
        stages += _stages(graph, group, layout, namer)
    return stages


def _stages(graph: Graph, targets: list[Target], layout: Layout, namer: Namer) -> list[Stage]:
    rows, cols = set(layout.rows), set(layout.cols)
    stages: list[Stage] = []
    pending = list(targets)
    for _ in range(2 * MAX_KERNELS):
        if not pending:
            return stages
        live = reachable(graph, [t.node for t in pending])
        heavy = _heavy(graph, live, rows, cols)
        grid = [n for n in live if _is_grid(graph, n, rows)]
        beneath = _above(graph, live, set(grid))
        # Small reductions that a later kernel needs are made on the host first.
        kernel_work = {m for m in live if _is_full(graph.axes_of[m], rows, cols)}
        kernel_work |= {o for n in grid if n in heavy for o in operands(graph.nodes[n])}
        small = [n for n in grid if n not in heavy and any(n in _ancestors(graph, m) for m in kernel_work)]
        if small:
            # What is kept for the backward besides (a count of labels) is made once, under its own name.
            own = {t.node: t.tensor for t in pending if t.tensor.kind == "saved"}
            produced = [(n, own.get(n) or _small_tensor(graph, n, layout, namer)) for n in small]
            pending = [t for t in pending if t.node not in small or t.tensor.kind != "saved"]
            stages.append(Stage(_host_program(graph, [Target(t, n) for n, t in produced]), host=True))
            graph, pending = _loaded(graph, pending, dict(produced))
            continue
        wide = [t for t in pending if t.node in heavy or _is_full(frozenset(t.tensor.axes), rows, cols)]
        done = [t for t in wide if (t.node not in beneath or t.node in grid) and _ready(graph, t.node, grid)]
        partial = [
            n for n in grid if n in heavy and _ready(graph, n, grid) and n not in {t.node for t in done}
        ]
        if not done and not partial:
            stages.append(Stage(_host_program(graph, pending), host=True))
            return stages
        writes: list[Target] = [t for t in done if t.node not in grid]
        direct = [t for t in done if t.node in grid]
        host: list[Target] = []
        loads: dict[int, Tensor] = {}
        for target in direct:
            _reduction(graph, target.node, target.tensor, target.at, layout, writes, host, namer)
        for node in partial:
            tensor = _small_tensor(graph, node, layout, namer)
            loads[node] = tensor
            _reduction(graph, node, tensor, (), layout, writes, host, namer)
        stages.append(Stage(build_program(graph, [(t.tensor, t.node, t.at) for t in writes], layout)))
        if host:
            stages.append(Stage(_host_program(graph, host), host=True))
        pending = [t for t in pending if t not in done]
        graph, pending = _loaded(graph, pending, loads)
    raise Unsupported(f"more than {MAX_KERNELS} kernels would be needed")


def _reduction(
    graph: Graph,
    node: int,
    tensor: Tensor,
    at: At,
    layout: Layout,
    writes: list[Target],
    host: list[Target],
    namer: Namer,
) -> None:
    """Plan one reduction over rows: an accumulator in the kernel, or a value a row and a sum on the host."""
    found = graph.nodes[node]
    if not isinstance(found, Reduce):
        raise TypeError(f"node {node} is no reduction")
    rows, cols = set(layout.rows), set(layout.cols)
    varies = graph.axes_of[found.arg] & cols
    reduced = set(found.axes) & cols
    if reduced and reduced != varies:
        raise Unsupported("a sum over a part of a row's columns and over rows", needed="a kernel of its own")
    kept_rows = graph.axes_of[node] & rows
    if graph.axes_of[node] & cols:
        if found.fn != "sum":
            raise Unsupported("a maximum over rows for each column", needed="another layout")
        writes.append(Target(tensor, node, at))
        return
    if not kept_rows and found.fn == "sum":
        writes.append(Target(tensor, node, at))
        return
    # A value a row, then a reduction of that small tensor on the host.
    inner = tuple(a for a in found.axes if a in cols)
    body = graph.add(Reduce(fn=found.fn, arg=found.arg, axes=inner)) if inner else found.arg
    dims = tuple((a,) for a in layout.rows if a in graph.axes_of[body])
    middle = Tensor(name=namer.fresh(f"{tensor.name}_rows"), dims=dims, dtype="float32", kind="partial")
    writes.append(Target(middle, body))
    graph.tensors[middle.name] = middle
    total = graph.add(
        Reduce(fn=found.fn, arg=graph.load(middle.name), axes=tuple(a for a in found.axes if a in rows))
    )
    host.append(Target(tensor, total, at))


def _is_full(axes: frozenset[str], rows: set[str], cols: set[str]) -> bool:
    return bool(axes & cols) and (bool(axes & rows) or not rows)


def _heavy(graph: Graph, live: list[int], rows: set[str], cols: set[str]) -> set[int]:
    """Nodes that need a kernel: they, or what they are made of, vary over rows and columns."""
    heavy: set[int] = set()
    for node in live:
        scattered = graph.is_map(node, "scatter") is not None
        if (
            scattered
            or _is_full(graph.axes_of[node], rows, cols)
            or any(o in heavy for o in operands(graph.nodes[node]))
        ):
            heavy.add(node)
    return heavy


def _is_grid(graph: Graph, node: int, rows: set[str]) -> bool:
    found = graph.nodes[node]
    # Without row axes a reduction over the columns is one over everything: blocks add up on the host.
    return isinstance(found, Reduce) and (bool(set(found.axes) & rows) or not rows)


def _above(graph: Graph, live: list[int], grid: set[int]) -> set[int]:
    """Nodes that need a reduction over rows, themselves included."""
    above: set[int] = set()
    for node in live:
        if node in grid or any(o in above for o in operands(graph.nodes[node])):
            above.add(node)
    return above


def _ready(graph: Graph, node: int, grid: list[int]) -> bool:
    """Whether nothing beneath the node is a reduction over rows."""
    beneath = _ancestors(graph, node)
    return not any(g in beneath for g in grid)


def _ancestors(graph: Graph, node: int) -> set[int]:
    return set(reachable(graph, [node])) - {node}


def _small_tensor(graph: Graph, node: int, layout: Layout, namer: Namer) -> Tensor:
    axes = graph.axes_of[node]
    order = [*layout.rows, *layout.cols]
    dims = tuple((a,) for a in order if a in axes)
    found = graph.nodes[node]
    fn = found.fn if isinstance(found, Reduce) else "value"
    name = {"sum": "total", "max": "largest", "min": "smallest"}.get(fn, "value")
    tensor = Tensor(name=namer.fresh(name), dims=dims, dtype="float32", kind="partial")
    graph.tensors[tensor.name] = tensor
    return tensor


def _loaded(graph: Graph, targets: list[Target], loads: dict[int, Tensor]) -> tuple[Graph, list[Target]]:
    """The graph with produced values loaded, and the targets in it."""
    if not targets:
        return graph, targets

    def rewrite(g: Graph, _node: object, old: int) -> int | None:
        return g.load(loads[old].name) if old in loads else None

    result, names = rebuild(graph, [t.node for t in targets], rewrite)
    return result, [Target(t.tensor, names[t.node], t.at) for t in targets]


def _host_program(graph: Graph, targets: list[Target]) -> RowProgram:
    """A step of torch operations on small tensors: no columns."""
    axes: list[str] = []
    for node in reachable(graph, [t.node for t in targets]):
        found = graph.nodes[node]
        if isinstance(found, Load):
            axes += [
                a for a in graph.tensors[found.tensor].axes if a not in axes and not graph.axes[a].unroll
            ]
    return build_program(
        graph, [(t.tensor, t.node, t.at) for t in targets], Layout(tuple(axes), ()), host=True
    )
