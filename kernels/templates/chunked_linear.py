"""Linear layers and a loss, chunk of rows by chunk of rows: the logits are never whole in memory. Pure.

The linears are torch's matrix products, and the loss with its gradient is one derived kernel: only what lies between them is
decided here. Numbers that belong to all rows (how many labels count, 1 / n_rows) are computed before the first chunk and
given to the kernel, so that the losses of the chunks add up to the loss.
"""

from __future__ import annotations

from kernels.derivation import ChunkedLoss, Derivation, KernelSchedule, Operand, Rule, Saved, Unsupported
from kernels.deriver import Deriver
from kernels.host_text import HostText
from kernels.op_spec import TensorSpec
from kernels.passes.layout import Layout
from kernels.passes.program import build_program
from kernels.passes.rewrite import reachable, rebuild
from kernels.passes.stages import Target
from kernels.quantity import Quantity
from kernels.row_program import Load, Map, Node, Reduce, Symbol, Tensor
from kernels.templates.linear_cut import Cut
from kernels.templates.template import no_program
from kernels.traced import TracedOp

ROWS = "n_rows"
LINEAR = {"mul", "div"}


def chunked_derivation(traced: TracedOp, cut: Cut) -> Derivation:
    """The derivation of linears and a loss. Raises Unsupported when the loss is no sum over rows, or can't be derived."""
    deriver = ChunkDeriver(cut.loss)
    loss = deriver.run()
    if not loss.gradient_in_forward:
        raise Unsupported(
            "the loss behind a linear layer needs more than one kernel for itself and its gradient",
            needed="a loss that is a sum over rows, each from its own logits",
        )
    chunks = ChunkedLoss(
        loss=loss,
        linears=cut.linears,
        totals=deriver.totals,
        rows=cut.rows,
        rounds=traced.nodes[traced.outputs[0].node or 0].dtype == "float",
    )
    return _record(traced, chunks)


class ChunkDeriver(Deriver):
    """Derives the loss of one chunk: what belongs to all rows is given to it."""

    def __init__(self, traced: TracedOp):
        super().__init__(traced)
        self.totals: dict[str, str] = {}  # name -> torch code over all rows

    def prepare(self) -> None:
        graph, roots = self.graph, self._roots()
        live = reachable(graph, roots)
        scores = {n for n in live if self._is_score(graph.nodes[n])}
        above: set[int] = set()  # what depends on logits or on an incoming gradient
        whole: set[int] = set()  # what belongs to all rows
        rows = {a for a in graph.axes if a == ROWS or a.startswith(f"{ROWS}_")} | set(self._row_axes())
        for node in live:
            found, reads = graph.nodes[node], self._reads(node)
            if node in scores or any(r in above for r in reads):
                above.add(node)
            over_rows = isinstance(found, Reduce) and bool(set(found.axes) & rows)
            sized = isinstance(found, Symbol) and bool(found.quantity.names & rows)
            if node not in above and (over_rows or sized or any(r in whole for r in reads)):
                whole.add(node)
        for value in self.outputs.values():
            for node in value.elements.values():
                if not self._adds_up(node, above, rows):
                    raise Unsupported(
                        "the loss behind a linear layer is no sum over rows", needed="a sum or mean over rows"
                    )
        for value in self.gradients.values():
            for node in reachable(graph, list(value.elements.values())):
                found = graph.nodes[node]
                if node in above and isinstance(found, Reduce) and set(found.axes) & rows:
                    raise Unsupported(
                        "a row's gradient depends on the logits of other rows",
                        needed="a loss whose rows are independent of each other",
                    )
        used = {r for n in live for r in self._reads(n) if n not in whole} | set(roots)
        given = [n for n in sorted(whole) if n in used and not graph.axes_of[n]]
        if len(given) != len([n for n in whole if n in used]):
            raise Unsupported("a sum over rows that is no number is used by every row", needed="one number")
        self._give(given)

    def _forward_targets(self) -> list[Target]:
        # Nothing is saved of a chunk: its gradient is there already.
        return [t for t in super()._forward_targets() if t.tensor.kind != "saved"]

    def _row_axes(self) -> list[str]:
        tensor = next(t for t in self.op.tensors if t.name in {g.name for g in self.traced.gradients})
        return list(self.graph.tensors[tensor.name].dims[0])

    def _is_score(self, node: Node) -> bool:
        names = {t.name for t in self.op.tensors if t.name.startswith("logits")}
        return isinstance(node, Load) and (
            node.tensor in names or self.graph.tensors[node.tensor].kind == "tangent"
        )

    def _reads(self, node: int) -> list[int]:
        return [r for r in reachable(self.graph, [node]) if r != node]

    def _adds_up(self, node: int, above: set[int], rows: set[str]) -> bool:
        """Whether the value for all rows is the sum of the values for chunks of them."""
        found = self.graph.nodes[node]
        if isinstance(found, Reduce):
            return found.fn == "sum" and rows & set(found.axes) == rows & self.graph.axes_of[found.arg]
        if not isinstance(found, Map):
            return False
        if found.fn in ("add", "sub"):
            return all(self._adds_up(a, above, rows) for a in found.args)
        if found.fn == "neg":
            return self._adds_up(found.args[0], above, rows)
        if found.fn in LINEAR:
            one, other = found.args
            if other not in above:
                return self._adds_up(one, above, rows)
            return found.fn == "mul" and one not in above and self._adds_up(other, above, rows)
        return False

    def _give(self, given: list[int]) -> None:
        """Each given node becomes a load of a number, and its text torch code over all rows."""
        graph = self.graph
        loads: dict[int, str] = {}
        for node in given:
            found = graph.nodes[node]
            name = self._free_name("count" if isinstance(found, Reduce) else "factor")
            tensor = Tensor(name=name, dims=(), dtype="float32", kind="input")
            program = build_program(graph, [(tensor, node, ())], Layout((), ()), host=True)
            text, _ = HostText(program, _size, frozenset()).write(program.stores[0].value)
            self.totals[name], loads[node] = text.text, name
            graph.tensors[name] = tensor
            spec = TensorSpec(name=name, shape=(), needs_grad=False)
            self.op = self.op.model_copy(update={"tensors": (*self.op.tensors, spec)})

        def rewrite(g, _node: Node, old: int) -> int | None:  # type: ignore[no-untyped-def]
            return g.load(loads[old]) if old in loads else None

        self.graph, names = rebuild(graph, self._roots(), rewrite)
        self._rename_values(names)
        self.traced = self.traced.model_copy(update={"op": self.op})

    def _free_name(self, base: str) -> str:
        taken = {t.name for t in self.op.tensors} | {s.name for s in self.op.scalars}
        name, count = base, 2
        while name in taken:
            name, count = f"{base}_{count}", count + 1
        return name


