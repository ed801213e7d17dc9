"""The work is done by the candidate's kernels.

Kevin, KernelBench: a "kernel" that calls ATen, or launches a dummy while torch computes. FlagOS' ghost replay is the
test: with the kernels replaced by no-ops, results must no longer be right. ATen may allocate, reshape, copy and add up
partial sums; it may not compute on full tensors.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import prod

from runners.checks.family import Family, Judged
from runners.gauntlet.builder import Builder
from runners.gauntlet.case import Case, Options

# What a host wrapper legitimately does on full-size tensors. Everything else on as many elements as the op has is work.
HOST_OPERATIONS = frozenset(
    "empty empty_like empty_strided new_empty new_empty_strided new_zeros zeros zeros_like zero_ fill_ full full_like clone copy_ "  # noqa: SIM905 - a word list is easier to read
    "_to_copy view _unsafe_view reshape as_strided expand expand_as transpose t permute slice select squeeze unsqueeze detach "
    "alias contiguous resize_ set_ split split_with_sizes chunk unbind cat stack new_full lift_fresh narrow "
    "ne eq ones ones_like".split()
)


# What is left to torch around a reference's matrix products; exp, log and sums over a row stay the kernels' work.
PRODUCT_OPERATIONS = frozenset({"mm", "addmm", "add", "add_", "mul"})


def cases(builder: Builder) -> Iterator[Callable[[], Case]]:
    options = Options(record_aten=True, products=_has_product(builder.op.source))
    yield partial(builder.case, "kernel_work", "recorded", rows=(5, 3), cols=200, options=options)
    yield partial(builder.case, "kernel_work", "ghost", rows=(5, 3), cols=200, options=Options(ghost=True))


def inspect(judged: Sequence[Judged]) -> list[str]:
    problems = []
    for each in judged:
        if each.case.options.record_aten:
            problems += [problem for run in each.runs for problem in _recorded(each, run)]
        for run in each.runs:
            problems += run.get("ghost_problems", [])
    return problems


def _recorded(each: Judged, run: dict) -> list[str]:
    problems = []
    if not run["launches_forward"]:
        problems.append("the forward launches none of its kernels")
    # No demand that the backward launches one: a loss whose gradient was computed in the forward only scales it there.
    full = max((prod(placed.shape) for placed in each.case.tensors), default=0)
    allowed = HOST_OPERATIONS | (PRODUCT_OPERATIONS if each.case.options.products else frozenset())
    computed = sorted(
        {name for name, numel in run["operations"] if numel >= full and _operation(name) not in allowed}
    )
    if computed:
        problems.append(f"torch computes on full tensors: {', '.join(computed)}")
    return problems


def _has_product(source: str) -> bool:
    """Whether a reference multiplies matrices, by its text."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            return True
        if isinstance(node, ast.Attribute) and node.attr in {"linear", "matmul", "mm", "addmm"}:
            return True
    return False


def _operation(name: str) -> str:
    return name.removeprefix("aten.").split(".")[0]


FAMILY = Family(
    "kernel_work", "the work is done by the candidate's kernels", cases, inspect=inspect, numbers="none"
)
