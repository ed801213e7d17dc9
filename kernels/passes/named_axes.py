"""The axes that values vary over: the op's named ones, and the parts that an operation needs them split into. Pure."""

from __future__ import annotations

from kernels.derivation import Unsupported
from kernels.passes.graph import Graph
from kernels.passes.values import Refine
from kernels.quantity import Quantity
from kernels.row_program import Axis
from kernels.traced import TracedOp

PRIMES = (101, 103, 107, 109, 113, 127, 131)


class NamedAxes:
    """A graph with the op's axes, each as the primitive axes that a table of splits makes of it."""

    def __init__(self, traced: TracedOp, splits: dict[str, tuple[Axis, Axis]]):
        self.traced, self.splits = traced, splits
        self.graph = Graph()
        self.env: dict[str, float] = {
            s.name: float(s.default) for s in traced.op.scalars if is_number(s.default)
        }
        for position, (axis, multiple) in enumerate(traced.axes.items()):
            tied = self.env[traced.tied[axis]] if axis in traced.tied else 1
            self.env[axis] = float(PRIMES[position] * multiple * tied)
        for axis in traced.axes:
            self._declare(Axis(name=axis, size=Quantity.of(axis)))

    def _declare(self, axis: Axis) -> None:
        self.graph.axes[axis.name] = axis
        for part in self.splits.get(axis.name, ()):
            self._declare(part)

    def primitives(self, axis: str) -> tuple[str, ...]:
        """The primitive axes that a named axis consists of, outermost first."""
        if axis not in self.splits:
            return (axis,)
        outer, inner = self.splits[axis]
        return self.primitives(outer.name) + self.primitives(inner.name)

    def split(self, axis: str, outer: Quantity, inner: Quantity) -> Refine:
        """The signal to start over with `axis` = outer * inner; small literal sizes are unrolled."""
        parts = []
        for suffix, size in (("outer", outer), ("inner", inner)):
            literal = int(size.coef) if size.is_number else None
            parts.append(Axis(name=f"{axis}_{suffix}", size=size, unroll=literal))
        return Refine(axis, *parts)

    def dims_of_size(self, size: Quantity) -> tuple[str, ...]:
        """The primitive axes whose product is `size`: a named axis, a part of one, or several in declaration order."""
        if size.same(Quantity()):
            return ()
        for name, axis in self.graph.axes.items():
            if axis.size.same(size):
                return self.primitives(name)
        named = list(self.traced.axes)
        for start in range(len(named)):
            total, parts = Quantity(), ()
            for axis in named[start:]:
                total, parts = total * Quantity.of(axis), (*parts, *self.primitives(axis))
                if total.same(size):
                    return parts
        half = self._half_of(size)
        if half is not None:
            raise half
        raise Unsupported(f"a result has a dimension of size {size.text()}, which is no axis of the inputs")

    def _half_of(self, size: Quantity) -> Refine | None:
        """A result as wide as an n-th of a named axis: that axis must be split."""
        for axis in self.traced.axes:
            whole = Quantity.of(axis)
            count = whole / size
            if (
                count.is_number
                and count.coef == int(count.coef)
                and 1 < count.coef <= 8
                and axis not in self.splits
            ):
                return self.split(axis, Quantity.number(count.coef), size)
        return None


def is_number(value: object) -> bool:
    """Whether it is an int or a float, and no flag."""
    return isinstance(value, int | float) and not isinstance(value, bool)
