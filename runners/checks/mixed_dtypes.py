"""Weights in one dtype and inputs in another.

Liger#305, #501, #603, #640: an fp32 weight with bf16 input raised, or silently computed in the wrong precision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from runners.checks.family import Family
from runners.gauntlet.builder import Builder
from runners.gauntlet.case import Case


def cases(builder: Builder) -> Iterator[Callable[[], Case]]:
    columns = builder.columns()
    full = [spec.name for spec in builder.op.tensors if spec.dtype == "float" and spec.name not in columns]
    if not columns or not full:
        return
    for weight, value in (("float32", "bfloat16"), ("float32", "float16"), ("bfloat16", "float32")):
        dtypes = {**dict.fromkeys(columns, weight), **dict.fromkeys(full, value)}
        # "bfloat16" and "float16" sort before "float32": the lower precision is the case's.
        yield partial(
            builder.case,
            "mixed_dtypes",
            f"{weight} weight, {value} input",
            cols=100,
            dtype=min(weight, value),
            dtypes=dtypes,
        )


FAMILY = Family(
    "mixed_dtypes",
    "weights and inputs of different dtypes",
    cases,
    nothing_to_test="this op has no weights, so only one dtype at a time",
)
