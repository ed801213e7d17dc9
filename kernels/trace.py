"""Trace a reference into a TracedOp: differential tracing of the joint forward and backward graph. Imports torch.

The reference is traced several times, with other prime sizes and other scalar values each time. The graphs must be
isomorphic; every number that changed is fitted to a product of sizes and scalars, so that a size baked into a
constant (`math.sqrt(x.shape[-1])`) is found. Run it only in the runner's sandbox: it executes the reference.
"""

from __future__ import annotations

import logging
import operator
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx.traceback as fx_traceback
from torch import nn
from torch._functorch.aot_autograd import aot_export_joint_simple
from torch.overrides import TorchFunctionMode

from kernels.derivation import Unsupported
from kernels.op_spec import OpSpec, ScalarSpec, TensorSpec
from kernels.quantity import Quantity, fit
from kernels.roles import Roles, guess_roles
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

Reference = Callable[..., Any] | type[nn.Module] | nn.Module
Scalars = dict[str, float | int | bool | str]

# Three disjoint sets of primes: sizes are told apart by their factors, and three points fix an exponent.
PRIMES = ((13, 29, 7, 11, 17, 19, 23), (31, 37, 5, 43, 41, 47, 53), (59, 61, 67, 71, 73, 79, 83))
ROWS = "n_rows"  # what "*" is called: the leading axes of every full tensor, flattened
SKIPPED = {"aten._assert_tensor_metadata.default", "aten.sym_constrain_range.default"}


class GraphsDiffer(Exception):  # noqa: N818 - internal answer, never shown
    """Two traces of one reference are not isomorphic, or a number has no closed form."""


@dataclass(frozen=True)
class Environment:
    """One set of axis sizes and scalar values."""

    sizes: dict[str, int]
    scalars: Scalars

    def numbers(self) -> dict[str, float]:
        numeric = {k: float(v) for k, v in self.scalars.items() if not isinstance(v, str | bool)}
        return {**{k: float(v) for k, v in self.sizes.items()}, **numeric}


@dataclass
class Plan:
    """How the axes are sized: multiples, and axes tied to an integer scalar (num_channels to num_groups)."""

    multiples: dict[str, int] = field(default_factory=dict)
    tied: dict[str, str] = field(default_factory=dict)

    def sizes(self, axes: Sequence[str], which: int, scalars: Scalars) -> dict[str, int]:
        result = {}
        for position, axis in enumerate(axes):
            size = PRIMES[which][position] * self.multiples.get(axis, 1)
            if axis in self.tied:
                size *= int(scalars[self.tied[axis]])
            result[axis] = size
        return result


class SourceLines(TorchFunctionMode):
    """Marks every traced operation with the line of the reference that it came from."""

    def __init__(self, filename: str):
        super().__init__()
        self.filename = filename

    def __torch_function__(self, func, types, args=(), kwargs=None):
        frame = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename != self.filename:
            frame = frame.f_back
        if frame is not None:
            fx_traceback.set_stack_trace([f"line {frame.f_lineno}"])
        return func(*args, **(kwargs or {}))


def trace(op: OpSpec, fn_or_module: Reference) -> TracedOp:
    """Trace `fn_or_module` and return its joint graph with the roles in `op` filled in.

    Raises Unsupported when it isn't a differentiable function of its tensors that the tracer can follow.
    """
    last: Unsupported | None = None
    for roles in guess_roles(op, fn_or_module):
        try:
            return _trace_with_roles(roles, fn_or_module)
        except Unsupported as error:
            # With given roles there is one attempt; with guessed ones the first guess explains itself best.
            last = last or error
    raise last or Unsupported("the reference takes no tensors", needed="a function of at least one tensor")


