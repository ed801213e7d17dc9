"""From a traced joint graph to one expression graph over named axes. Pure.

Views and broadcasts vanish here; ATen operations become the row program's functions (aten_elementwise.py and
aten_activations.py), named-axis rewrites (aten_shapes.py, aten_slices.py, aten_joins.py) and reductions. Casts that the reference doesn't write are
dropped: everything is fp32 and rounded at the store.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kernels.derivation import Unsupported
from kernels.passes.aten import ELEMENTWISE, STRUCTURAL
from kernels.passes.aten_elementwise import num
from kernels.passes.graph import Graph
from kernels.passes.named_axes import NamedAxes, is_number
from kernels.passes.values import Refine, Value, broadcast, coordinates, element
from kernels.quantity import Quantity
from kernels.row_program import Axis, Cast, Tensor
from kernels.traced import Arg, ListArg, LiteralArg, NodeArg, QuantityArg, TracedNode, TracedOp, references

ROWS = "n_rows"
MAX_REFINEMENTS = 12
MALFORMED = (IndexError, KeyError, TypeError, ValueError, ZeroDivisionError, OverflowError)


@dataclass
class Lowered:
    """The joint expression graph: results of the forward and gradients, as values over named axes."""

    graph: Graph
    outputs: dict[str, Value]
    gradients: dict[str, Value]
    casts: list[str] = field(default_factory=list)  # the reference's own casts, one line each
    eager_forward: int = 0  # ATen operations that eager runs as kernels of their own
    eager_backward: int = 0


def lower(traced: TracedOp) -> Lowered:
    """Lower a traced op. Raises Unsupported with the node and its source line."""
    splits: dict[str, tuple[Axis, Axis]] = {}
    for _ in range(MAX_REFINEMENTS):
        try:
            return Lowering(traced, splits).run()
        except Refine as refine:
            splits[refine.axis] = (refine.outer, refine.inner)  # type: ignore[assignment]
    raise Unsupported("the axes are split in more ways than the rules can follow")


def source_line(traced: TracedOp, line: int | None) -> str | None:
    """ "line 4: y = x.sort()", from the reference's source."""
    if line is None:
        return None
    lines = traced.op.source.splitlines()
    return f"line {line}: {lines[line - 1].strip()}" if 0 < line <= len(lines) else f"line {line}"


