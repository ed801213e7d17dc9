"""The passes in order: from a traced op to what is saved, computed, and how it is laid out. Pure: no torch, nothing executed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from kernels.derivation import Derivation, Rule, Step, Unsupported
from kernels.passes.branches import simplify_branches
from kernels.passes.equal_gradients import equal_gradients
from kernels.passes.final_sums import scatters, sums_last
from kernels.passes.gradient_in_forward import decide, scalar_tangent, with_tangent_one
from kernels.passes.graph import Graph
from kernels.passes.layout import Layout, candidate_layouts
from kernels.passes.lower import Lowered, lower
from kernels.passes.one_hot import close_one_hot_sums
from kernels.passes.products import flatten_products
from kernels.passes.rewrite import copy, reachable, rebuild
from kernels.passes.rewrite import renamed as with_names
from kernels.passes.saved import choose_saved
from kernels.passes.stages import Stage, Target, plan_stages
from kernels.passes.statistic_names import statistic_name
from kernels.passes.tanh_forms import simplify_tanh
from kernels.passes.uniform_factors import uniform_factors
from kernels.passes.values import Value, coordinates, element, unrolled
from kernels.passes.wide_rows import wide_stages
from kernels.record import Record
from kernels.row_program import Load, Node, Reduce, Tensor
from kernels.schedules import choose_schedule, idle_schedule
from kernels.traced import TracedOp

MAX_SAVED_ROWS = 16
Transform = Callable[[Graph, list[int]], tuple[Graph, dict[int, int]]]


class Deriver:
    """The passes in order, over one graph that grows and is rewritten."""

    def __init__(self, traced: TracedOp, *, wide_rows: bool = False, split_rows: bool = False):
        self.traced, self.op = traced, traced.op
        self.wide_rows, self.split_rows = wide_rows or split_rows, split_rows
        self.rules: list[Rule] = []
        self.gradient_in_forward = False

    def run(self) -> Derivation:
        lowered = lower(self.traced)
        self.graph = lowered.graph
        self.outputs = self._named_outputs(lowered)
        self.gradients = dict(lowered.gradients)
        self._rename_tangents()
        self._apply(close_one_hot_sums, "one-hot sums", "a sum over a one-hot row is its element")
        self._merge_sums()
        self._apply(simplify_branches, "branches", "inside a condition its consequences are used")
        self._apply(
            simplify_tanh, "tanh forms", "1 + tanh(z) is 2 sigmoid(2z); tanh(softplus(x)) needs no logarithm"
        )
        layout = candidate_layouts(self.graph, self._roots(), [v.dims for v in self.outputs.values()])[0]
        cols = set(layout.cols)
        self._apply(
            lambda g, roots: uniform_factors(
                g, roots, cols, {n for v in self.outputs.values() for n in v.elements.values()}
            ),
            "uniform factors",
            "what doesn't vary along a sum leaves it",
        )
        self._apply(
            lambda g, roots: flatten_products(g, roots, cols),
            "products",
            "constants merged, row values first",
        )
        self.prepare()
        # A loss reads rows as wide as a vocabulary and keeps nothing of that width.
        self.wide_rows |= not any(
            self.graph.axes_of[n] & cols for v in self.outputs.values() for n in v.elements.values()
        )
        self.saved_statistics: dict[int, Tensor] = {}
        backward = self._backward_stages(layout)
        forward = self._with_gradients(self._forward_stages(), backward)
        return self._derivation(lowered, forward, backward)

    def prepare(self) -> None:
        """What a derivation of a part does to its graph before it is split into kernels."""

    # --- names ---

    def _named_outputs(self, lowered: Lowered) -> dict[str, Value]:
        taken = {t.name for t in self.op.tensors} | {s.name for s in self.op.scalars}
        values = list(lowered.outputs.values())
        base = "y" if "y" not in taken else "out"
        if len(values) == 1:
            return {base: values[0]}
        return {f"{base}{i}": v for i, v in enumerate(values)}

    def _rename_tangents(self) -> None:
        """tangent_0 -> dy; the tensor of a result's incoming gradient."""
        names = {f"tangent_{i}": f"d{name}" for i, name in enumerate(self.outputs)}
        tensors = {}
        for key, tensor in self.graph.tensors.items():
            name = names.get(key, key)
            tensors[name] = tensor.model_copy(update={"name": name})
        renamed = Graph(tensors, self.graph.axes)
        old = self.graph
        mapping: dict[int, int] = {}
        for index, found in enumerate(old.nodes):
            renamed.line = old.lines[index]
            update = {"tensor": names.get(found.tensor, found.tensor)} if isinstance(found, Load) else {}
            mapping[index] = copy(renamed, with_names(found.model_copy(update=update), mapping))
        self.graph = renamed
        self._rename_values(mapping)

    # --- passes ---

    def _rename_values(self, names: dict[int, int]) -> None:
        def renamed(value: Value) -> Value:
            return Value(value.dims, {at: names[n] for at, n in value.elements.items()})

        self.outputs = {k: renamed(v) for k, v in self.outputs.items()}
        self.gradients = {k: renamed(v) for k, v in self.gradients.items()}

    def _roots(self) -> list[int]:
        values = [*self.outputs.values(), *self.gradients.values()]
        return [n for v in values for n in v.elements.values()]

    def _apply(self, transform: Transform, rule: str, note: str) -> None:
        """Run one pass, and note it when it changed how many values are computed."""
        live = len(reachable(self.graph, self._roots()))
        self.graph, names = transform(self.graph, self._roots())
        self._rename_values(names)
        after = len(reachable(self.graph, self._roots()))
        if after != live:
            self.rules.append(Rule(rule=rule, note=f"{note} ({live} values became {after})"))

    def _merge_sums(self) -> None:
        for values in (self.outputs, self.gradients):
            for name, value in values.items():
                elements = {at: sums_last(self.graph, n) for at, n in value.elements.items()}
                axes = tuple(a for dim in value.dims for a in dim)
                elements = {at: scatters(self.graph, n, axes) for at, n in elements.items()}
                values[name] = Value(value.dims, elements)

    # --- programs ---

    def _targets(self, value: Value, tensor: Tensor) -> list[Target]:
        """One target for each combination of coordinates on the tensor's unrolled axes."""
        names = unrolled(self.graph, tensor.dims)
        return [
            Target(tensor, element(self.graph, value, tensor.dims, at), tuple(zip(names, at, strict=True)))
            for at in coordinates(self.graph, tensor.dims)
        ]

    def _output_dims(self, name: str, value: Value) -> tuple[tuple[str, ...], ...]:
        tangent = self.graph.tensors.get(f"d{name}")
        return tangent.dims if tangent is not None else value.dims

    def _forward_stages(self) -> list[Stage]:
        return plan_stages(self.graph, self._forward_targets())

    def _with_gradients(self, forward: list[Stage], backward: list[Stage]) -> list[Stage]:
        """The forward, with the gradients for an incoming gradient of 1 where that spares a pass."""
        tangent = scalar_tangent(self.graph)
        if tangent is None:
            return forward
        targets = [*self._forward_targets(), *self._gradient_targets(self.gradients)]
        graph, names = with_tangent_one(self.graph, [t.node for t in targets], tangent)
        try:
            joint = plan_stages(graph, [Target(t.tensor, names[t.node], t.at) for t in targets])
        except Unsupported:
            return forward  # the loss and its gradient run over different grids
        decision = decide(forward, backward, joint)
        self.gradient_in_forward = decision.applies
        self.rules.append(Rule(rule="gradient in the forward", note=decision.why))
        return joint if decision.applies else forward

    def _forward_targets(self) -> list[Target]:
        targets: list[Target] = []
        for name, value in self.outputs.items():
            tensor = Tensor(
                name=name,
                dims=self._output_dims(name, value),
                dtype=self._output_dtype(name),
                kind="output",
                like=self._like(),
            )
            targets += self._targets(value, tensor)
        return [*targets, *(Target(tensor, node) for node, tensor in self.saved_statistics.items())]

    def _output_dtype(self, name: str) -> Literal["float", "float32", "int64", "bool"]:
        position = list(self.outputs).index(name)
        node = self.traced.nodes[self.traced.outputs[position].node]  # type: ignore[index]
        return node.dtype if node.dtype in ("float32", "int64", "bool") else "float"

    def _like(self) -> str:
        floats = [t for t in self.op.tensors if t.dtype == "float"]
        if not floats:
            raise Unsupported("the op has no floating-point input", needed="a floating-point tensor")
        return next((t.name for t in floats if not t.learnable), floats[0].name)

    def _backward_stages(self, layout: Layout) -> list[Stage]:
        forward_roots = [n for v in self.outputs.values() for n in v.elements.values()]
        forward = set(reachable(self.graph, forward_roots))
        gradient_roots = [n for v in self.gradients.values() for n in v.elements.values()]
        if not gradient_roots:
            raise Unsupported("no input has a gradient", needed="a differentiable function of its inputs")
        rows, cols = set(layout.rows), set(layout.cols)
        plain = {
            name: value.node()
            for name, value in self.outputs.items()
            if () in value.elements
            and self._output_dtype(name) == "float"
            and self.graph.axes_of[value.node()] >= rows | cols
        }
        choice = choose_saved(self.graph, forward, plain, gradient_roots, rows, cols)
        if len(choice.statistics) > MAX_SAVED_ROWS:
            raise Unsupported(f"the backward needs more than {MAX_SAVED_ROWS} row statistics")
        self.saved_results = choice.results
        replaced: dict[int, Tensor] = {}
        for name in choice.results:
            tensor = Tensor(
                name=name, dims=self.outputs[name].dims, dtype="float", kind="saved", like=self._like()
            )
            replaced[plain[name]] = tensor
        for index, node in enumerate(choice.statistics):
            name = self._statistic_name(node, index)
            dims = tuple((a,) for a in (*layout.rows, *layout.cols) if a in self.graph.axes_of[node])
            found = self.graph.nodes[node]
            whole = isinstance(found, Reduce) and found.fn.startswith("arg")
            tensor = Tensor(name=name, dims=dims, dtype="int64" if whole else "float32", kind="saved")
            replaced[node] = self.saved_statistics[node] = tensor
        self.graph.tensors.update({t.name: t for t in replaced.values()})
        graph, names = self._with_loads(replaced, gradient_roots)
        self.aliases = equal_gradients(self.graph, self.gradients)
        renamed = {
            name: Value(value.dims, {a: names[n] for a, n in value.elements.items()})
            for name, value in self.gradients.items()
        }
        targets = self._gradient_targets(renamed)
        stages = plan_stages(graph, targets)
        return wide_stages(graph, targets, stages) if self.wide_rows else stages

    def _gradient_targets(self, gradients: dict[str, Value]) -> list[Target]:
        targets: list[Target] = []
        for name, value in gradients.items():
            if f"d{name}" in self.aliases:
                continue
            tensor = Tensor(
                name=f"d{name}",
                dims=self.graph.tensors[name].dims,
                dtype="float",
                kind="gradient",
                like=name,
            )
            targets += self._targets(value, tensor)
        return targets

    def _with_loads(self, replaced: dict[int, Tensor], roots: list[int]) -> tuple[Graph, dict[int, int]]:
        """The gradients' graph with saved values loaded; what only they needed is gone."""

        def rewrite(g: Graph, _node: Node, old: int) -> int | None:
            return g.load(replaced[old].name) if old in replaced else None

        return rebuild(self.graph, roots, rewrite)

    def _statistic_name(self, node: int, index: int) -> str:
        taken = {t.name for t in self.op.tensors} | {s.name for s in self.op.scalars} | set(self.outputs)
        taken |= {t.name for t in self.saved_statistics.values()}
        return statistic_name(self.graph, node, index, taken)

    # --- the record ---

    def _derivation(self, lowered: Lowered, forward: list[Stage], backward: list[Stage]) -> Derivation:
        forward_steps, backward_steps = self._steps(forward), self._steps(backward)
        if self.gradient_in_forward:
            # Few rows are few programs: too few for a backward that does find something to do.
            wide = not self.split_rows and any(
                s.schedule and s.schedule.name == "looped_row" for s in forward_steps
            )
            backward_steps = tuple(
                s.model_copy(update={"schedule": idle_schedule(s.program, s.schedule, wide=wide)})
                if s.schedule
                else s
                for s in backward_steps
            )
        statistics = {node: tensor.name for node, tensor in self.saved_statistics.items()}
        record = Record(
            self.traced,
            self.graph,
            self.outputs,
            self.gradients,
            forward_steps,
            backward_steps,
            statistics,
            self.gradient_in_forward,
        )
        derivation = record.derivation(tuple(self.rules), tuple(lowered.casts), self.saved_results)
        return derivation.model_copy(update={"aliases": self.aliases})

    def _steps(self, stages: list[Stage]) -> tuple[Step, ...]:
        return tuple(
            Step(
                program=s.program,
                schedule=None if s.host else choose_schedule(s.program, wide_rows=self.wide_rows),
            )
            for s in stages
        )