def _trace_with_roles(roles: Roles, reference: Reference) -> TracedOp:
    axes = list(dict.fromkeys(_axis(a) for t in roles.op.tensors for a in t.shape))
    if len(axes) > len(PRIMES[0]):
        raise Unsupported(f"{len(axes)} named axes are too many", needed=f"at most {len(PRIMES[0])} axes")
    first_error: Unsupported | None = None
    for plan in _plans(axes, roles.op.scalars):
        try:
            traced = _trace_with_plan(roles, reference, axes, plan)
            if any("*" in t.shape for t in roles.op.tensors) and not _rows_are_independent(
                roles, reference, axes, plan
            ):
                return _two_dimensional(traced)
            return traced
        except GraphsDiffer as error:
            first_error = first_error or Unsupported(
                f"the reference's graph depends on the sizes in a way with no closed form: {error}",
                needed="a reference that treats every size alike",
            )
        except Unsupported as error:
            first_error = first_error or error
    assert first_error is not None
    raise first_error


def _rows_are_independent(roles: Roles, reference: Reference, axes: list[str], plan: Plan) -> bool:
    """Whether the reference gives the same with two leading dimensions as with one: "*" promises any number."""
    scalars: Scalars = {s.name: s.default for s in roles.op.scalars}
    sizes = plan.sizes(axes, 0, scalars)
    lead = (3, 4)
    sizes[ROWS] = lead[0] * lead[1]
    call = roles.bind(reference, sizes, scalars)
    generator = torch.Generator().manual_seed(1)
    flat = {t.name: _example(t, sizes, generator).detach() for t in roles.op.tensors}
    # Positive, because a logarithm may follow, and spread out, so that means over fewer elements differ.
    flat = {
        n: torch.rand(v.shape, generator=generator) * 3 + 0.1 if v.is_floating_point() else v
        for n, v in flat.items()
    }
    deep = {
        t.name: flat[t.name].reshape(*lead, *flat[t.name].shape[1:])
        if t.shape[:1] == ("*",)
        else flat[t.name]
        for t in roles.op.tensors
    }
    try:
        one, other = call(flat), call(deep)
    except Exception:  # noqa: BLE001 - F.cross_entropy and others take two dimensions only
        return False
    ones, others = (r if isinstance(r, tuple | list) else (r,) for r in (one, other))
    return all(
        a.numel() == b.numel()
        and torch.allclose(a.float().flatten(), b.float().flatten(), rtol=1e-4, atol=1e-5, equal_nan=True)
        for a, b in zip(ones, others, strict=True)
    )


def _two_dimensional(traced: TracedOp) -> TracedOp:
    """Name the rows: the op is defined on (rows, columns) only."""
    tensors = tuple(
        t.model_copy(update={"shape": tuple(ROWS if a == "*" else a for a in t.shape)})
        for t in traced.op.tensors
    )
    question = (
        "The reference takes (rows, columns) only: more leading dimensions would mean something else to it."
    )
    return traced.model_copy(
        update={
            "op": traced.op.model_copy(update={"tensors": tensors}),
            "questions": (*traced.questions, question),
        }
    )


def _axis(axis: str) -> str:
    return ROWS if axis == "*" else axis


def _plans(axes: Sequence[str], scalars: Sequence[ScalarSpec]) -> list[Plan]:
    """Ways to size the axes, simplest first: primes; an even axis; an axis that a scalar divides."""
    plans = [Plan()]
    plans += [Plan(multiples={axis: 2}) for axis in reversed(axes)]
    integers = [s.name for s in scalars if isinstance(s.default, int) and not isinstance(s.default, bool)]
    plans += [Plan(tied={axis: name}) for name in integers for axis in reversed(axes)]
    plans += [Plan(multiples={axis: 2}, tied={axis: name}) for name in integers for axis in reversed(axes)]
    # Halves of a half (partial rotary); after the scalars, because 4 groups would fit a multiple of 4 too.
    plans += [Plan(multiples={axis: 4}) for axis in reversed(axes)]
    return plans


