"""Every dtype, against the truth and eager's own error in that dtype.

Liger#986: fp16 GEGLU's gradient was off because the backward's recomputation skipped the forward's downcast. Precision
downgrades (KernelBench#155: fp16 arithmetic passing as fp32) fail here too: fp32 is held to a few ulp.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch

from runners.checks.family import Family
from runners.gauntlet.builder import Builder
from runners.gauntlet.case import Case


def _ones(shape: tuple[int, ...], _generator: torch.Generator) -> torch.Tensor:
    return torch.ones(shape)


def cases(builder: Builder) -> Iterator[Callable[[], Case]]:
    for dtype in builder.dtypes:
        yield partial(builder.case, "dtypes", dtype, rows=(5, 7), cols=300, dtype=dtype)
        # Sums over many rows (a weight's gradient) must be accumulated in fp32: Liger#950.
        yield partial(builder.case, "dtypes", f"{dtype}, many rows", rows=(256,), cols=24, dtype=dtype)
        # What loss.backward() gives: a loss may hold the gradient for it ready, written by its forward.
        ones = partial(builder.case, rows=(5, 7), cols=300, dtype=dtype, gradient_values=_ones)
        yield partial(ones, "dtypes", f"{dtype}, an incoming gradient of ones")


FAMILY = Family("dtypes", "fp32, bf16 and fp16 against the truth", cases, essential=True)
