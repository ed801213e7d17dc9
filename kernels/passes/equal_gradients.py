"""Gradients that are the same values are written once and returned twice. Pure."""

from __future__ import annotations

from kernels.passes.graph import Graph
from kernels.passes.values import Value


def equal_gradients(graph: Graph, gradients: dict[str, Value]) -> dict[str, str]:
    """Gradient -> the equal gradient of an earlier input (x and residual of x + residual)."""
    aliases: dict[str, str] = {}
    first: dict[tuple[object, ...], str] = {}
    for name, value in gradients.items():
        key = (graph.tensors[name].dims, tuple(sorted(value.elements.items())))
        if key in first:
            aliases[f"d{name}"] = first[key]
        else:
            first[key] = f"d{name}"
    return aliases
