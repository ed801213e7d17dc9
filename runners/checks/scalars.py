"""Every scalar parameter, at another value than its default, is still right.

Liger#974: ignore_index was accepted but unused. Liger#198, #243: label_smoothing was not forwarded. A value baked into a
kernel gives the default's answer for every other value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch

from runners.checks.family import Family
from runners.gauntlet.builder import Builder, Refused
from runners.gauntlet.case import Case

FACTORS = (0.625, 1.75, 1e2, 1e4, 1e6)
TELLING = 0.02  # relative change of the output: below it, a baked-in default could pass for rounding


def cases(builder: Builder) -> Iterator[Callable[[], Case]]:
    for scalar in builder.op.scalars:
        # A constexpr scalar may be built in: then another value is another kernel. Integers and flags change structure.
        if isinstance(scalar.default, float) and not scalar.constexpr:
            yield partial(_telling_case, builder, scalar.name, scalar.default)


def _telling_case(builder: Builder, name: str, default: float) -> Case:
    """A case whose result another value of the scalar changes visibly: an eps of 1e-6 does not show, one of 0.01 does."""
    usual = builder.case("scalars", f"{name}", rows=(4,), cols=65)
    before = builder.reference.results(usual, torch.float64).outputs
    for factor in FACTORS:
        other = default * factor if default else 0.3125 * factor
        case = builder.case("scalars", f"{name} = {other:g}", rows=(4,), cols=65, scalars={name: other})
        case.values, case.storages = usual.values, usual.storages
        after = builder.reference.results(case, torch.float64).outputs
        change = max(
            float((x - y).abs().max() / (y.abs().max() + 1e-30))
            for x, y in zip(after, before, strict=True)
            if y.numel()
        )
        if change > TELLING:
            return case
    raise Refused(f"no value of {name} that was tried changes the result visibly")


FAMILY = Family(
    "scalars",
    "scalar parameters away from their defaults",
    cases,
    nothing_to_test="this op has no free scalar parameters",
)
