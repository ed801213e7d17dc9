"""Inside torch.autocast.

Liger#640, LlamaFactory#5583: under autocast weights stay fp32 while activations are bf16, and the call raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from runners.checks.family import Family
from runners.gauntlet.builder import Builder
from runners.gauntlet.case import Case, Options


def cases(builder: Builder) -> Iterator[Callable[[], Case]]:
    columns = builder.columns()
    full = [spec.name for spec in builder.op.tensors if spec.dtype == "float" and spec.name not in columns]
    dtypes = {**dict.fromkeys(columns, "float32"), **dict.fromkeys(full, "bfloat16")}
    yield partial(
        builder.case,
        "autocast",
        "bf16 activations",
        rows=(4,),
        cols=48,
        dtype="bfloat16",
        dtypes=dtypes,
        options=Options(autocast="bfloat16"),
    )
    yield partial(
        builder.case, "autocast", "fp32 activations", rows=(4,), cols=48, options=Options(autocast="bfloat16")
    )


FAMILY = Family("autocast", "inside torch.autocast", cases)
