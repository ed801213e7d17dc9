"""A traced op: the joint forward/backward graph as plain data, with sizes and scalars in place of numbers. Pure.

It is made by kernels/trace.py in the runner's sandbox, so it is validated here as something a stranger sent.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field, model_validator

from kernels.op_spec import Frozen, OpSpec
from kernels.quantity import Quantity

Dtype = Literal["float", "float32", "float64", "bool", "int64", "int32", "none"]
MAX_NODES = 4000


class NodeArg(Frozen):
    """The result of another node; `output` picks one of several."""

    kind: Literal["node"] = "node"
    id: int = Field(ge=0)


class QuantityArg(Frozen):
    """A number that depends on sizes or scalars."""

    kind: Literal["quantity"] = "quantity"
    quantity: Quantity


class LiteralArg(Frozen):
    """A constant of the graph. Text, so that inf and nan survive JSON."""

    kind: Literal["literal"] = "literal"
    type: Literal["int", "float", "bool", "str", "none"]
    text: str = Field(default="", max_length=200)

    @model_validator(mode="after")
    def _parses(self) -> LiteralArg:
        _ = self.value
        return self

    @classmethod
    def of(cls, value: float | bool | str | None) -> LiteralArg:
        if value is None:
            return cls(type="none")
        if isinstance(value, bool):
            return cls(type="bool", text=str(value))
        if isinstance(value, int):
            return cls(type="int", text=str(value))
        if isinstance(value, float):
            return cls(type="float", text=repr(value))
        return cls(type="str", text=value)

    @property
    def value(self) -> float | int | bool | str | None:
        if self.type == "bool":
            return self.text == "True"
        if self.type == "int":
            return int(self.text)
        if self.type == "float":
            return float(self.text)
        return self.text if self.type == "str" else None


class ListArg(Frozen):
    kind: Literal["list"] = "list"
    items: tuple[Arg, ...]


Arg = Annotated[NodeArg | QuantityArg | LiteralArg | ListArg, Field(discriminator="kind")]
ListArg.model_rebuild()


class TracedNode(Frozen):
    """One ATen operation, input or incoming gradient of the joint graph."""

    id: int = Field(ge=0)
    op: str = Field(description='"aten.mul.Tensor", "input", "tangent", "getitem"', max_length=120)
    args: tuple[Arg, ...] = ()
    kwargs: dict[str, Arg] = Field(default_factory=dict)
    dtype: Dtype = Field(description='"float" is the dtype under test; "none" for several outputs')
    shape: tuple[Quantity, ...] = ()
    backward: bool = Field(default=False, description="whether it belongs to the backward")
    line: int | None = Field(default=None, description="line in the reference, from 1")
    sequence: int | None = Field(
        default=None, description="links a backward operation to its forward operation"
    )
    user_cast: bool = Field(default=False, description="a cast that the reference itself writes")
    name: str = Field(default="", description="of an input: the parameter; of a tangent: the output's index")


class TracedOutput(Frozen):
    """A result of the forward, or the gradient of an input."""

    name: str = Field(description='"0", "1", … for results; the parameter for gradients')
    node: int | None = Field(description="None: no gradient reaches this input")


class TracedOp(Frozen):
    """The joint graph of an op. JSON in, JSON out."""

    op: OpSpec
    nodes: tuple[TracedNode, ...] = Field(max_length=MAX_NODES)
    outputs: tuple[TracedOutput, ...]
    gradients: tuple[TracedOutput, ...]
    axes: dict[str, int] = Field(description="axis name -> a number its size must be a multiple of")
    fixed: dict[str, str] = Field(
        default_factory=dict, description="scalars whose value is built into the graph, as text"
    )
    tied: dict[str, str] = Field(
        default_factory=dict, description="axis -> the integer scalar that divides it"
    )
    questions: tuple[str, ...] = ()
    notes: tuple[str, ...] = Field(default=(), description="what was fitted or found, one line each")

    @model_validator(mode="after")
    def _consistent(self) -> TracedOp:
        for position, node in enumerate(self.nodes):
            if node.id != position:
                raise ValueError(f"node {position} carries id {node.id}")
            for ref in references(node):
                if ref >= position:
                    raise ValueError(f"node {position} refers to {ref}, which comes later")
        for output in (*self.outputs, *self.gradients):
            if output.node is not None and output.node >= len(self.nodes):
                raise ValueError(f"output {output.name} refers to node {output.node}, which doesn't exist")
        names = [
            *self.axes,
            *self.tied,
            *self.fixed,
            *(s.name for s in self.op.scalars),
            *(t.name for t in self.op.tensors),
        ]
        for name in names:
            if not name.isidentifier():
                raise ValueError(f"{name!r} is not an identifier")
        known = set(self.axes) | {s.name for s in self.op.scalars}
        for quantity in _quantities(self):
            if not quantity.names <= known:
                raise ValueError(f"unknown names {sorted(quantity.names - known)} in a quantity")
            if not math.isfinite(quantity.coef):
                raise ValueError("a quantity's coefficient must be finite")
        return self


def references(node: TracedNode) -> list[int]:
    """Ids of the nodes that `node` reads, in argument order."""
    found: list[int] = []

    def walk(arg: Arg) -> None:
        if isinstance(arg, NodeArg):
            found.append(arg.id)
        elif isinstance(arg, ListArg):
            for item in arg.items:
                walk(item)

    for arg in (*node.args, *node.kwargs.values()):
        walk(arg)
    return found


def _quantities(traced: TracedOp) -> list[Quantity]:
    found: list[Quantity] = []

    def walk(arg: Arg) -> None:
        if isinstance(arg, QuantityArg):
            found.append(arg.quantity)
        elif isinstance(arg, ListArg):
            for item in arg.items:
                walk(item)

    for node in traced.nodes:
        found.extend(node.shape)
        for arg in (*node.args, *node.kwargs.values()):
            walk(arg)
    return found
