"""Transposed, sliced, padded and expanded inputs and incoming gradients.

unsloth#10617, quack#88: a strided or expanded grad_output was read as if contiguous (the gradient of `.sum()` is expanded).
attorch#14: strides derived by division broke on transposed views.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import get_args

from runners.checks.family import Family
from runners.gauntlet.builder import Builder
from runners.gauntlet.case import Case, Layout


def cases(builder: Builder) -> Iterator[Callable[[], Case]]:
    for layout in get_args(Layout)[1:]:
        yield partial(
            builder.case, "non_contiguous", f"{layout} inputs", rows=(3, 4), cols=21, layouts=layout
        )
        yield partial(
            builder.case, "non_contiguous", f"{layout} gradient", rows=(3, 4), cols=21, gradient_layout=layout
        )
    names = [spec.name for spec in builder.op.tensors if spec.dtype == "float"]
    if len(names) > 1:
        # Only one of several inputs strided: a kernel that passes one stride for all reads the others wrongly.
        for name in names:
            yield partial(
                builder.case,
                "non_contiguous",
                f"{name} alone transposed",
                rows=(4, 3),
                cols=21,
                layouts={name: "transposed"},
            )


FAMILY = Family("non_contiguous", "transposed, strided, padded and expanded tensors", cases)
