"""Inputs and incoming gradients are bit for bit what they were.

Liger#370, #376: RMSNorm's backward wrote dX into dY, which a residual branch still needed: Gemma 2 diverged. Liger#1305:
tests passed vacuously because the clobbered tensor was also the expectation.
"""

from __future__ import annotations

from collections.abc import Sequence

from runners.checks.family import Family, Judged


def inspect(judged: Sequence[Judged]) -> list[str]:
    problems = []
    for each in judged:
        changed = sorted({name for run in each.runs for name in run["changed_inputs"]})
        if changed:
            problems.append(f"{each.case.id}: {', '.join(changed)} changed during the call")
    return problems


FAMILY = Family("inputs_unchanged", "inputs and incoming gradients stay as they were", inspect_all=inspect)
