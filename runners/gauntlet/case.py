"""One call of a candidate: its tensors down to strides and guard bands, its incoming gradients, and how it is run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import torch

Layout = Literal["contiguous", "transposed", "strided", "padded", "expanded"]

GUARD = 4096  # elements of poison on each side of a tensor: most stray accesses end there, and alignment stays as it was
DTYPES = {
    "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64,
    "bool": torch.bool, "int64": torch.int64, "int32": torch.int32,
}  # fmt: skip


@dataclass(frozen=True)
class Placed:
    """A tensor as it lies in memory: `storage` elements in a file, viewed with these strides."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    storage: int
    requires_grad: bool = False


@dataclass(frozen=True)
class Options:
    """How a case is run inside the candidate's sandbox."""

    no_grad: bool = False
    autocast: str | None = None
    repeats: int = 1
    backward_twice: bool = False
    ghost: bool = False  # kernels replaced by no-ops: what is still right was not computed by them
    record_aten: bool = False
    products: bool = (
        False  # the reference multiplies matrices: torch may do that, and add up and scale the results
    )
    compiled: bool = False
    tile_rows: int = 0  # build every full tensor by repeating its rows up to this many, on the device
    sample_rows: tuple[int, ...] = ()  # return only these rows


@dataclass
class Case:
    """A case, and the logical values of its tensors (which stay with the judge)."""

    id: str
    family: str
    dtype: str
    tensors: list[Placed]
    gradients: list[Placed]
    scalars: dict[str, Any]
    options: Options = field(default_factory=Options)
    values: dict[str, torch.Tensor] = field(default_factory=dict, repr=False)
    storages: dict[str, torch.Tensor] = field(default_factory=dict, repr=False)

    def to_json(self) -> dict[str, Any]:
        """What the candidate's sandbox is told."""
        return {
            "id": self.id,
            "family": self.family,
            "tensors": [asdict(t) for t in self.tensors],
            "gradients": [asdict(t) for t in self.gradients],
            "scalars": self.scalars,
            "options": asdict(self.options),
        }


def place(
    name: str, value: torch.Tensor, layout: Layout, *, requires_grad: bool = False
) -> tuple[Placed, torch.Tensor]:
    """Lay `value` out in a storage whose gaps and both ends are poison; return the placement and the storage.

    A layout that a shape can't have (transposing a vector) falls back to the nearest that it can.
    """
    shape = tuple(value.shape)
    if layout == "transposed" and len(shape) < 2:
        layout = "strided"
    if layout in ("padded", "strided") and not shape:
        layout = "contiguous"
    strides = _strides(shape, layout)
    span = (
        1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        if value.numel()
        else 0
    )
    storage = torch.full((span + 2 * GUARD,), poison(value.dtype), dtype=value.dtype)
    view = storage.as_strided(shape, strides, GUARD)
    if value.numel():
        if 0 in strides:
            first = value
            for dimension, stride in enumerate(strides):
                first = first.narrow(dimension, 0, 1) if stride == 0 else first
            storage.as_strided(first.shape, strides, GUARD).copy_(first)
        else:
            view.copy_(value)
    dtype = str(value.dtype).removeprefix("torch.")
    return Placed(name, dtype, shape, tuple(strides), GUARD, storage.numel(), requires_grad), storage


def poison(dtype: torch.dtype) -> float | int | bool:
    """The value of memory that a kernel must not use."""
    if dtype.is_floating_point:
        return math.nan
    return True if dtype == torch.bool else torch.iinfo(dtype).max // 3


def _strides(shape: Sequence[int], layout: Layout) -> list[int]:
    if not shape:
        return []
    if layout == "transposed":
        strides = _strides([*shape[:-2], shape[-1], shape[-2]], "contiguous")
        return [*strides[:-2], strides[-1], strides[-2]]
    step = 2 if layout == "strided" else 1
    width = shape[-1] * step + (8 if layout == "padded" else 0)
    strides = [step]
    running = max(width, 1)
    for size in reversed(shape[:-1]):
        strides.insert(0, running)
        running *= max(size, 1)
    if layout == "expanded":
        # Every axis but the last shares its values, as the gradient of a sum does.
        return [0] * (len(shape) - 1) + [1] if len(shape) > 1 else [0]
    return strides
