"""Backward twice gives the same gradients: what was saved is not overwritten.

Liger's SwiGLU before 0.8 wrote the gradients over the saved inputs; a second backward (double use of a graph, activation
checkpointing) then differentiated garbage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from runners.checks.family import Family, Judged
from runners.gauntlet.builder import Builder
from runners.gauntlet.case import Case, Options


def cases(builder: Builder) -> Iterator[Callable[[], Case]]:
    if builder.differentiable():
        for dtype in ("float32", "bfloat16"):
            yield partial(
                builder.case,
                "saved_intact",
                dtype,
                rows=(4, 3),
                cols=65,
                dtype=dtype,
                options=Options(backward_twice=True),
            )


def inspect(judged: Sequence[Judged]) -> list[str]:
    problems = []
    for each in judged:
        for run in each.runs:
            again = run["again"] or {}
            problems += [
                f"{each.case.id}: the gradient of {name} differs the second time"
                for name, same in again.items()
                if same is False
            ]
    return problems


FAMILY = Family("saved_intact", "backward twice gives the same gradients", cases, inspect=inspect)
