"""Two programs of one launch never store to the same address.

Accumulating a weight's gradient with load, add, store from every row works on a quiet GPU and loses updates on a busy one;
in an interpreter, which runs programs in order, it always works. So the addresses are compared, not the values; only the
interpreter sees them. Atomics
are exempt: their order shows in `determinism`.
"""

from __future__ import annotations

from collections.abc import Sequence

from runners.checks.family import Family, Judged


def inspect(judged: Sequence[Judged]) -> list[str]:
    problems = []
    for each in judged:
        for run in each.runs:
            problems += [
                f"{each.case.id}: programs of {name} store to {count} addresses of each other"
                for name, count in run["races"].items()
            ]
    return problems


FAMILY = Family(
    "races", "no two programs store to one address", inspect_all=inspect, only_on="the interpreter"
)
