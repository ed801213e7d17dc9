"""Derive the kernels of a traced op: what is saved, computed, and how it is laid out. Pure: no torch, nothing executed."""

from __future__ import annotations

import keyword

from kernels.derivation import Derivation, Operand, Rule, Saved, Step, Traffic, Unsupported
from kernels.expressions import FormulaText
from kernels.op_spec import OpSpec
from kernels.passes.branches import simplify_branches
from kernels.passes.final_sums import sums_last
from kernels.passes.functions import FUNCTIONS
from kernels.passes.graph import Graph
from kernels.passes.layout import Layout, candidate_layouts
from kernels.passes.lower import Lowered, lower, source_line
from kernels.passes.products import flatten_products
from kernels.passes.rewrite import reachable, rebuild
from kernels.passes.saved import choose_saved
from kernels.passes.stages import Stage, Target, plan_stages
from kernels.passes.values import Coordinates, Value, unrolled
from kernels.row_program import Load, Map, Node, Reduce, RowProgram, Tensor
from kernels.schedules import choose_schedule
from kernels.traced import TracedOp

MAX_SAVED_ROWS = 16


def derive(traced: TracedOp) -> Derivation:
    """Derive forward and backward. Raises Unsupported for what the rules can't express."""
    _check_names(traced.op)
    if not traced.outputs:
        raise Unsupported("the reference returns nothing", needed="a result")
    return Deriver(traced).run()


def _check_names(op: OpSpec) -> None:
    """Names become part of the printed source: they must be plain identifiers."""
    for name in [op.name, *(t.name for t in op.tensors), *(s.name for s in op.scalars)]:
        if not name.isidentifier() or keyword.iskeyword(name):
            raise Unsupported(f"{name!r} is not a usable name", needed="a plain Python identifier")
    for tensor in op.tensors:
        for axis in tensor.shape:
            if axis != "*" and not axis.isidentifier():
                raise Unsupported(f"{axis!r} is not a usable axis name", needed="a plain Python identifier")


