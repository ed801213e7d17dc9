"""Every scalar parameter, at another value than its default, is still right.

Liger#974: ignore_index was accepted but unused. Liger#198, #243: label_smoothing was not forwarded. A value baked into a
kernel gives the default's answer for every other value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from runners.checks.family import Family
from runners.gauntlet.builder import Builder
from runners.gauntlet.case import Case


def cases(builder: Builder) -> Iterator[Callable[[], Case]]:
    for scalar in builder.op.scalars:
        # A constexpr scalar may be built in: then another value is another kernel. Integers and flags change structure.
        if isinstance(scalar.default, float) and not scalar.constexpr:
            other = scalar.default * 0.625 if scalar.default else 0.3125
            yield partial(builder.case, "scalars", f"{scalar.name} = {other:g}", rows=(4,), cols=65, scalars={scalar.name: other})


FAMILY = Family("scalars", "scalar parameters away from their defaults", cases, nothing_to_test="this op has no free scalar parameters")