def _size(quantity: Quantity) -> str:
    return quantity.text()


def _record(traced: TracedOp, chunks: ChunkedLoss) -> Derivation:
    op, loss = traced.op, chunks.loss
    upstream = {linear.logits: f"d{linear.logits}" for linear in chunks.linears}
    formulas: dict[str, str] = {}
    wanted = {t.name for t in op.tensors if t.needs_grad and t.dtype == "float"}
    for linear in chunks.linears:
        d = upstream[linear.logits]
        formulas[linear.x] = f"{d} @ {linear.weight}"
        formulas[linear.weight] = f"sum over chunks of {d}.T @ {linear.x}"
        if linear.bias:
            formulas[linear.bias] = f"sum over rows of {d}"
    products = ", ".join(
        f"{n.logits} = {n.x} @ {n.weight}.T" + (f" + {n.bias}" if n.bias else "") for n in chunks.linears
    )
    definitions = {upstream[name]: text for name, text in loss.gradient_formulas.items()}
    operands = [
        Operand(
            name=t.name,
            role="full" if len(t.shape) > 1 else "row" if chunks.rows in t.shape else "column",
            shape=f"({', '.join(t.shape)})",
            dtype="same as input" if t.dtype == "float" else t.dtype,
        )
        for t in op.tensors
    ]
    output = loss.outputs[0].model_copy(update={"dtype": "same as input" if chunks.rounds else "float32"})
    width = next(t.shape[-1] for t in op.tensors if t.name == chunks.linears[0].x)
    memory = (
        f"At the peak a chunk of logits and its gradient are in memory, next_power_of_2({width} / 4) rows of them (in bfloat16 "
        "a quarter of the weight's fp32 gradient, which is there too, with one product of its size); never all rows' logits."
    )
    backward = KernelSchedule(
        name="template",
        why="the gradients are there since the forward, for an incoming gradient of 1: they are multiplied by it",
        live_vectors=0,
        block_size="torch's",
        num_warps="torch's",
        grid="no kernel of its own",
    )
    moved = loss.traffic
    return Derivation(
        op=op,
        tier=3,
        inputs=tuple(operands),
        outputs=(output,),
        forward_formula=op.summary or f"{products}; {loss.forward_formula}",
        gradient_formulas={n: f for n, f in formulas.items() if n in wanted},
        definitions=definitions | loss.definitions,
        precision_sensitive=(*loss.precision_sensitive, "sum over chunks of the weight's gradient"),
        casts_kept=loss.casts_kept,
        saved=tuple(
            Saved(name=f"d{n}", role="full", why="the gradient itself, for an incoming gradient of 1")
            for n in formulas
            if n in wanted
        ),
        rules=(
            *loss.rules,
            Rule(
                rule="chunked linear",
                note=f"{products}: by chunks of rows, each with the loss's kernel, which writes the gradient too",
            ),
        ),
        # The full tensor is the logits: written by the product, read and its gradient written by the kernel, read twice.
        traffic=moved.model_copy(
            update={
                "forward_tensors": moved.forward_tensors + 3 * len(chunks.linears),
                "eager_forward_tensors": moved.eager_forward_tensors + len(chunks.linears),
                "eager_backward_tensors": moved.eager_backward_tensors + 2 * len(chunks.linears),
            }
        ),
        forward_schedule=loss.forward_schedule,
        backward_schedule=backward,
        forward=loss.forward,
        backward=no_program(),
        gradient_in_forward=False,
        template="chunked_linear",
        chunks=chunks,
        warnings=(
            *loss.warnings,
            memory,
        ),
    )
