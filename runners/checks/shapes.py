"""Odd, one-row, one-column, wide, empty and one-dimensional shapes.

fla#1134: one load without a mask; every width that is not a power of two read garbage and became NaN. Empty batches
reach kernels from mixture-of-experts routing and crash a launch with a grid of zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from runners.checks.family import Family
from runners.gauntlet.builder import Builder
from runners.gauntlet.case import Case

SHAPES: dict[str, tuple[tuple[int, ...], int]] = {
    "one row": ((1,), 257),
    "one column": ((4, 2), 1),
    "odd": ((3, 7), 31),
    "prime": ((2, 3), 1021),
    "power of two": ((4,), 1024),
    "just past a power of two": ((2,), 4097),
    "one dimension": ((), 100),
    "four dimensions": ((2, 1, 3), 7),
    "many rows": ((300,), 16),
    "wide": ((2,), 20000),
    "no rows": ((0,), 64),
    "no rows, three dimensions": ((2, 0), 64),
}


def cases(builder: Builder) -> Iterator[Callable[[], Case]]:
    for name, (rows, cols) in SHAPES.items():
        yield partial(builder.case, "shapes", name, rows=rows, cols=cols)


FAMILY = Family("shapes", "odd, single, wide and empty shapes", cases, essential=True)
