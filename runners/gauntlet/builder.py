"""Builds cases: values, dtypes and layouts for every tensor of an op, sized so that the interpreter stays fast."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from kernels.op_spec import TensorSpec
from runners.gauntlet.case import DTYPES, Case, Layout, Options, Placed, place
from runners.gauntlet.truth import Reference, sizes_of

MAX_ROWS = 512  # an interpreted program instance costs about a millisecond, however wide it is
Values = Callable[[tuple[int, ...], torch.Generator], torch.Tensor]


class Refused(Exception):  # noqa: N818 - an answer: the reference itself rejects such inputs
    """The reference does not accept the inputs of a case."""


def normal(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Standard normal values with exact zeros sprinkled in: kinks are where formulas differ."""
    values = torch.randn(shape, generator=generator, dtype=torch.float64)
    zeros = torch.rand(shape, generator=generator) < 0.02
    return values.masked_fill(zeros, 0.0)


class Builder:
    """Makes the cases of one op. `seed` is held out: it decides every value."""

    def __init__(self, reference: Reference, seed: int, *, gpu: bool) -> None:
        self.reference, self.op, self.seed, self.gpu = reference, reference.op, seed, gpu
        self.dtypes = ["float32", "bfloat16", "float16"]
        self.multiple = self._column_multiple()
        self.n_outputs = len(self._probe(self.multiple * 8) or [None])

    def case(
        self,
        family: str,
        name: str,
        *,
        rows: Sequence[int] = (3, 5),
        cols: int = 31,
        dtype: str = "float32",
        dtypes: Mapping[str, str] | None = None,
        layouts: Mapping[str, Layout] | Layout = "contiguous",
        gradient_layout: Layout = "contiguous",
        values: Values = normal,
        gradient_values: Values = normal,
        needs_grad: set[str] | None = None,
        scalars: Mapping[str, Any] | None = None,
        options: Options | None = None,
        backward: bool = True,
    ) -> Case:
        """One case at `rows` x `cols`. Raises Refused when the reference itself does not accept such inputs."""
        cols = self._round(cols)
        identity = f"{family}/{name}"
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + zlib.crc32(identity.encode()))
        case = Case(
            identity, family, dtype, [], [], {**self._scalars(), **(scalars or {})}, options or Options()
        )
        for spec in self.op.tensors:
            layout: Layout = layouts if isinstance(layouts, str) else layouts.get(spec.name, "contiguous")
            value = self._value(spec, rows, cols, (dtypes or {}).get(spec.name, dtype), values, generator)
            needed = (
                spec.dtype == "float" and spec.needs_grad and (needs_grad is None or spec.name in needs_grad)
            )
            case.tensors.append(self._place(case, spec.name, value, layout, requires_grad=needed))
        outputs = self._outputs(case)
        if backward and any(placed.requires_grad for placed in case.tensors):
            for position, output in enumerate(outputs):
                # Representable in every dtype of the case: where eager's output is promoted and a kernel's is not, both
                # must still receive the same gradient.
                value = gradient_values(tuple(output.shape), generator).to(DTYPES[dtype]).to(output.dtype)
                case.gradients.append(self._place(case, f"grad{position}", value, gradient_layout))
        return case

    def columns(self) -> list[str]:
        """Names of floating-point tensors that are not full: per-column vectors, scalars, per-row values."""
        return [spec.name for spec in self.op.tensors if spec.dtype == "float" and "*" not in spec.shape]

    def differentiable(self) -> list[str]:
        """Names of the tensors whose gradient a candidate must produce."""
        return [spec.name for spec in self.op.tensors if spec.dtype == "float" and spec.needs_grad]

    def _place(
        self, case: Case, name: str, value: torch.Tensor, layout: Layout, *, requires_grad: bool = False
    ) -> Placed:
        if layout == "expanded" and value.dim() > 1:
            value = value[(slice(0, 1),) * (value.dim() - 1)].expand(value.shape)
        elif layout == "expanded" and value.dim() == 1:
            value = value[:1].expand(value.shape)
        placed, storage = place(name, value, layout, requires_grad=requires_grad)
        case.values[name], case.storages[name] = value, storage
        return placed

    def _value(
        self,
        spec: TensorSpec,
        rows: Sequence[int],
        cols: int,
        dtype: str,
        values: Values,
        generator: torch.Generator,
    ) -> torch.Tensor:
        shape: list[int] = []
        for axis in spec.shape:
            shape += list(rows) if axis == "*" else [self._size(axis, cols)]
        if spec.dtype == "bool":
            return torch.rand(shape, generator=generator) < 0.5
        if spec.dtype == "int64":
            return torch.randint(0, cols, shape, generator=generator)
        return values(tuple(shape), generator).to(DTYPES[dtype])

    def _size(self, axis: str, cols: int) -> int:
        """Axes other than the columns get small sizes of their own, the same wherever the name is used."""
        return cols if axis == "n_cols" else 3 + zlib.crc32(axis.encode()) % 5

    def _scalars(self) -> dict[str, Any]:
        return {scalar.name: scalar.default for scalar in self.op.scalars}

    def _round(self, cols: int) -> int:
        return max(self.multiple, -(-cols // self.multiple) * self.multiple)

    def _outputs(self, case: Case) -> list[torch.Tensor]:
        try:
            with torch.no_grad():
                return self.reference.run(case.values, case.scalars, sizes_of(self.op, case.values))
        except Exception as error:
            raise Refused(
                f"the reference refuses {case.id}: {type(error).__name__}: {str(error)[:200]}"
            ) from error

    def _probe(self, cols: int) -> list[torch.Tensor] | None:
        generator = torch.Generator().manual_seed(0)
        values = {
            spec.name: self._value(spec, (2, 3), cols, "float32", normal, generator)
            for spec in self.op.tensors
        }
        try:
            with torch.no_grad():
                return self.reference.run(values, self._scalars(), sizes_of(self.op, values))
        except Exception:  # noqa: BLE001 - the reference is a person's code; "does it accept this width" is the question
            return None

    def _column_multiple(self) -> int:
        """The smallest number that columns must be a multiple of, found by trying: packed halves want 2, groups more."""
        return next(
            (
                m
                for m in (1, 2, 4, 8, 16, 32)
                if self._probe(m) is not None and self._probe(3 * m) is not None
            ),
            1,
        )
