"""The row program: the IR between a reference and its kernel. Pure.

A value varies over *named axes*, and nothing else: views, permutes, broadcasts and expands have vanished. A tensor's
dimension is an ordered list of primitive axes (a packed half is `(part, half)`, an interleaved one `(half, part)`, a
group norm's channel `(group, channel_in_group)`); the order gives the strides. Axes with `unroll` are small and literal:
each of their coordinates is a value of its own. Seen from a kernel, whose programs run over the row axes and whose
blocks span the column axes, a value is Scalar, Row, Column or Full: that is its role.

All arithmetic is fp32; a value is rounded to its tensor's dtype by a store, or by a Cast where the reference asks for it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from kernels.op_spec import Frozen
from kernels.quantity import Quantity

Role = Literal["scalar", "row", "column", "full"]
SPLITS = "n_splits"  # the axis of a row's parts, where a row is split over programs (passes/split_rows.py)


class Axis(Frozen):
    """A primitive axis. `size` in terms of the op's named axes."""

    name: str
    size: Quantity
    unroll: int | None = Field(
        default=None, description="literal size, when its coordinates are values of their own"
    )


class Tensor(Frozen):
    """A tensor in memory, contiguous: its dimensions as lists of primitive axes, outermost first."""

    name: str
    dims: tuple[tuple[str, ...], ...]
    dtype: Literal["float", "float32", "int64", "bool"] = Field(description='"float": the dtype of `like`')
    kind: Literal["input", "output", "tangent", "gradient", "saved", "partial"]
    like: str | None = Field(default=None, description="the input whose dtype it takes; None: its own")

    @property
    def axes(self) -> tuple[str, ...]:
        return tuple(axis for dim in self.dims for axis in dim)


class Load(Frozen):
    """The elements of a tensor; `at` fixes the coordinates on unrolled axes."""

    kind: Literal["load"] = "load"
    tensor: str
    at: tuple[tuple[str, int], ...] = ()


class Const(Frozen):
    """A number, as text so that inf survives JSON."""

    kind: Literal["const"] = "const"
    text: str

    @property
    def value(self) -> float:
        return float(self.text)


class Symbol(Frozen):
    """A product of sizes and scalar parameters, computed on the host when it has sizes."""

    kind: Literal["symbol"] = "symbol"
    quantity: Quantity


class Map(Frozen):
    """An element-wise function; kernels/passes/functions.py lists the names."""

    kind: Literal["map"] = "map"
    fn: str
    args: tuple[int, ...]


class Reduce(Frozen):
    """A reduction over whole axes."""

    kind: Literal["reduce"] = "reduce"
    fn: Literal["sum", "max", "min", "argmax", "argmin"]
    arg: int
    axes: tuple[str, ...]


class Scan(Frozen):
    """An inclusive prefix (or, with `reverse`, suffix) along one axis."""

    kind: Literal["scan"] = "scan"
    fn: Literal["sum", "prod"]
    arg: int
    axis: str
    reverse: bool = False


class Index(Frozen):
    """The coordinate on an axis."""

    kind: Literal["index"] = "index"
    axis: str


class Gather(Frozen):
    """Elements of a tensor where the coordinate on `axis` is given by another value."""

    kind: Literal["gather"] = "gather"
    tensor: str
    axis: str
    index: int
    at: tuple[tuple[str, int], ...] = ()


class Uniform(Frozen):
    """Random numbers in [0, 1): Triton's tl.rand of a seed and an element's offset in a tensor of these axes."""

    kind: Literal["uniform"] = "uniform"
    seed: int
    axes: tuple[str, ...] = Field(description="of a contiguous tensor, outermost first")
    at: tuple[tuple[str, int], ...] = ()


class Cast(Frozen):
    """Round to the dtype of a tensor and come back to fp32: a cast that the reference writes."""

    kind: Literal["cast"] = "cast"
    arg: int
    like: str


Node = Annotated[
    Load | Const | Symbol | Map | Reduce | Scan | Index | Gather | Uniform | Cast,
    Field(discriminator="kind"),
]


class Store(Frozen):
    """Write a value to a tensor."""

    tensor: str
    value: int
    at: tuple[tuple[str, int], ...] = ()


class Accumulate(Frozen):
    """Sum a value over the row axes in `over` (and, for a scalar, over columns) into a tensor: a gradient or a loss.

    Each program writes its part; the host adds the parts.
    """

    tensor: str
    value: int
    over: tuple[str, ...]
    at: tuple[tuple[str, int], ...] = ()


class Scatter(Frozen):
    """Add a value to a tensor at a coordinate that is itself a value (the gradient of a lookup), atomically."""

    tensor: str
    value: int
    index: int
    axis: str


class RowProgram(Frozen):
    """One kernel: what it loads, computes and stores, and over which axes its programs and blocks run."""

    axes: tuple[Axis, ...]
    rows: tuple[str, ...] = Field(description="primitive axes that programs run over, outermost first")
    cols: tuple[str, ...] = Field(description="primitive axes inside a block, outermost first")
    tensors: tuple[Tensor, ...]
    scalars: tuple[str, ...] = ()
    nodes: tuple[Node, ...]
    stores: tuple[Store, ...]
    accumulates: tuple[Accumulate, ...] = ()
    scatters: tuple[Scatter, ...] = ()

    def tensor(self, name: str) -> Tensor:
        return next(t for t in self.tensors if t.name == name)

    def axis(self, name: str) -> Axis:
        return next(a for a in self.axes if a.name == name)

    def role_of(self, axes: frozenset[str]) -> Role:
        """The role of a value that varies over these axes."""
        row, col = bool(axes & set(self.rows)), bool(axes & set(self.cols))
        if col and (row or not self.rows):
            return "full"
        if row:
            return "row"
        return "column" if col else "scalar"

    def node_axes(self) -> list[frozenset[str]]:
        """For each node the axes that it varies over."""
        tensors = {t.name: t for t in self.tensors}
        return node_axes(self.nodes, tensors)


def operands(node: Node) -> tuple[int, ...]:
    """Ids of the nodes that `node` reads."""
    if isinstance(node, Map):
        return node.args
    if isinstance(node, Reduce | Scan | Cast):
        return (node.arg,)
    if isinstance(node, Gather):
        return (node.index,)
    if isinstance(node, Uniform):
        return (node.seed,)
    return ()


def axes_of(node: Node, axes: list[frozenset[str]], tensors: dict[str, Tensor]) -> frozenset[str]:
    """Axes of one node, given those of the nodes before it."""
    if isinstance(node, Load):
        return frozenset(tensors[node.tensor].axes) - {a for a, _ in node.at}
    if isinstance(node, Gather):
        own = frozenset(tensors[node.tensor].axes) - {node.axis} - {a for a, _ in node.at}
        return own | axes[node.index]
    if isinstance(node, Index):
        return frozenset({node.axis})
    if isinstance(node, Uniform):
        return frozenset(node.axes) - {a for a, _ in node.at} | axes[node.seed]
    if isinstance(node, Reduce):
        return axes[node.arg] - set(node.axes)
    result: frozenset[str] = frozenset()
    for operand in operands(node):
        result |= axes[operand]
    return result


def node_axes(nodes: tuple[Node, ...] | list[Node], tensors: dict[str, Tensor]) -> list[frozenset[str]]:
    result: list[frozenset[str]] = []
    for node in nodes:
        result.append(axes_of(node, result, tensors))
    return result
