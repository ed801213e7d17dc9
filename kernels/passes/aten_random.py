"""Random numbers: what `philox_uniform` (kernels/random_numbers.py) becomes. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.derivation import Unsupported
from kernels.passes.aten_rules import RULES
from kernels.passes.values import Value, coordinates, unrolled
from kernels.quantity import Quantity
from kernels.random_numbers import OPERATION
from kernels.row_program import Uniform
from kernels.traced import TracedNode

if TYPE_CHECKING:
    from kernels.passes.lower import Lowering


def uniform(low: Lowering, node: TracedNode) -> Value:
    """One number an element, by its offset in a contiguous tensor of the same shape."""
    value, seed = low.value(node.args[0]), low.value(node.args[1])
    dims = tuple(
        dim or (() if size.same(Quantity()) else low.dims_of_size(size))
        for dim, size in zip(value.dims, node.shape, strict=True)
    )
    axes = tuple(a for dim in dims for a in dim)
    if any(seed.dims):
        raise Unsupported(
            "random numbers with a seed for each row", needed="one seed: an int or a 0-d tensor"
        )
    names = unrolled(low.graph, dims)
    elements = {
        at: low.graph.add(Uniform(seed=seed.node(), axes=axes, at=tuple(zip(names, at, strict=True))))
        for at in coordinates(low.graph, dims)
    }
    return Value(dims, elements)


RULES[OPERATION] = uniform
