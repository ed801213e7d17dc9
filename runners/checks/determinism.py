"""The same input three times, with different poison around it, gives the same bits.

Wafer's field guide: a kernel that read uninitialised shared memory passed a tolerance because its outputs were tiny; only
a repeated run told. On a GPU this is also where races and unordered atomics show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from runners.checks.family import Family, Judged
from runners.gauntlet.builder import Builder
from runners.gauntlet.case import Case, Options


def cases(builder: Builder) -> Iterator[Callable[[], Case]]:
    rows = (4096,) if builder.gpu else (24,)
    for dtype in ("float32", "bfloat16"):
        yield partial(
            builder.case, "determinism", dtype, rows=rows, cols=129, dtype=dtype, options=Options(repeats=3)
        )


def inspect(judged: Sequence[Judged]) -> list[str]:
    return [
        f"{each.case.id}: three runs on the same input do not agree bit for bit"
        for each in judged
        if any(run.get("differs") for run in each.runs)
    ]


FAMILY = Family("determinism", "three runs agree bit for bit", cases, inspect=inspect)
