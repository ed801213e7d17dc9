"""What an op looks like from outside: its reference and the roles of its arguments. Pure; no torch."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Axis = str  # a name ("n_cols"), or "*" for any number of leading row axes


class Frozen(BaseModel):
    """A strict, immutable record: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TensorSpec(Frozen):
    """One tensor argument of a reference."""

    name: str = Field(description="the parameter's name in the reference")
    shape: tuple[Axis, ...] = Field(
        description='axes by name: ("*", "n_cols") is a full tensor, ("n_cols",) a per-column vector, () a 0-d tensor'
    )
    dtype: Literal["float", "bool", "int64"] = Field(
        default="float", description="float means the dtype under test"
    )
    needs_grad: bool = Field(default=True, description="whether the backward must produce its gradient")
    learnable: bool = Field(default=False, description="whether the generated module owns it as a parameter")
    init: Literal["ones", "zeros", "randn", "half"] | None = Field(
        default=None, description="how the generated module initialises it; None for inputs"
    )


class ScalarSpec(Frozen):
    """One Python scalar argument of a reference."""

    name: str
    default: float | int | bool | str
    constexpr: bool = Field(
        default=False,
        description="True when its value changes the graph (a flag, an exponent): one kernel a value",
    )


class OpSpec(Frozen):
    """The reference of an op: the mathematics as plain PyTorch source, and the roles of its arguments.

    `source` is data: it is executed only in the runner's sandbox.
    """

    name: str = Field(description='snake_case, e.g. "relu_squared"')
    entry: str = Field(description="the function or nn.Module class in `source`")
    source: str = Field(
        description="self-contained Python; may import torch, torch.nn, torch.nn.functional, math"
    )
    kind: Literal["function", "module"] = "function"
    tensors: tuple[TensorSpec, ...] = Field(
        default=(), description="in call order; empty when the roles are still to be found by tracing"
    )
    scalars: tuple[ScalarSpec, ...] = ()
    summary: str = Field(default="", description='one line of mathematics, e.g. "y = max(x, 0)²"')