class Deriver:
    """The passes in order, over one graph that grows and is rewritten."""

    def __init__(self, traced: TracedOp):
        self.traced, self.op = traced, traced.op
        self.rules: list[Rule] = []

    def run(self) -> Derivation:
        lowered = lower(self.traced)
        self.graph = lowered.graph
        self.outputs = self._named_outputs(lowered)
        self.gradients = {n: v for n, v in lowered.gradients.items()}
        self._rename_tangents()
        self._merge_sums()
        self._apply(lambda g, roots: simplify_branches(g, roots), "branches", "inside a condition its consequences are used")
        layout = candidate_layouts(self.graph, self._roots(), [v.dims for v in self.outputs.values()])[0]
        cols = set(layout.cols)
        self._apply(lambda g, roots: flatten_products(g, roots, cols), "products", "constants merged, row values first")
        self.saved_statistics: dict[int, Tensor] = {}
        backward = self._backward_stages(layout)
        forward = self._forward_stages()
        return self._derivation(lowered, forward, backward)

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
        from kernels.passes.rewrite import copy, renamed as with_names

        for index, node in enumerate(old.nodes):
            renamed.line = old.lines[index]
            if isinstance(node, Load):
                node = node.model_copy(update={"tensor": names.get(node.tensor, node.tensor)})
            mapping[index] = copy(renamed, with_names(node, mapping))
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

    def _apply(self, transform, rule: str, note: str) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
        before = list(self.graph.nodes)
        live = len(reachable(self.graph, self._roots()))
        self.graph, names = transform(self.graph, self._roots())
        self._rename_values(names)
        after = len(reachable(self.graph, self._roots()))
        if [self.graph.nodes[i] for i in range(len(self.graph.nodes))] != before and after != live:
            self.rules.append(Rule(rule=rule, note=f"{note} ({live} values became {after})"))

    def _merge_sums(self) -> None:
        for values in (self.outputs, self.gradients):
            for name, value in values.items():
                elements = {at: sums_last(self.graph, n) for at, n in value.elements.items()}
                values[name] = Value(value.dims, elements)

    # --- programs ---

    def _at(self, value: Value, dims: tuple[tuple[str, ...], ...], at: Coordinates) -> tuple[tuple[str, int], ...]:
        """Coordinates of a value's element, on the axes of the tensor it is written to."""
        own = unrolled(self.graph, dims)
        return tuple(zip(own, at, strict=True))

    def _targets(self, name: str, value: Value, tensor: Tensor) -> list[Target]:
        targets: list[Target] = []
        for at, node in value.elements.items():
            if not at and unrolled(self.graph, tensor.dims):
                raise Unsupported(f"{name} is the same for all parts of its axis", needed="a value for each part")
            targets.append(Target(tensor, node, self._at(value, tensor.dims, at) if at else ()))
        return targets

    def _output_dims(self, name: str, value: Value) -> tuple[tuple[str, ...], ...]:
        tangent = self.graph.tensors.get(f"d{name}")
        return tangent.dims if tangent is not None else value.dims

    def _forward_stages(self) -> list[Stage]:
        targets: list[Target] = []
        for name, value in self.outputs.items():
            tensor = Tensor(
                name=name, dims=self._output_dims(name, value), dtype=self._output_dtype(name), kind="output", like=self._like()
            )
            targets += self._targets(name, value, tensor)
        targets += [Target(tensor, node) for node, tensor in self.saved_statistics.items()]
        return plan_stages(self.graph, targets)

    def _output_dtype(self, name: str) -> str:
        position = list(self.outputs).index(name)
        node = self.traced.nodes[self.traced.outputs[position].node]  # type: ignore[index]
        return "float32" if node.dtype == "float32" else "float"

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
            if () in value.elements and self.graph.axes_of[value.node()] >= rows | cols
        }
        choice = choose_saved(self.graph, forward, plain, gradient_roots, rows, cols)
        if len(choice.statistics) > MAX_SAVED_ROWS:
            raise Unsupported(f"the backward needs more than {MAX_SAVED_ROWS} row statistics")
        self.saved_results = choice.results
        replaced: dict[int, Tensor] = {}
        for name in choice.results:
            tensor = Tensor(name=name, dims=self.outputs[name].dims, dtype="float", kind="saved", like=self._like())
            replaced[plain[name]] = tensor
        for index, node in enumerate(choice.statistics):
            name = self._statistic_name(node, index)
            dims = tuple((a,) for a in (*layout.rows, *layout.cols) if a in self.graph.axes_of[node])
            tensor = Tensor(name=name, dims=dims, dtype="float32", kind="saved")
            replaced[node] = self.saved_statistics[node] = tensor
        self.graph.tensors.update({t.name: t for t in replaced.values()})
        graph, names = self._with_loads(replaced, gradient_roots)
        targets: list[Target] = []
        for name, value in self.gradients.items():
            spec = next(t for t in self.op.tensors if t.name == name)
            tensor = Tensor(
                name=f"d{name}", dims=self.graph.tensors[name].dims, dtype="float", kind="gradient", like=spec.name
            )
            renamed = Value(value.dims, {a: names[n] for a, n in value.elements.items()})
            targets += self._targets(f"d{name}", renamed, tensor)
        return plan_stages(graph, targets)

    def _with_loads(self, replaced: dict[int, Tensor], roots: list[int]) -> tuple[Graph, dict[int, int]]:
        """The gradients' graph with saved values loaded; what only they needed is gone."""

        def rewrite(g: Graph, _node: Node, old: int) -> int | None:
            return g.load(replaced[old].name) if old in replaced else None

        return rebuild(self.graph, roots, rewrite)

    def _statistic_name(self, node: int, index: int) -> str:
        found = self.graph.nodes[node]
        if not self.graph.axes_of[node]:
            return self._free("count" if isinstance(found, Reduce) else f"stat_{index}")
        if isinstance(found, Map) and found.fn == "rsqrt":
            return self._free("rstd")
        if isinstance(found, Reduce):
            return self._free("row_max" if found.fn == "max" else "row_sum")
        if isinstance(found, Map) and found.fn == "div":
            return self._free("mean")
        return self._free(f"stat_{index}")

    def _free(self, name: str) -> str:
        taken = {t.name for t in self.op.tensors} | {s.name for s in self.op.scalars} | {t.name for t in self.saved_statistics.values()}
        taken |= set(self.outputs)
        while name in taken:
            name += "_"
        return name

    # --- the record ---

    def _saved_records(self, program: RowProgram, results: tuple[str, ...]) -> list[Saved]:
        records: list[Saved] = []
        loaded = {n.tensor for n in program.nodes if isinstance(n, Load)}
        for tensor in program.tensors:
            if tensor.kind not in ("input", "saved") or tensor.name not in loaded:
                continue
            if tensor.name in results:
                why = "the result itself: cheaper than computing it again from the inputs"
            elif tensor.kind == "saved":
                why = "one number a row: spares the backward a reduction"
            else:
                why = "an input: everything else in the backward follows from it"
            records.append(Saved(name=tensor.name, role=self._role(program, tensor), why=why))
        return records

    @staticmethod
    def _role(program: RowProgram, tensor: Tensor) -> str:
        return program.role_of(frozenset(tensor.axes))

    def _derivation(
        self, lowered: Lowered, layout: Layout, forward: RowProgram, backward: RowProgram, saved: list[Saved]
    ) -> Derivation:
        forward = getattr(self, "forward_with_statistics", forward)
        reduces = any(isinstance(n, Reduce) for n in (*forward.nodes, *backward.nodes))
        tier = 3 if len(self.outputs) > 1 else 2 if reduces else 1
        graph = self.graph
        names = {t.name: t.name for t in forward.tensors}
        formula = FormulaText(graph.nodes, names)
        forward_formula = self.op.summary or "; ".join(
            f"{name} = {formula.write(next(iter(v.elements.values()))).text}" for name, v in self.outputs.items()
        )
        gradients = {
            name: ", ".join(formula.write(n).text for n in dict.fromkeys(v.elements.values()))
            for name, v in self.gradients.items()
        }
        return Derivation(
            op=self.op,
            tier=tier,
            inputs=tuple(self._operand(forward, backward, t.name) for t in self.op.tensors),
            outputs=tuple(
                Operand(
                    name=t.name,
                    role=self._role(forward, t),
                    shape=self._shape_text(t),
                    dtype="float32" if t.dtype == "float32" else "same as input",
                )
                for t in forward.tensors
                if t.kind == "output"
            ),
            forward_formula=forward_formula,
            gradient_formulas=gradients,
            precision_sensitive=self._precision(forward, backward),
            casts_kept=tuple(lowered.casts),
            saved=tuple(saved),
            recomputed=self._recomputed(backward, forward),
            rules=tuple(self.rules),
            traffic=self._traffic(forward, backward),
            forward_schedule=choose_schedule(forward),
            backward_schedule=choose_schedule(backward),
            forward=forward,
            backward=backward,
            warnings=tuple(f"{k} is fixed at {v}" for k, v in self.traced.fixed.items()),
        )

    def _operand(self, forward: RowProgram, backward: RowProgram, name: str) -> Operand:
        for program in (forward, backward):
            for tensor in program.tensors:
                if tensor.name == name:
                    dtype = {"float": "same as input", "int64": "int64", "bool": "bool"}.get(tensor.dtype, tensor.dtype)
                    return Operand(name=name, role=self._role(program, tensor), shape=self._shape_text(tensor), dtype=dtype)
        spec = next(t for t in self.op.tensors if t.name == name)
        return Operand(name=name, role="full", shape=f"({', '.join(spec.shape)})", dtype="same as input")

    def _shape_text(self, tensor: Tensor) -> str:
        spec = next((t for t in self.op.tensors if t.name == tensor.name), None)
        if spec is not None:
            return f"({', '.join(spec.shape)})"
        dims = []
        for dim in tensor.dims:
            size = " * ".join(self.graph.axes[a].size.text() for a in dim) or "1"
            dims.append("*" if dim == ("n_rows",) and any("*" in t.shape for t in self.op.tensors) else size)
        return f"({', '.join(dims)})"

    @staticmethod
    def _precision(forward: RowProgram, backward: RowProgram) -> tuple[str, ...]:
        found: list[str] = []
        for program in (forward, backward):
            for node in program.nodes:
                if isinstance(node, Map) and FUNCTIONS[node.fn].transcendental and node.fn not in found:
                    found.append(node.fn)
                if isinstance(node, Reduce) and f"{node.fn} over columns" not in found:
                    found.append(f"{node.fn} over columns")
            for write in program.accumulates:
                name = f"sum over rows for {write.tensor}"
                if name not in found:
                    found.append(name)
        return tuple(found)

    @staticmethod
    def _recomputed(backward: RowProgram, forward: RowProgram) -> tuple[str, ...]:
        ours = {(n.fn) for n in forward.nodes if isinstance(n, Map) and FUNCTIONS[n.fn].transcendental}
        theirs = {(n.fn) for n in backward.nodes if isinstance(n, Map) and FUNCTIONS[n.fn].transcendental}
        return tuple(sorted(ours & theirs))

    def _traffic(self, forward: RowProgram, backward: RowProgram) -> Traffic:
        """Full tensors moved; a packed tensor of k parts counts once for each part that is touched."""

        def moved(program: RowProgram) -> int:
            axes = program.node_axes()
            loads = {n for i, n in enumerate(program.nodes) if isinstance(n, Load) and program.role_of(axes[i]) == "full"}
            stores = [s for s in program.stores if program.role_of(frozenset(program.tensor(s.tensor).axes)) == "full"]
            return len(loads) + len(stores)

        def transcendentals(program: RowProgram) -> int:
            axes = program.node_axes()
            return sum(
                1
                for i, n in enumerate(program.nodes)
                if isinstance(n, Map) and FUNCTIONS[n.fn].transcendental and program.role_of(axes[i]) == "full"
            )

        eager_forward, eager_backward, eager_kept = eager_traffic(self.traced)
        inputs = sum(1 for t in forward.tensors if t.kind == "input" and self._role(forward, t) == "full")
        outputs = sum(1 for t in forward.tensors if t.kind == "output" and self._role(forward, t) == "full")
        gradients = sum(1 for s in backward.stores if self._role(backward, backward.tensor(s.tensor)) == "full")
        # At the end of the backward: inputs, results, incoming gradients and gradients are alive.
        alive = inputs + outputs + gradients + sum(
            1 for t in backward.tensors if t.kind == "tangent" and self._role(backward, t) == "full"
        )
        return Traffic(
            forward_tensors=moved(forward),
            backward_tensors=moved(backward),
            eager_forward_tensors=eager_forward,
            eager_backward_tensors=eager_backward,
            forward_per_row_bytes=self._row_bytes(forward),
            backward_per_row_bytes=self._row_bytes(backward),
            transcendentals_forward=transcendentals(forward),
            transcendentals_backward=transcendentals(backward),
            peak_tensors=alive,
            eager_peak_tensors=alive + eager_kept,
        )

    @staticmethod
    def _row_bytes(program: RowProgram) -> int:
        sizes = {"float": 2, "float32": 4, "int64": 8, "bool": 1}
        return sum(
            sizes[t.dtype] for t in program.tensors if program.role_of(frozenset(t.axes)) == "row"
        )


