"""Few rows of very many columns: a row is split over programs, and each level of reductions gets a kernel of its own. Pure.

Before: one kernel, a program a row: m = max(x), s = sum(exp(x - m)), y = exp(x - m) / s. After: the first kernel reduces
each part of a row to its own m and s; the second reads those of its row, a few hundred numbers, and writes its part of y.
In a program of one part a reduction over columns is one over the part's columns, and the axis of parts is `SPLITS`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kernels.derivation import Derivation, Step, Unsupported
from kernels.looped_row import available, loop_levels
from kernels.passes.names import value_names
from kernels.passes.rewrite import renamed
from kernels.quantity import Quantity
from kernels.row_program import (
    SPLITS,
    Accumulate,
    Axis,
    Gather,
    Load,
    Map,
    Node,
    Reduce,
    RowProgram,
    Scan,
    Store,
    Symbol,
    Tensor,
    operands,
)
from kernels.schedules import choose_schedule, is_looped, sums_columns, tiles_columns


def split_rows(derivation: Derivation) -> Derivation:
    """The same derivation with every reduced row split over programs. Raises Unsupported, naming what can't be."""
    names = {a for t in derivation.op.tensors for a in t.shape} | {s.name for s in derivation.op.scalars}
    if SPLITS in names:
        raise Unsupported(f"{SPLITS} is what the parts of a row are called", needed="another name")
    if derivation.template or derivation.chunks:
        raise Unsupported(
            "this op's kernels come from a template, which doesn't split rows",
            needed="a request without split rows",
        )
    forward = _split_steps(derivation, derivation.forward_steps, backward=False)
    backward = _split_steps(derivation, derivation.backward_steps, backward=True)
    return derivation.model_copy(
        update={
            "forward_steps": forward,
            "backward_steps": backward,
            "forward_schedule": _schedule(forward) or derivation.forward_schedule,
            "backward_schedule": _schedule(backward) or derivation.backward_schedule,
        }
    )


def _schedule(steps: tuple[Step, ...]):
    return next((s.schedule for s in steps if s.schedule and s.schedule.name == "split_row"), None)


def _split_steps(derivation: Derivation, steps: tuple[Step, ...], *, backward: bool) -> tuple[Step, ...]:
    taken = {t.name for s in steps for t in s.program.tensors} | {t.name for t in derivation.op.tensors}
    taken |= {s.name for s in derivation.op.scalars}
    found = backward and derivation.gradient_in_forward
    result: list[Step] = []
    for step in steps:
        if step.schedule is None or not _reduces_rows(step.program):
            result.append(step)
            continue
        _check(step.program)
        programs = split_program(step.program, taken, keep_tangents=found)
        result += [Step(program=program, schedule=choose_schedule(program)) for program in programs]
    return tuple(result)


def _reduces_rows(program: RowProgram) -> bool:
    """Whether a row's columns are reduced by one program. Tiles of columns are independent: no row waits for one."""
    if not program.rows or tiles_columns(program):
        return False
    return any(isinstance(n, Reduce | Scan) for n in program.nodes)


def _check(program: RowProgram) -> None:
    for node in program.nodes:
        if isinstance(node, Scan):
            raise Unsupported(
                "a prefix along a row can't be split over programs",
                node=f"aten.cum{node.fn}.default",
                needed="a pass that adds to each part the sum of the parts before it",
            )
        if isinstance(node, Reduce) and node.fn.startswith("arg"):
            raise Unsupported(
                "the place of a row's extreme can't be split over programs",
                node=f"aten.{node.fn}.default",
                needed="parts that keep a value and its place",
            )
    if sums_columns(program):
        raise Unsupported(
            "column gradients need reductions of rows that the forward doesn't save",
            node="aten.sum.dim_IntList",
            needed="those statistics among the saved tensors, so that columns can be summed in tiles",
        )
    if not is_looped(program, wide_rows=True):
        raise Unsupported(
            "a lookup's gradient beside a reduced row can't be split over programs",
            node="aten.scatter_add.default",
            needed="a kernel of its own for the lookup's gradient",
        )


