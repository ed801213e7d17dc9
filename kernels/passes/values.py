"""Traced tensors as named-axis values: what views, slices and broadcasts turn into. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from kernels.derivation import Unsupported
from kernels.passes.graph import Graph

Dims = tuple[tuple[str, ...], ...]
Coordinates = tuple[int, ...]
MAX_UNROLL = 8


class Refine(Exception):  # noqa: N818 - a signal to start over with a finer axis, not an error
    """An axis must be split in two, outermost first; lowering starts again with the finer axes."""

    def __init__(self, axis: str, outer: object, inner: object):
        super().__init__(f"{axis} = {outer} * {inner}")
        self.axis, self.outer, self.inner = axis, outer, inner


@dataclass(frozen=True)
class Value:
    """A traced tensor. `dims`: primitive axes of each dimension; () broadcasts, whatever the traced size says.

    `elements`: one node for each combination of coordinates on the unrolled axes, in the order of `dims`.
    """

    dims: Dims
    elements: dict[Coordinates, int]

    @classmethod
    def scalar(cls, node: int, rank: int = 0) -> Value:
        return cls(dims=((),) * rank, elements={(): node})

    def node(self) -> int:
        """The only element of a value without unrolled axes."""
        (node,) = self.elements.values()
        return node


def unrolled(graph: Graph, dims: Dims) -> list[str]:
    """Unrolled axes in the order of `dims`."""
    return [axis for dim in dims for axis in dim if graph.axes[axis].unroll]


def coordinates(graph: Graph, dims: Dims) -> list[Coordinates]:
    return list(product(*(range(graph.axes[a].unroll or 1) for a in unrolled(graph, dims))))


def broadcast(graph: Graph, values: list[Value]) -> tuple[Dims, list[Value]]:
    """Align values to one shape: missing leading dims and () broadcast; unrolled axes match by size and place."""
    rank = max(len(v.dims) for v in values)
    padded = [Value(((),) * (rank - len(v.dims)) + v.dims, v.elements) for v in values]
    dims: list[tuple[str, ...]] = []
    for position in range(rank):
        choices = [v.dims[position] for v in padded if v.dims[position]]
        result: tuple[str, ...] = choices[0] if choices else ()
        for other in choices[1:]:
            if not _same_dim(graph, result, other):
                raise Unsupported(
                    f"two tensors are combined whose axes differ: {' * '.join(result)} and {' * '.join(other)}",
                    needed="axes named alike in the op's tensors",
                )
        dims.append(result)
    return tuple(dims), padded


def _same_dim(graph: Graph, one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    if one == other:
        return True
    return len(one) == len(other) and all(
        a == b or (graph.axes[a].unroll is not None and graph.axes[a].unroll == graph.axes[b].unroll)
        for a, b in zip(one, other, strict=True)
    )


def element(graph: Graph, value: Value, dims: Dims, at: Coordinates) -> int:
    """The node of an aligned value at coordinates of the broadcast shape."""
    own: list[int] = []
    position = 0
    for mine, result in zip(value.dims, dims, strict=True):
        for axis in result:
            if graph.axes[axis].unroll:
                if mine:
                    own.append(at[position])
                position += 1
    return value.elements[tuple(own)]
