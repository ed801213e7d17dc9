"""Outputs are poisoned before the run and stand between guard bands.

Sakana's CUDA engineer and Wafer's 104.9x case: results read from memory that the kernel never wrote. An unmasked store
past the end corrupted the heap in this project's own prototype. Unwritten elements show as NaN in every other family.
"""

from __future__ import annotations

from collections.abc import Sequence

from runners.checks.family import Family, Judged


def inspect(judged: Sequence[Judged]) -> list[str]:
    problems = []
    for each in judged:
        broken = sum(run["broken_guards"] for run in each.runs)
        if broken:
            problems.append(f"{each.case.id}: {broken} elements outside an allocation were overwritten")
        subclass = any(
            not result["plain"]
            for run in each.runs
            for result in [*run["outputs"], *filter(None, run["gradients"].values())]
        )
        if subclass:
            problems.append(f"{each.case.id}: a result is a tensor subclass, not a plain tensor")
    return problems


FAMILY = Family(
    "poison", "nothing outside an allocation is written, results are plain tensors", inspect_all=inspect
)
