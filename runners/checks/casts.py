"""The reference's own casts are kept, at their place.

Llama's RMSNorm multiplies the weight after the downcast, Gemma's before it: Liger's casting_mode. Several merged models
use one where Hugging Face has the other. A tolerance can't see it, an fp32 convergence test can't either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from runners.checks.family import Family
from runners.gauntlet.builder import Builder
from runners.gauntlet.case import Case
from runners.products import has_product


def cases(builder: Builder) -> Iterator[Callable[[], Case]]:
    if has_product(builder.op.source):
        return  # torch rounds a product where no cast is written: what would be compared bit for bit is its rounding
    for dtype in ("bfloat16", "float16"):
        yield partial(builder.case, "casts", dtype, rows=(8,), cols=256, dtype=dtype, backward=False)


FAMILY = Family(
    "casts",
    "the reference's own casts are kept",
    cases,
    numbers="casts",
    nothing_to_test="the reference writes no cast that changes its result",
)
