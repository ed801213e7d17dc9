"""The work is done by the candidate's kernels.

Kevin, KernelBench: a "kernel" that calls ATen, or launches a dummy while torch computes. FlagOS' ghost replay is the
test: with the kernels replaced by no-ops, results must no longer be right. ATen may allocate, reshape, copy and add up
partial sums; it may not compute on full tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import prod

from runners.checks.family import Family, Judged
from runners.gauntlet.builder import Builder
from runners.gauntlet.case import Case, Options
from runners.products import has_product

# What a host wrapper legitimately does on full-size tensors. Everything else on as many elements as the op has is work.
HOST_OPERATIONS = frozenset(
    "empty empty_like empty_strided new_empty new_empty_strided new_zeros zeros zeros_like zero_ fill_ full full_like clone copy_ "  # noqa: SIM905 - a word list is easier to read
    "_to_copy view _unsafe_view reshape as_strided expand expand_as transpose t permute slice select squeeze unsqueeze detach "
    "alias contiguous resize_ set_ split split_with_sizes chunk unbind cat stack new_full lift_fresh narrow "
    "ne eq ones ones_like".split()
)


# What is left to torch around a reference's matrix products: adding them up, and a number that is multiplied in. All else is
# the kernels' work at any size, because a chunk of rows may be smaller than the weight.
PRODUCT_OPERATIONS = frozenset({"mm", "addmm", "add", "add_", "sum"})
BY_A_NUMBER = frozenset({"mul", "mul_", "div", "div_"})


def cases(builder: Builder) -> Iterator[Callable[[], Case]]:
    options = Options(record_aten=True, products=has_product(builder.op.source))
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
    products = each.case.options.products
    full = 2 if products else max((prod(placed.shape) for placed in each.case.tensors), default=0)
    computed = sorted(
        {
            name
            for name, numel, least in run["operations"]
            if numel >= full and not _allowed(_operation(name), least, products=products)
        }
    )
    if computed:
        tensors = "more than a number" if products else "full tensors"
        problems.append(f"torch computes on {tensors}: {', '.join(computed)}")
    return problems


def _allowed(operation: str, least: int, *, products: bool) -> bool:
    """`least`: elements of the smallest of several operands, 1 where a Python number is one."""
    if operation in HOST_OPERATIONS:
        return True
    return products and (operation in PRODUCT_OPERATIONS or (operation in BY_A_NUMBER and least == 1))


def _operation(name: str) -> str:
    return name.removeprefix("aten.").split(".")[0]


FAMILY = Family(
    "kernel_work",
    "the work is done by the candidate's kernels",
    cases,
    inspect=inspect,
    numbers="none",
    essential=True,
)
