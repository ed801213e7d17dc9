"""NaN, infinities, and values at the ends of the range.

Liger#1313: a NaN in RoPE was found only after an upgrade, because NaN == NaN passed. `tl.maximum(x, 0)` turns NaN into 0
where torch keeps it: a diverging run then looks healthy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import torch

from runners.checks.family import Family
from runners.gauntlet.builder import Builder, normal
from runners.gauntlet.case import Case


def _with(specials: list[float], shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    values = normal(shape, generator)
    flat = values.view(-1)
    for position, special in enumerate(specials):
        if flat.numel():
            flat[(7 * position + 3) % flat.numel()] = special
    return values


def _scaled(scale: float, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    return normal(shape, generator) * scale


def cases(builder: Builder) -> Iterator[Callable[[], Case]]:
    specials = {"nan": [math.nan], "inf": [math.inf, -math.inf], "zeros": [0.0, -0.0]}
    for name, values in specials.items():
        for dtype in ("float32", "bfloat16"):
            yield partial(
                builder.case,
                "nonfinite",
                f"{name} {dtype}",
                rows=(4,),
                cols=33,
                dtype=dtype,
                values=partial(_with, values),
            )
    yield partial(
        builder.case,
        "nonfinite",
        "nan gradient",
        rows=(4,),
        cols=33,
        gradient_values=partial(_with, [math.nan]),
    )
    for scale in (30.0, 1e4, 1e-4, 1e-20):
        yield partial(
            builder.case,
            "nonfinite",
            f"values near {scale:g}",
            rows=(4,),
            cols=33,
            values=partial(_scaled, scale),
        )


FAMILY = Family("nonfinite", "NaN, infinities, large and tiny values", cases)