class Lowering(NamedAxes):
    """One walk over the traced graph with a given table of axis splits."""

    def __init__(self, traced: TracedOp, splits: dict[str, tuple[Axis, Axis]]):
        super().__init__(traced, splits)
        self.values: list[Value | tuple[Value | None, ...] | None] = []
        self.casts: list[str] = []
        for spec in traced.op.tensors:
            dims = tuple(self.primitives(ROWS if a == "*" else a) for a in spec.shape)
            tensor = Tensor(name=spec.name, dims=dims, dtype=spec.dtype, kind="input")
            self.graph.tensors[spec.name] = tensor

    # --- arguments ---

    def shape(self, arg: Arg) -> tuple[Quantity, ...]:
        """The traced shape of a node argument."""
        return self.node(arg).shape

    def node(self, arg: Arg) -> TracedNode:
        """The traced node that an argument refers to."""
        if not isinstance(arg, NodeArg):
            raise Unsupported("a number where a tensor is expected")
        return self.traced.nodes[arg.id]

    @staticmethod
    def items(arg: Arg) -> tuple[Arg, ...]:
        """The items of a list argument; a single argument is a list of one."""
        return arg.items if isinstance(arg, ListArg) else (arg,)

    def value(self, arg: Arg) -> Value:
        """An argument as a value: a node's, or a number."""
        if isinstance(arg, NodeArg):
            found = self.values[arg.id]
            if not isinstance(found, Value):
                raise Unsupported("a result with several parts is used as one tensor")
            return found
        if isinstance(arg, QuantityArg):
            return Value.scalar(self.graph.symbol(arg.quantity))
        if isinstance(arg, LiteralArg) and is_number(arg.value):
            return Value.scalar(self.graph.const(float(arg.value)))  # type: ignore[arg-type]
        raise Unsupported(f"the argument {arg} is not a number")

    @staticmethod
    def literal(arg: Arg) -> float | int | bool | str | None:
        if isinstance(arg, LiteralArg):
            return arg.value
        raise Unsupported("an argument that must be fixed depends on a size or a scalar")

    def quantity(self, arg: Arg) -> Quantity:
        if isinstance(arg, QuantityArg):
            return arg.quantity
        value = self.literal(arg)
        if not is_number(value):
            raise Unsupported(f"{value!r} is not a size")
        return Quantity.number(float(value))  # type: ignore[arg-type]

    def axis_position(self, arg: Arg, rank: int) -> int:
        position = int(self.literal(arg))  # type: ignore[arg-type]
        return position + rank if position < 0 else position

    def numeric(self, quantity: Quantity) -> float:
        return quantity.value(self.env)

    # --- the walk ---

    def run(self) -> Lowered:
        self.values = [None] * len(self.traced.nodes)
        # The forward first: an incoming gradient takes the axes of its result.
        late = self._after_tangents()
        for node in [
            *(n for n in self.traced.nodes if n.id not in late),
            *(self.traced.nodes[i] for i in sorted(late)),
        ]:
            self.graph.line = node.line
            try:
                self.values[node.id] = self._lower(node)
            except Unsupported as error:
                where = error.where or source_line(self.traced, node.line)
                raise Unsupported(
                    error.reason, node=error.node or node.op, where=where, needed=error.needed
                ) from error
            except MALFORMED as error:
                # A trace is a stranger's data: arguments that no ATen operation has end here.
                raise Unsupported(
                    f"the traced arguments of {node.op} are not understood ({type(error).__name__}: {error})",
                    node=node.op,
                    where=source_line(self.traced, node.line),
                ) from error
        outputs = {o.name: self._result(o.node) for o in self.traced.outputs if o.node is not None}
        gradients = {o.name: self._result(o.node) for o in self.traced.gradients if o.node is not None}
        return Lowered(
            graph=self.graph,
            outputs=outputs,
            gradients=gradients,
            casts=self.casts,
            eager_forward=0,
            eager_backward=0,
        )

    def _after_tangents(self) -> set[int]:
        """Incoming gradients and everything that depends on them."""
        late: set[int] = set()
        for node in self.traced.nodes:
            if node.op == "tangent" or any(r in late for r in references(node)):
                late.add(node.id)
        return late

    def _result(self, node: int | None) -> Value:
        value = None if node is None else self.values[node]
        if not isinstance(value, Value):
            raise Unsupported("an output consists of several parts")
        return value

    def _lower(self, node: TracedNode) -> Value | tuple[Value | None, ...] | None:  # type: ignore[type-arg]
        if node.op == "input":
            return self._load(node.name)
        if node.op == "tangent":
            return self._tangent(node)
        if node.op == "aten._to_copy.default":
            return self._cast(node)
        if node.op in ELEMENTWISE:
            return self.elementwise(node)
        if node.op in STRUCTURAL:
            return STRUCTURAL[node.op](self, node)
        raise Unsupported(
            f"{node.op.removeprefix('aten.').split('.')[0]} is outside the rules",
            needed=f"a rule for {node.op}",
        )

    def _load(self, name: str) -> Value:
        dims = self.graph.tensors[name].dims
        return self.load(name, dims)

    def load(self, name: str, dims: tuple[tuple[str, ...], ...]) -> Value:
        """All elements of a tensor, one node for each coordinate on its unrolled axes."""
        names = [a for dim in dims for a in dim if self.graph.axes[a].unroll]
        elements = {
            at: self.graph.load(name, tuple(zip(names, at, strict=True)))
            for at in coordinates(self.graph, dims)
        }
        return Value(dims, elements)

    def _tangent(self, node: TracedNode) -> Value:
        """The incoming gradient has the shape and axes of its result."""
        name = f"tangent_{node.name}"
        result = self._result(self.traced.outputs[int(node.name)].node)
        dims = tuple(
            dim or self.dims_of_size(size) for dim, size in zip(result.dims, node.shape, strict=True)
        )
        self.graph.tensors[name] = Tensor(name=name, dims=dims, dtype="float", kind="tangent")
        return self.load(name, dims)

    def _cast(self, node: TracedNode) -> Value:
        value = self.value(node.args[0])
        if node.user_cast and node.dtype == "float" and self._dtype(node.args[0]) != "float":
            like = self._primary()
            line = source_line(self.traced, node.line)
            if line and line not in self.casts:
                self.casts.append(line)
            return self.per_element(
                [value], lambda a: self.graph.add(Cast(arg=num(self.graph, a), like=like))
            )
        if node.dtype in ("float", "float32", "float64"):
            return self.per_element([value], lambda a: num(self.graph, a))
        if node.dtype == "bool":
            return self.per_element([value], lambda a: self.graph.map("ne", a, self.graph.const(0)))
        return value

    def _dtype(self, arg: Arg) -> str:
        return self.node(arg).dtype

    def _primary(self) -> str:
        """The input whose dtype "the dtype under test" is: the first floating-point one that isn't learnable."""
        floats = [t for t in self.traced.op.tensors if t.dtype == "float"]
        return next((t.name for t in floats if not t.learnable), floats[0].name)

    # --- element-wise ---

    def elementwise(self, node: TracedNode) -> Value:
        rule = ELEMENTWISE[node.op]
        operands: list[Value] = []
        plan: list[int | bool | None] = []  # position among the operands, a literal flag, or nothing
        for arg in node.args:
            if isinstance(arg, LiteralArg) and (arg.type in ("none", "bool") or arg.value is None):
                plan.append(None if arg.value is None else bool(arg.value))
                continue
            if isinstance(arg, NodeArg) and not isinstance(self.values[arg.id], Value):
                plan.append(None)
                continue
            plan.append(len(operands))
            operands.append(self.value(arg))
        flags = [isinstance(a, LiteralArg) and a.type == "bool" for a in node.args]
        kwargs: dict[str, int | str] = {}
        texts: dict[str, str] = {}
        for key, arg in node.kwargs.items():
            if isinstance(arg, LiteralArg) and arg.type == "str":
                texts[key] = str(arg.value)
            elif isinstance(arg, LiteralArg) and arg.value is None:
                continue
            elif key != "dtype":
                kwargs[key] = self.value(arg).node()

        def apply(*nodes: int) -> int:
            args = [p if flag or p is None else nodes[p] for p, flag in zip(plan, flags, strict=True)]
            return rule(self.graph, *args, **kwargs, **texts)

        return self.per_element(operands, apply)

    def per_element(self, operands: list[Value], apply) -> Value:  # type: ignore[no-untyped-def]
        """Apply a function of nodes to aligned values, once for each coordinate on the unrolled axes."""
        dims, aligned = broadcast(self.graph, operands)
        elements = {
            at: apply(*(element(self.graph, v, dims, at) for v in aligned))
            for at in coordinates(self.graph, dims)
        }
        return Value(dims, elements)
