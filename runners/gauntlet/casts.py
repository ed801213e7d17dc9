"""The reference with its own casts kept and everything else exact: what tells one casting mode from another.

A cast that a reference writes changes its result on purpose (Llama multiplies the weight after the downcast, Gemma before
it). Against the plain float64 truth both look right, within an ulp or two; here the cast is made at its place, nothing
else is rounded, and a right kernel then agrees with it bit for bit almost everywhere.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

from runners.gauntlet.case import DTYPES, Case
from runners.gauntlet.truth import LOW, Reference, Results, sizes_of

# Below this share of changed elements a cast makes no difference that could be tested.
TELLING = 0.05
# A right kernel differs only where fp32 falls on the other side of a rounding boundary; a wrong casting mode differs in
# `changed` of the elements. A quarter of that separates the two with room on both sides.
ALLOWED_SHARE = 0.25


class Exact(torch.Tensor):
    """A tensor that claims a dtype and holds float64. Only an explicit cast rounds it."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor, claimed: torch.dtype) -> Exact:
        made = torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), dtype=claimed, device=inner.device
        )
        made.held = inner
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl  # pyright: ignore[reportAssignmentType]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        claimed = pytree.tree_map_only(
            Exact,
            lambda t: torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta"),
            (args, kwargs),
        )
        claimed = pytree.tree_map_only(torch.Tensor, lambda t: t if t.is_meta else t.to("meta"), claimed)
        inner_args, inner_kwargs = pytree.tree_map_only(Exact, lambda t: t.held, (args, kwargs))
        if inner_kwargs.get("dtype") in LOW:
            inner_kwargs = {**inner_kwargs, "dtype": torch.float64}
        result = func(*inner_args, **inner_kwargs)
        if func is torch.ops.aten._to_copy.default and kwargs.get("dtype") in LOW:
            result = result.to(kwargs["dtype"]).double()
        shapes = func(*claimed[0], **claimed[1])
        return pytree.tree_map(
            lambda r, s: cls(r, s.dtype) if isinstance(r, torch.Tensor) and r.is_floating_point() else r,
            result,
            shapes,
        )


def with_casts(reference: Reference, case: Case) -> list[torch.Tensor]:
    """Outputs of the reference with its casts kept, rounded once at the end as a store does."""
    tensors = {}
    for placed in case.tensors:
        value = case.values[placed.name]
        tensors[placed.name] = Exact(value.double(), value.dtype) if value.is_floating_point() else value
    with torch.no_grad():
        outputs = reference.run(tensors, case.scalars, sizes_of(reference.op, case.values))
    return [output.held.to(output.dtype) if isinstance(output, Exact) else output for output in outputs]


def changed_share(reference: Reference, case: Case, truth: Results) -> float:
    """The share of elements whose rounded value the reference's own casts change."""
    kept = with_casts(reference, case)
    return max(
        (
            float(_differ(k, t.to(k.dtype)).double().mean())
            for k, t in zip(kept, truth.outputs, strict=True)
            if k.numel()
        ),
        default=0.0,
    )


def _differ(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return (one != other) & ~(one.isnan() & other.isnan())


def cast_problems(reference: Reference, case: Case, results: Results, truth: Results) -> list[str]:
    """Whether a candidate's outputs follow the reference's casts."""
    changed = changed_share(reference, case, truth)
    problems = []
    for mine, kept in zip(results.outputs, with_casts(reference, case), strict=False):
        if mine.shape != kept.shape or mine.dtype not in (DTYPES[case.dtype], kept.dtype) or not kept.numel():
            continue
        differing = float(_differ(mine, kept.to(mine.dtype)).double().mean())
        if differing > ALLOWED_SHARE * changed:
            problems.append(
                f"{differing:.0%} of the elements differ from the reference with its casts kept; without its casts {changed:.0%} would: the casting mode is another"
            )
    return problems