VIEWS = {
    "detach", "alias", "expand", "view", "reshape", "permute", "transpose", "t", "unsqueeze", "squeeze", "slice", "select",
    "split", "chunk", "unbind", "_unsafe_view", "split_with_sizes", "expand_as",
}  # fmt: skip


def eager_traffic(traced: TracedOp) -> tuple[int, int, int]:
    """Full tensors that eager reads and writes, forward and backward, and how many it keeps between the two.

    Each ATen operation reads its inputs and writes its output; views move nothing, and the exporter's closing clone
    isn't there in eager.
    """
    from kernels.passes.lower import used
    from kernels.traced import references

    largest = max((len(n.shape) for n in traced.nodes), default=0)
    closing = {o.node for o in traced.outputs}
    live = used(traced, [o.node for o in (*traced.outputs, *traced.gradients) if o.node is not None])

    def full(index: int) -> bool:
        node = traced.nodes[index]
        return len(node.shape) == largest and not any(q.is_number and q.coef == 1 for q in node.shape)

    source: dict[int, int] = {}  # what a view looks at
    totals = {False: 0, True: 0}
    kept: set[int] = set()
    for node in traced.nodes:
        reads = [source.get(r, r) for r in references(node)]
        view = node.op.split(".")[1] in VIEWS if node.op.startswith("aten.") else node.op == "getitem"
        if node.op == "aten.clone.default" and node.id in closing:
            view = True
        if view:
            source[node.id] = reads[0] if reads else node.id
            continue
        if node.op in ("input", "tangent") or node.id not in live:
            continue
        totals[node.backward] += sum(1 for r in set(reads) if full(r)) + (1 if full(node.id) else 0)
        if node.backward:
            kept |= {
                r for r in reads if full(r) and not traced.nodes[r].backward and traced.nodes[r].op not in ("input", "tangent")
            }
    results = {source.get(o, o) for o in closing if o is not None}
    return totals[False], totals[True], len(kept - results)


_ = source_line
