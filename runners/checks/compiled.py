"""Under torch.compile with fullgraph=True, on a GPU.

Liger#871, #884: torch.compile made n_cols a constexpr and `.to()` on it failed; Liger#1350 to #1366: it passes Python
floats as fp64, and whole kernels ran in double precision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from runners.checks.family import Family
from runners.gauntlet.builder import Builder
from runners.gauntlet.case import Case, Options


def cases(builder: Builder) -> Iterator[Callable[[], Case]]:
    for dtype in ("float32", "bfloat16"):
        yield partial(
            builder.case,
            "compiled",
            dtype,
            rows=(4, 8),
            cols=512,
            dtype=dtype,
            options=Options(compiled=True),
        )


FAMILY = Family("compiled", "torch.compile with fullgraph", cases, only_on="a GPU")
