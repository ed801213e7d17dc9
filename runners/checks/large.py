"""More than 2^31 elements, on a GPU.

Liger#803, #804: an illegal access at a million tokens, because program_id * stride was a 32-bit product. Liger#1246, #1248:
the same in the fused MoE, as NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from kernels.random_numbers import draws_uniform
from runners.checks.family import Family
from runners.gauntlet.builder import Builder
from runners.gauntlet.case import Case, Options

COLS = 4096
ROWS = 2**31 // COLS + 3


def cases(builder: Builder) -> Iterator[Callable[[], Case]]:
    boundary = 2**31 // COLS
    sampled = (0, 1, boundary - 1, boundary, boundary + 1, ROWS - 1)
    options = Options(tile_rows=ROWS, sample_rows=sampled)
    full = [spec for spec in builder.op.tensors if "*" in spec.shape]
    # Random numbers follow an element's offset, which repeated rows don't share.
    independent = not draws_uniform(builder.op.source)
    if (
        independent
        and all(spec.shape == ("*", "n_cols") for spec in full)
        and not builder.columns()
        and len(full) <= 3
    ):
        yield partial(
            builder.case,
            "large",
            f"{ROWS} x {COLS} bfloat16",
            rows=(64,),
            cols=COLS,
            dtype="bfloat16",
            options=options,
        )


FAMILY = Family(
    "large",
    "more than 2^31 elements",
    cases,
    only_on="a GPU",
    nothing_to_test="only ops whose rows are independent are tiled this large",
)
