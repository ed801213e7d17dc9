"""All ATen rules: importing this module registers every one of them. Pure."""

from __future__ import annotations

from kernels.passes import (
    aten_activations,
    aten_gathers,
    aten_joins,
    aten_losses,
    aten_norms,
    aten_random,
    aten_reductions,
    aten_shapes,
    aten_slices,
    aten_softmax,
    aten_statistics,
)
from kernels.passes.aten_elementwise import RULES as ELEMENTWISE
from kernels.passes.aten_rules import RULES as STRUCTURAL

__all__ = ["ELEMENTWISE", "MODULES", "STRUCTURAL"]

MODULES = (
    aten_activations,
    aten_gathers,
    aten_joins,
    aten_losses,
    aten_norms,
    aten_random,
    aten_reductions,
    aten_shapes,
    aten_slices,
    aten_softmax,
    aten_statistics,
)
