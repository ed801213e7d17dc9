"""The gauntlet, in the order in which it is reported."""

from __future__ import annotations

from runners.checks import (
    autocast,
    casts,
    compiled,
    determinism,
    dtypes,
    held_out,
    inputs_unchanged,
    kernel_work,
    large,
    mixed_dtypes,
    needs_grad,
    no_grad,
    non_contiguous,
    nonfinite,
    poison,
    races,
    saved_intact,
    scalars,
    shapes,
)  # fmt: skip
from runners.checks.family import Family

FAMILIES: tuple[Family, ...] = (
    shapes.FAMILY, dtypes.FAMILY, casts.FAMILY, mixed_dtypes.FAMILY, non_contiguous.FAMILY, nonfinite.FAMILY, scalars.FAMILY,
    held_out.FAMILY, needs_grad.FAMILY, no_grad.FAMILY, autocast.FAMILY, saved_intact.FAMILY, determinism.FAMILY,
    inputs_unchanged.FAMILY, poison.FAMILY, races.FAMILY, kernel_work.FAMILY, compiled.FAMILY, large.FAMILY,
)  # fmt: skip
