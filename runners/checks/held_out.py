"""Shapes and values that nobody saw before: drawn from a seed that the candidate's author does not know.

AgentKernelArena: up to 40% of kernels that pass the given shapes fail on others, because shapes were hard-coded. Sakana,
KernelBench: constants and memorised outputs pass a fixed seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial

from runners.checks.family import Family
from runners.gauntlet.builder import Builder
from runners.gauntlet.case import Case


def cases(builder: Builder) -> Iterator[Callable[[], Case]]:
    draw = random.Random(builder.seed)  # noqa: S311 - reproducible from the job's seed, not a secret
    for number in range(4):
        rows = (draw.randint(1, 40),) if number % 2 == 0 else (draw.randint(1, 6), draw.randint(1, 6))
        yield partial(
            builder.case,
            "held_out",
            f"{number}",
            rows=rows,
            cols=draw.randint(2, 3000),
            dtype=draw.choice(builder.dtypes),
        )


FAMILY = Family("held_out", "shapes and values from a held-out seed", cases, essential=True)
