"""Trace a reference into a TracedOp: differential tracing of the joint forward and backward graph. Imports torch.

The reference is traced several times, with other prime sizes and other scalar values each time. The graphs must be
isomorphic; every number that changed is fitted to a product of sizes and scalars, so that a size baked into a
constant (`math.sqrt(x.shape[-1])`) is found. Run it only in the runner's sandbox: it executes the reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from kernels.derivation import Unsupported
from kernels.export import ROWS, Reference, Scalars, example, export, named_axis
from kernels.graph_reader import GraphReader, GraphsDiffer, require_isomorphic
from kernels.op_spec import OpSpec, ScalarSpec
from kernels.reference_state import remembered, require_unchanged
from kernels.roles import Roles, guess_roles
from kernels.templates.registry import traced_from_template
from kernels.traced import QuantityArg, TracedOp
from kernels.uniform_operation import uniform_as_one_operation

# Three disjoint sets of primes: sizes are told apart by their factors, and three points fix an exponent.
PRIMES = ((13, 29, 7, 11, 17, 19, 23), (31, 37, 5, 43, 41, 47, 53), (59, 61, 67, 71, 73, 79, 83))


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


def trace(op: OpSpec, fn_or_module: Reference) -> TracedOp:
    """Trace `fn_or_module` and return its joint graph with the roles in `op` filled in.

    Raises Unsupported when it isn't a differentiable function of its tensors that the tracer can follow.
    """
    known = traced_from_template(op)
    if known is not None:
        return known
    before = remembered(fn_or_module)
    try:
        return _trace_with_guesses(op, fn_or_module)
    finally:
        # Also after a failure: what it remembers explains why its graphs differ.
        require_unchanged(before, remembered(fn_or_module))


def _trace_with_guesses(op: OpSpec, fn_or_module: Reference) -> TracedOp:
    last: Unsupported | None = None
    for roles in guess_roles(op, fn_or_module):
        try:
            with uniform_as_one_operation(fn_or_module, op.source):
                return _trace_with_roles(roles, fn_or_module)
        except Unsupported as error:
            # With given roles there is one attempt; with guessed ones the first guess explains itself best.
            last = last or error
    raise last or Unsupported("the reference takes no tensors", needed="a function of at least one tensor")


def _trace_with_roles(roles: Roles, reference: Reference) -> TracedOp:
    axes = list(dict.fromkeys(named_axis(a) for t in roles.op.tensors for a in t.shape))
    if len(axes) > len(PRIMES[0]):
        raise Unsupported(f"{len(axes)} named axes are too many", needed=f"at most {len(PRIMES[0])} axes")
    first_error: Unsupported | None = None
    for plan in _plans(axes, roles.op.scalars):
        try:
            traced = _trace_with_plan(roles, reference, axes, plan)
            star = any("*" in t.shape for t in roles.op.tensors)
            independent = not star or _rows_are_independent(roles, reference, axes, plan)
        except GraphsDiffer as error:
            first_error = first_error or Unsupported(
                f"the reference's graph depends on the sizes in a way with no closed form: {error}",
                needed="a reference that treats every size alike: sizes that are products of its axes, and no sum of "
                "different sizes, as a concatenation of unequal pieces is",
            )
        except Unsupported as error:
            first_error = first_error or error
        else:
            return traced if independent else _two_dimensional(traced)
    raise first_error or Unsupported("the reference can't be traced")


def _rows_are_independent(roles: Roles, reference: Reference, axes: list[str], plan: Plan) -> bool:
    """Whether the reference gives the same with two leading dimensions as with one: "*" promises any number."""
    scalars: Scalars = {s.name: s.default for s in roles.op.scalars}
    sizes = plan.sizes(axes, 0, scalars)
    lead = (3, 4)
    sizes[ROWS] = lead[0] * lead[1]
    call = roles.bind(reference, sizes, scalars)
    generator = torch.Generator().manual_seed(1)
    flat = {t.name: example(t, sizes, generator).detach() for t in roles.op.tensors}
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
    graphs = [export(roles, reference, base.sizes, base.scalars)]
    for which in (1, 2):
        environment = Environment(plan.sizes(axes, which, defaults), defaults)
        environments.append(environment)
        graphs.append(export(roles, reference, environment.sizes, environment.scalars))
        require_isomorphic(graphs[0], graphs[-1])

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
                graph = export(roles, reference, environment.sizes, environment.scalars)
                require_isomorphic(graphs[0], graph)
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
        traced = reader.read(roles, plan.multiples, plan.tied)
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