def split_program(program: RowProgram, taken: set[str], *, keep_tangents: bool = False) -> list[RowProgram]:
    """One program for each level of reductions, and one for what needs them all. `taken`: names; the parts' are added.

    keep_tangents: every program is given the incoming gradient, whether it reads it or not.
    """
    levels, online = loop_levels(program)
    reduces = [i for i, n in enumerate(program.nodes) if isinstance(n, Reduce)]
    names = value_names(program, set())
    parts: dict[int, Tensor] = {}
    for index in reduces:
        name, count = f"{names[index]}_parts", 2
        while name in taken:
            name, count = f"{names[index]}_parts_{count}", count + 1
        taken.add(name)
        dims = ((*program.rows,), (SPLITS,))
        parts[index] = Tensor(name=name, dims=dims, dtype="float32", kind="partial")
    programs: list[RowProgram] = []
    for level in range(max((levels[i] for i in reduces), default=0) + 2):
        part = _Part(program, parts, levels, online, level)
        for index in reduces:
            if levels[index] == level:
                part.store(parts[index], index)
        for store in program.stores:
            if available(program, store.value, levels) == level:
                part.store(program.tensor(store.tensor), store.value, store.at)
        for write in program.accumulates:
            if available(program, write.value, levels) == level:
                part.accumulate(write)
        if part.stores or part.accumulates:
            programs.append(part.program(keep_tangents=keep_tangents))
    return programs


@dataclass
class _Part:
    """One of the programs as it grows: reductions of earlier levels are made from their parts."""

    whole: RowProgram
    parts: dict[int, Tensor]
    levels: list[int]
    online: dict[int, int]
    level: int
    nodes: list[Node] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)
    accumulates: list[Accumulate] = field(default_factory=list)
    names: dict[int, int] = field(default_factory=dict)  # a node of the whole -> its node here
    ids: dict[Node, int] = field(default_factory=dict)

    def store(self, tensor: Tensor, value: int, at: tuple[tuple[str, int], ...] = ()) -> None:
        self.stores.append(Store(tensor=tensor.name, value=self._value(value), at=at))

    def accumulate(self, write: Accumulate) -> None:
        self.accumulates.append(write.model_copy(update={"value": self._value(write.value)}))

    def program(self, *, keep_tangents: bool) -> RowProgram:
        used = {n.tensor for n in self.nodes if isinstance(n, Load | Gather)}
        used |= {w.tensor for w in (*self.stores, *self.accumulates)}
        tensors = [*self.whole.tensors, *self.parts.values()]
        mentioned = {name for n in self.nodes if isinstance(n, Symbol) for name in n.quantity.names}
        return RowProgram(
            axes=(*self.whole.axes, Axis(name=SPLITS, size=Quantity.of(SPLITS))),
            rows=self.whole.rows,
            cols=self.whole.cols,
            tensors=tuple(t for t in tensors if t.name in used or (keep_tangents and t.kind == "tangent")),
            scalars=tuple(s for s in self.whole.scalars if s in mentioned),
            nodes=tuple(self.nodes),
            stores=tuple(self.stores),
            accumulates=tuple(self.accumulates),
        )

    def _add(self, node: Node) -> int:
        if node not in self.ids:
            self.nodes.append(node)
            self.ids[node] = len(self.nodes) - 1
        return self.ids[node]

    def _earlier(self, index: int) -> bool:
        return index in self.parts and self.levels[index] < self.level

    def _value(self, root: int) -> int:
        needed: set[int] = set()
        stack = [root]
        while stack:
            index = stack.pop()
            if index in needed:
                continue
            needed.add(index)
            if not self._earlier(index):
                stack.extend(operands(self.whole.nodes[index]))
            elif index in self.online:
                stack.append(self.online[index])
        for index in sorted(needed - set(self.names)):
            node = self.whole.nodes[index]
            self.names[index] = (
                self._combined(index) if self._earlier(index) else self._add(renamed(node, self.names))
            )
        return self.names[root]

    def _combined(self, index: int) -> int:
        """A reduction of the whole row from those of its parts; sums of exponentials are brought to one maximum."""
        node = self.whole.nodes[index]
        fn = node.fn if isinstance(node, Reduce) else "sum"
        value = self._add(Load(tensor=self.parts[index].name))
        if index in self.online:
            largest = self._add(Load(tensor=self.parts[self.online[index]].name))
            below = self._add(Map(fn="sub", args=(largest, self.names[self.online[index]])))
            value = self._add(Map(fn="mul", args=(value, self._add(Map(fn="exp", args=(below,))))))
        return self._add(Reduce(fn=fn, arg=value, axes=(SPLITS,)))  # type: ignore[arg-type]
