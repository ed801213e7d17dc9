"""Read isomorphic joint graphs into one TracedOp, fitting every number that differs between them. Imports torch."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernels.derivation import Unsupported
from kernels.determined import require_gradient, viewed_input
from kernels.quantity import Quantity, fit
from kernels.roles import Roles
from kernels.traced import (
    Arg,
    Dtype,
    ListArg,
    LiteralArg,
    NodeArg,
    QuantityArg,
    TracedNode,
    TracedOp,
    TracedOutput,
)

SKIPPED = {"aten._assert_tensor_metadata.default", "aten.sym_constrain_range.default"}


class GraphsDiffer(Exception):  # noqa: N818 - internal answer, never shown
    """Two traces of one reference are not isomorphic, or a number has no closed form."""


@dataclass
class Exported:
    """One joint graph and how its outputs are to be read."""

    graph: torch.fx.Graph
    n_outputs: int
    differentiable: list[str]  # inputs whose gradient was asked for, in order


def require_isomorphic(one: Exported, other: Exported) -> None:
    nodes, others = list(one.graph.nodes), list(other.graph.nodes)
    if len(nodes) != len(others):
        raise GraphsDiffer(f"{len(nodes)} operations at one size, {len(others)} at another")
    names = {n.name: i for i, n in enumerate(nodes)}
    other_names = {n.name: i for i, n in enumerate(others)}
    for a, b in zip(nodes, others, strict=True):
        if a.op != b.op or str(a.target) != str(b.target):
            raise GraphsDiffer(f"{a.target} at one size, {b.target} at another")
        if [names[x.name] for x in a.all_input_nodes] != [other_names[x.name] for x in b.all_input_nodes]:
            raise GraphsDiffer(f"{a.target} reads other values at another size")


class GraphReader:
    """Reads isomorphic graphs into one TracedOp, fitting every number that differs between them."""

    def __init__(
        self,
        graphs: Sequence[Exported],
        numbers: Sequence[Mapping[str, float]],
        axes: Sequence[str],
        fixed: Mapping[str, str],
    ):
        self.graphs, self.numbers, self.axes, self.fixed = graphs, numbers, axes, dict(fixed)
        self.ids: list[dict[Any, int]] = [{} for _ in graphs]
        self.fitted: dict[str, str] = {}
        self.first_sequence: int | None = None

    def read(self, roles: Roles, multiples: Mapping[str, int], tied: Mapping[str, str]) -> TracedOp:
        nodes: list[TracedNode] = []
        outputs: list[TracedOutput] = []
        gradients: list[TracedOutput] = []
        inputs = iter(roles.op.tensors)
        tangents = 0
        results = list(self.graphs[0].graph.nodes)[-1].args[0][: self.graphs[0].n_outputs]
        differentiable = [i for i, r in enumerate(results) if r.meta["val"].is_floating_point()]
        for group in zip(*(g.graph.nodes for g in self.graphs), strict=True):
            first = group[0]
            target = str(first.target)
            if first.op == "output":
                values = first.args[0]
                refs = [None if v is None else self.ids[0][v] for v in values]
                n = self.graphs[0].n_outputs
                outputs = [TracedOutput(name=str(i), node=r) for i, r in enumerate(refs[:n])]
                by_name = dict(zip(self._grad_names(roles), refs[n:], strict=False))
                gradients = [
                    TracedOutput(name=t.name, node=by_name.get(t.name))
                    for t in roles.op.tensors
                    if t.needs_grad
                ]
                continue
            if target in SKIPPED:
                continue
            if first.op == "get_attr":
                raise Unsupported(
                    "the reference uses a tensor that isn't one of its arguments",
                    node=target,
                    where=_where(first),
                    needed="constants written as numbers, or passed as arguments",
                )
            name = ""
            op = _op_name(first)
            if first.op == "placeholder":
                if target.startswith("tangents"):
                    op, name, tangents = "tangent", str(differentiable[tangents]), tangents + 1
                else:
                    op, name = "input", next(inputs).name
            node = TracedNode(
                id=len(nodes),
                op=op,
                args=tuple(self._arg([g.args[i] for g in group]) for i in range(len(first.args))),
                kwargs={
                    k: self._arg([g.kwargs[k] for g in group])
                    for k in first.kwargs
                    if k not in ("device", "layout", "pin_memory", "memory_format", "generator")
                },
                dtype=_dtype(first.meta.get("val")),
                shape=self._shape([g.meta.get("val") for g in group]),
                backward=first.meta.get("partitioner_tag") == "is_backward",
                line=_line(first),
                sequence=self._sequence(first),
                user_cast=target == "aten._to_copy.default"
                and first.meta.get("partitioner_tag") == "is_forward",
                name=name,
            )
            for ids, member in zip(self.ids, group, strict=True):
                ids[member] = node.id
            nodes.append(node)
        questions = (*roles.questions, *self._fixed_questions(roles), *self._result_questions(roles))
        sizes = {axis: multiples.get(axis, 1) for axis in self.axes if axis not in tied.values()}
        return TracedOp(
            op=roles.op,
            nodes=tuple(nodes),
            outputs=tuple(outputs),
            gradients=tuple(gradients),
            axes=sizes,
            fixed=self.fixed,
            tied=dict(tied),
            questions=questions,
            notes=tuple(f"{value} was fitted to {text}" for value, text in sorted(self.fitted.items())),
        )

    def _sequence(self, node: torch.fx.Node) -> int | None:
        """Autograd's number of the operation, counted from the first of this graph: its counter goes on between traces."""
        number = node.meta.get("seq_nr")
        if number is None:
            return None
        self.first_sequence = number if self.first_sequence is None else self.first_sequence
        return number - self.first_sequence

    def _grad_names(self, roles: Roles) -> list[str]:
        """The exporter returns one gradient an input, None where none was asked for."""
        n = len(roles.op.tensors)
        values = list(self.graphs[0].graph.nodes)[-1].args[0][self.graphs[0].n_outputs :]
        return [t.name for t in roles.op.tensors] if len(values) == n else self.graphs[0].differentiable

    def _fixed_questions(self, roles: Roles) -> list[str]:
        declared = {s.name for s in roles.op.scalars if s.constexpr}
        return [
            f"{name} is built into the kernel as {value}: its value changes the graph."
            for name, value in self.fixed.items()
            if name not in declared
        ]

    def _result_questions(self, roles: Roles) -> list[str]:
        """What a kernel does otherwise than the reference: a view becomes a new tensor, a dead gradient is not written."""
        first = self.graphs[0]
        values = list(list(first.graph.nodes)[-1].args[0])
        results, rest = values[: first.n_outputs], values[first.n_outputs :]
        questions: list[str] = []
        inputs = {n.name: t.name for n, t in zip(_inputs(first.graph), roles.op.tensors, strict=True)}
        for position, result in enumerate(results):
            name = inputs.get(viewed_input(result) or "")
            which = "The result" if len(results) == 1 else f"Result {position}"
            if name:
                questions.append(f"{which} is {name} or a view of it: the kernel returns a new tensor.")
        wanted = [t.name for t in roles.op.tensors if t.needs_grad and t.dtype == "float"]
        by_name = dict(zip(self._grad_names(roles), rest, strict=False))
        reached = require_gradient(first.graph, [by_name.get(n) for n in wanted])
        dead = [n for n, reaches in zip(wanted, reached, strict=True) if not reaches]
        return [*questions, *(f"No gradient reaches {n}: the reference gives none, or zeros." for n in dead)]

    def _shape(self, values: Sequence[Any]) -> tuple[Quantity, ...]:
        if not isinstance(values[0], torch.Tensor):
            return ()
        ranks = {v.dim() for v in values}
        if len(ranks) != 1:
            raise GraphsDiffer("a tensor's rank changes with the sizes")
        return tuple(self._fit([int(v.shape[d]) for v in values]) for d in range(values[0].dim()))

    def _fit(self, values: Sequence[float]) -> Quantity:
        quantity = fit(values, self.numbers, self.axes)
        if quantity is None:
            raise GraphsDiffer(f"{values[0]!r} became {values[1:4]!r}")
        return quantity

    def _arg(self, values: Sequence[Any]) -> Arg:
        first = values[0]
        if isinstance(first, torch.fx.Node):
            return NodeArg(id=self.ids[0][first])
        if isinstance(first, list | tuple):
            if len({len(v) for v in values}) != 1:
                raise GraphsDiffer("a list's length changes with the sizes")
            return ListArg(items=tuple(self._arg([v[i] for v in values]) for i in range(len(first))))
        if isinstance(first, torch.dtype):
            return LiteralArg.of(_dtype_name(first))
        if isinstance(first, int | float) and not isinstance(first, bool):
            if all(v == first or (v != v and first != first) for v in values):  # noqa: PLR0124 - nan
                return LiteralArg.of(first)
            quantity = self._fit(values)
            self.fitted[repr(first)] = quantity.text()
            return QuantityArg(quantity=quantity)
        if first is None or isinstance(first, bool | str):
            if any(v != first for v in values):
                raise GraphsDiffer(f"{first!r} became {values[1:]!r}")
            return LiteralArg.of(first)
        if isinstance(first, torch.device | torch.layout | torch.memory_format):
            return LiteralArg.of(None)
        raise Unsupported(f"an argument of type {type(first).__name__} is not understood")


def _inputs(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    return [n for n in graph.nodes if n.op == "placeholder" and not str(n.target).startswith("tangents")]


def _op_name(node: torch.fx.Node) -> str:
    return "getitem" if node.target is operator.getitem else str(node.target)


def _dtype_name(dtype: torch.dtype) -> Dtype:
    names: dict[torch.dtype, Dtype] = {
        torch.bfloat16: "float",
        torch.float32: "float32",
        torch.float64: "float64",
        torch.bool: "bool",
        torch.int64: "int64",
        torch.int32: "int32",
    }
    if dtype not in names:
        raise Unsupported(f"the reference uses {str(dtype).removeprefix('torch.')} values")
    return names[dtype]


def _dtype(value: Any) -> Dtype:
    return _dtype_name(value.dtype) if isinstance(value, torch.Tensor) else "none"


def _line(node: torch.fx.Node) -> int | None:
    stack = node.meta.get("stack_trace") or ""
    digits = stack.removeprefix("line ")
    number = ""
    for char in digits:
        if not char.isdigit():
            break
        number += char
    return int(number) if stack.startswith("line ") and number else None


def _where(node: torch.fx.Node) -> str | None:
    line = _line(node)
    return f"line {line}" if line else None
