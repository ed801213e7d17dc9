"""What a derivation tells people: operands, formulas, what is saved and why, and the bytes that move. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kernels.derivation import Derivation, KernelSchedule, Operand, Rule, Saved, Step, Traffic, Unsupported
from kernels.eager import eager_traffic
from kernels.expressions import LONGEST_FORMULA, FormulaText
from kernels.passes.functions import FUNCTIONS
from kernels.passes.gradient_in_forward import full_tensors_moved
from kernels.passes.graph import Graph
from kernels.passes.lower import ROWS
from kernels.passes.values import Value
from kernels.quantity import Quantity
from kernels.row_program import Load, Map, Reduce, Role, RowProgram, Scan, Tensor
from kernels.traced import TracedOp

DTYPE_TEXT = {"float": "same as input", "float32": "float32", "int64": "int64", "bool": "bool"}


@dataclass
class Record:
    """Everything known once the kernels are planned."""

    traced: TracedOp
    graph: Graph
    outputs: dict[str, Value]
    gradients: dict[str, Value]
    forward: tuple[Step, ...]
    backward: tuple[Step, ...]
    statistics: dict[int, str]  # saved row values: node -> name
    gradient_in_forward: bool = False

    def derivation(
        self, rules: tuple[Rule, ...], casts: tuple[str, ...], results: tuple[str, ...]
    ) -> Derivation:
        op = self.traced.op
        (forward, forward_schedule), (backward, backward_schedule) = _main(self.forward), _main(self.backward)
        return Derivation(
            op=op,
            tier=self._tier(),
            inputs=tuple(self._operand(t.name) for t in op.tensors),
            outputs=tuple(self._operand_of(t) for t in self._written("output")),
            forward_formula=self._forward_formula(),
            gradient_formulas=self._gradient_formulas(),
            definitions=self._definitions(),
            precision_sensitive=self._precision(),
            casts_kept=casts,
            saved=tuple(self._saved(results)),
            recomputed=self._recomputed(),
            rules=rules,
            traffic=self._traffic(),
            forward_schedule=forward_schedule,
            backward_schedule=backward_schedule,
            forward=forward,
            backward=backward,
            forward_steps=self.forward,
            backward_steps=self.backward,
            gradient_in_forward=self.gradient_in_forward,
            warnings=tuple(f"{k} is fixed at {v}" for k, v in self.traced.fixed.items()),
        )

    # --- tensors ---

    def _programs(self) -> list[RowProgram]:
        return [s.program for s in (*self.forward, *self.backward)]

    def _written(self, kind: str) -> list[Tensor]:
        found: dict[str, Tensor] = {}
        for program in self._programs():
            for write in (*program.stores, *program.accumulates, *program.scatters):
                tensor = program.tensor(write.tensor)
                if tensor.kind == kind:
                    found.setdefault(tensor.name, tensor)
        return list(found.values())

    def _role(self, axes: frozenset[str]) -> Role:
        """Role of a tensor in the op as a whole, seen from the main forward kernel."""
        main, _ = _main(self.forward)
        known = frozenset(main.rows) | frozenset(main.cols)
        solid = frozenset(a for a in axes if not self.graph.axes[a].unroll)
        if solid and solid >= known:
            return "full"
        return main.role_of(solid & known) if solid else "scalar"

    def _operand(self, name: str) -> Operand:
        return self._operand_of(self.graph.tensors[name])

    def _operand_of(self, tensor: Tensor) -> Operand:
        return Operand(
            name=tensor.name,
            role=self._role(frozenset(tensor.axes)),
            shape=self._shape(tensor),
            dtype=DTYPE_TEXT[tensor.dtype],
        )

    def _shape(self, tensor: Tensor) -> str:
        spec = next((t for t in self.traced.op.tensors if t.name == tensor.name), None)
        if spec is not None:
            return f"({', '.join(spec.shape)})"
        star = any("*" in t.shape for t in self.traced.op.tensors)
        dims = []
        for dim in tensor.dims:
            size = Quantity()
            for axis in dim:
                size *= self.graph.axes[axis].size
            dims.append("*" if star and dim == (ROWS,) else size.text())
        return f"({', '.join(dims)})"

    def _saved(self, results: tuple[str, ...]) -> list[Saved]:
        records: dict[str, Saved] = {}
        produced: set[str] = set()
        for step in self.backward:
            for tensor in step.program.tensors:
                if tensor.kind not in ("input", "saved") or tensor.name in produced or tensor.name in records:
                    continue
                if (
                    not any(isinstance(n, Load) and n.tensor == tensor.name for n in step.program.nodes)
                    and tensor.kind == "saved"
                ):
                    continue
                role = self._role(frozenset(tensor.axes))
                if tensor.name in results:
                    why = "the result itself: cheaper than computing it again from the inputs"
                elif tensor.kind == "saved":
                    why = (
                        "one number"
                        + (" a row" if role == "row" else "")
                        + ": spares the backward a reduction"
                    )
                else:
                    why = "an input: everything else in the backward follows from it"
                records[tensor.name] = Saved(name=tensor.name, role=role, why=why)
            produced |= {
                w.tensor for w in (*step.program.stores, *step.program.accumulates, *step.program.scatters)
            }
        return list(records.values())

    # --- formulas ---

    def _formulas(self, named: dict[int, str]) -> FormulaText:
        return FormulaText(self.graph.nodes, {t: t for t in self.graph.tensors}, named)

    def _written_out(self, formula: FormulaText, value: Value) -> str:
        return _short(", ".join(formula.write(n).text for n in dict.fromkeys(value.elements.values())))

    def _forward_formula(self) -> str:
        if self.traced.op.summary:
            return self.traced.op.summary
        formula = self._formulas({})
        return "; ".join(f"{name} = {self._written_out(formula, v)}" for name, v in self.outputs.items())

    def _gradient_formulas(self) -> dict[str, str]:
        formula = self._formulas(self.statistics)
        return {name: self._written_out(formula, v) for name, v in self.gradients.items()}

    def _definitions(self) -> dict[str, str]:
        """Saved statistics that the gradients' formulas name."""
        result: dict[str, str] = {}
        for node, name in self.statistics.items():
            others = {n: t for n, t in self.statistics.items() if n != node}
            result[name] = _short(self._formulas(others).write(node).text)
        return result

    # --- numbers ---

    def _tier(self) -> Literal[1, 2, 3]:
        kernels = [s for s in (*self.forward, *self.backward) if s.schedule]
        if len(self.outputs) > 1 or len(kernels) > 2:
            return 3
        reduces = any(isinstance(n, Reduce | Scan) for s in kernels for n in s.program.nodes)
        return 2 if reduces else 1

    def _precision(self) -> tuple[str, ...]:
        found: dict[str, None] = {}
        for program in self._programs():
            for node in program.nodes:
                if isinstance(node, Map) and FUNCTIONS[node.fn].transcendental:
                    found[node.fn] = None
                if isinstance(node, Reduce):
                    found[f"{node.fn} over {' and '.join(node.axes)}"] = None
            for write in program.accumulates:
                found[f"sum over rows for {write.tensor}"] = None
        return tuple(found)

    def _recomputed(self) -> tuple[str, ...]:
        def functions(steps: tuple[Step, ...]) -> set[str]:
            return {
                n.fn
                for s in steps
                for n in s.program.nodes
                if isinstance(n, Map) and (FUNCTIONS[n.fn].transcendental or n.fn in ("maximum", "minimum"))
            }

        return tuple(sorted(functions(self.forward) & functions(self.backward)))

    def _traffic(self) -> Traffic:
        """Full tensors moved; a packed tensor of k parts counts once for each part that is touched."""
        eager_forward, eager_backward, eager_temporaries = eager_traffic(self.traced)
        full = "full"
        inputs = sum(1 for t in self.traced.op.tensors if self._operand(t.name).role == full)
        outputs = sum(1 for t in self._written("output") if self._role(frozenset(t.axes)) == full)
        gradients = sum(1 for t in self._written("gradient") if self._role(frozenset(t.axes)) == full)
        # With the gradient there already, a backward for 1 finds nothing to do.
        backward = [s for s in self.backward if s.schedule and not self.gradient_in_forward]
        # At the end of the backward inputs, results, incoming gradients and gradients are alive.
        alive = inputs + 2 * outputs + gradients
        return Traffic(
            forward_tensors=sum(full_tensors_moved(s.program) for s in self.forward if s.schedule),
            backward_tensors=sum(full_tensors_moved(s.program) for s in backward),
            eager_forward_tensors=eager_forward,
            eager_backward_tensors=eager_backward,
            forward_per_row_bytes=sum(_row_bytes(s.program) for s in self.forward if s.schedule),
            backward_per_row_bytes=sum(_row_bytes(s.program) for s in backward),
            transcendentals_forward=sum(_transcendentals(s.program) for s in self.forward),
            transcendentals_backward=sum(_transcendentals(s.program) for s in backward),
            peak_tensors=alive,
            eager_peak_tensors=max(alive, inputs + 2 * outputs + eager_temporaries),
        )


def _main(steps: tuple[Step, ...]) -> tuple[RowProgram, KernelSchedule]:
    """The kernel that moves most."""
    kernels = [(s.program, s.schedule) for s in steps if s.schedule]
    if not kernels:
        raise Unsupported(
            "nothing is left for a kernel: only small tensors are involved", needed="a full tensor"
        )
    return max(kernels, key=lambda kernel: full_tensors_moved(kernel[0]))


def _row_bytes(program: RowProgram) -> int:
    sizes = {"float": 2, "float32": 4, "int64": 8, "bool": 1}
    return sum(sizes[t.dtype] for t in program.tensors if program.role_of(frozenset(t.axes)) == "row")


def _transcendentals(program: RowProgram) -> int:
    axes = program.node_axes()
    return sum(
        1
        for i, n in enumerate(program.nodes)
        if isinstance(n, Map) and FUNCTIONS[n.fn].transcendental and program.role_of(axes[i]) == "full"
    )


def _short(text: str) -> str:
    """Formulas beyond a few lines help nobody: the kernel's own lines say it better."""
    return text if "…" not in text and len(text) <= LONGEST_FORMULA else "see the kernel, line by line"
