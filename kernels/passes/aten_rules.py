"""Where the ATen rules register: operation name -> how it becomes named-axis values. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernels.passes.lower import Lowering
    from kernels.passes.values import Value
    from kernels.traced import TracedNode

Rule = Callable[["Lowering", "TracedNode"], "Value | tuple[Value | None, ...] | None"]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a function for operations named without "aten."."""

    def register(function: Rule) -> Rule:
        for name in names:
            RULES[name if name == "getitem" else f"aten.{name}"] = function
        return function

    return register