def _perturbed(value: float | int) -> tuple[float | int, float | int]:
    """Two other values of a scalar. Shrinking keeps probabilities in [0, 1] and eps positive."""
    if isinstance(value, int):
        return value + 1, value + 2
    return (value * 0.75, value * 0.625) if value else (0.125, 0.3125)


def _trace_with_plan(roles: Roles, reference: Reference, axes: list[str], plan: Plan) -> TracedOp:
    defaults: Scalars = {s.name: s.default for s in roles.op.scalars}
    base = Environment(plan.sizes(axes, 0, defaults), defaults)
    environments = [base]
    graphs = [_export(roles, reference, base)]
    for which in (1, 2):
        environment = Environment(plan.sizes(axes, which, defaults), defaults)
        environments.append(environment)
        graphs.append(_export(roles, reference, environment))
        _require_isomorphic(graphs[0], graphs[-1])

    fixed: dict[str, str] = {}
    moved_with_axes: list[str] = []
    for scalar in roles.op.scalars:
        if scalar.constexpr or isinstance(scalar.default, str | bool):
            fixed[scalar.name] = repr(scalar.default)
            continue
        extra: list[tuple[Environment, Any]] = []
        try:
            for value in _perturbed(scalar.default):
                scalars = {**defaults, scalar.name: value}
                environment = Environment(plan.sizes(axes, 0, scalars), scalars)
                graph = _export(roles, reference, environment)
                _require_isomorphic(graphs[0], graph)
                extra.append((environment, graph))
        except (GraphsDiffer, Unsupported):
            fixed[scalar.name] = repr(scalar.default)
            continue
        if scalar.name in plan.tied.values():
            moved_with_axes.append(scalar.name)
        environments += [e for e, _ in extra]
        graphs += [g for _, g in extra]

    numbers = [e.numbers() for e in environments]
    for _ in range(len(roles.op.scalars) + 1):
        reader = GraphReader(graphs, numbers, [*axes, *moved_with_axes], fixed)
        traced = reader.read(roles, plan)
        exponents = _exponent_scalars(traced)
        if not exponents:
            return traced
        # x ** p with p a run-time value needs a general pow and loses x*x: one kernel a value instead.
        for name in exponents:
            fixed[name] = repr(defaults[name])
        keep = [i for i, e in enumerate(environments) if all(e.scalars[n] == defaults[n] for n in exponents)]
        environments = [environments[i] for i in keep]
        graphs = [graphs[i] for i in keep]
        numbers = [numbers[i] for i in keep]
    raise AssertionError("every pass fixes at least one scalar")


def _exponent_scalars(traced: TracedOp) -> set[str]:
    scalars = {s.name for s in traced.op.scalars}
    found: set[str] = set()
    for node in traced.nodes:
        if node.op == "aten.pow.Tensor_Scalar" and isinstance(node.args[1], QuantityArg):
            found |= node.args[1].quantity.names & scalars
    return found


# --- one export ------------------------------------------------------------------------------------------------------


@dataclass
class Exported:
    """One joint graph and how its outputs are to be read."""

    graph: torch.fx.Graph
    n_outputs: int
    differentiable: list[str]  # inputs whose gradient was asked for, in order


def _export(roles: Roles, reference: Reference, environment: Environment) -> Exported:
    call = roles.bind(reference, environment.sizes, environment.scalars)
    generator = torch.Generator().manual_seed(0)
    tensors = [_example(spec, environment.sizes, generator) for spec in roles.op.tensors]
    names = [spec.name for spec in roles.op.tensors]
    n_outputs = 0

    def flat(*args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        nonlocal n_outputs
        with SourceLines(call.filename):
            result = call(dict(zip(names, args, strict=True)))
        results = tuple(result) if isinstance(result, tuple | list) else (result,)
        if not results:
            raise Unsupported("the reference returns nothing", needed="a reference that returns a tensor")
        for item in results:
            if not isinstance(item, torch.Tensor):
                raise Unsupported(
                    f"the reference returns {_a(type(item).__name__)}, not a tensor",
                    needed="a reference that returns tensors only",
                )
        if not any(item.is_floating_point() for item in results):
            kind = str(results[0].dtype).removeprefix("torch.")
            raise Unsupported(
                f"the reference returns {kind} values, which have no gradient",
                needed="a floating-point result",
            )
        n_outputs = len(results)
        # An output may be an input or a view of one; the exporter refuses that, and a kernel writes a new tensor anyway.
        return tuple(item.clone() for item in results)

    try:
        with warnings.catch_warnings(), _quiet_logs(), fx_traceback.preserve_node_meta():
            warnings.simplefilter("ignore")
            module = aot_export_joint_simple(flat, tensors, trace_joint=True, decompositions={})
    except Unsupported:
        raise
    except Exception as error:
        raise _explain(error, call.filename) from error
    differentiable = [t.name for t, v in zip(roles.op.tensors, tensors, strict=True) if v.requires_grad]
    return Exported(module.graph, n_outputs, differentiable)


@contextmanager
def _quiet_logs() -> Iterator[None]:
    """A failed attempt is an answer here; torch would log it with a traceback."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)


def _a(word: str) -> str:
    return f"{'an' if word[:1].lower() in 'aeiou' else 'a'} {word}"


def _explain(error: Exception, filename: str) -> Unsupported:
    """A tracing failure in words, with the reference's line when the traceback has one."""
    line, frame = None, error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == filename:
            line = frame.tb_lineno
        frame = frame.tb_next
    where = f"line {line}" if line else None
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if "mutat" in text.lower():
        return Unsupported(
            "the reference changes one of its inputs in place",
            where=where,
            needed="a function that leaves its inputs alone",
        )
    if "convert all Tensors to FakeTensors" in text:
        return Unsupported(
            "the reference uses a tensor that isn't one of its arguments",
            where=where,
            needed="constants written as numbers, or passed as arguments",
        )
    if "data-dependent" in text.lower() or "item()" in text or "DataDependent" in type(error).__name__:
        return Unsupported(
            "the reference's control flow or shapes depend on the data",
            where=where,
            needed="shapes known before the run",
        )
    return Unsupported(f"the reference can't be traced: {type(error).__name__}: {text[:300]}", where=where)


def _example(spec: TensorSpec, sizes: Mapping[str, int], generator: torch.Generator) -> torch.Tensor:
    shape = [sizes[_axis(a)] for a in spec.shape]
    if spec.dtype == "bool":
        return torch.rand(shape, generator=generator) < 0.5
    if spec.dtype == "int64":
        return torch.randint(0, min(sizes.values()), shape, generator=generator)
    # bf16, so that the reference's own casts are visible in the graph.
    value = torch.rand(shape, generator=generator).add_(0.5).to(torch.bfloat16)
    return value.requires_grad_(spec.needs_grad)


# --- isomorphism and reading -----------------------------------------------------------------------------------------


def _require_isomorphic(one: Exported, other: Exported) -> None:
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

    def read(self, roles: Roles, plan: Plan) -> TracedOp:
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
                sequence=first.meta.get("seq_nr"),
                user_cast=target == "aten._to_copy.default"
                and first.meta.get("partitioner_tag") == "is_forward",
                name=name,
            )
            for ids, member in zip(self.ids, group, strict=True):
                ids[member] = node.id
            nodes.append(node)
        sizes = {axis: plan.multiples.get(axis, 1) for axis in self.axes if axis not in plan.tied.values()}
        return TracedOp(
            op=roles.op,
            nodes=tuple(nodes),
            outputs=tuple(outputs),
            gradients=tuple(gradients),
            axes=sizes,
            fixed=self.fixed,
            tied=plan.tied,
            questions=(*roles.questions, *self._fixed_questions(roles)),
            notes=tuple(f"{value} was fitted to {text}" for value, text in sorted(self.fitted.items())),
        )

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
