"""Builds cases: values, dtypes and layouts for every tensor of an op, sized so that the interpreter stays fast."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from kernels.op_spec import TensorSpec
from runners.gauntlet.case import DTYPES, Case, Layout, Options, Placed, place
from runners.gauntlet.truth import Reference, sizes_of
from runners.sizes import ROWS, column_axis, label_axis, reduced_axes, shape_of

MANY_AXES = 3
MULTIPLES = (2, 4, 8, 16, 32)
# Of an axis that is one of several in a reduced row: a group's channels times so much space is at most one block of 65,536,
# beyond which the printed module refuses a row.
MAX_SPACE = 8192
IGNORED_SHARE = 0.1  # of the labels, where an op ignores one value
Values = Callable[[tuple[int, ...], torch.Generator], torch.Tensor]


class Refused(Exception):  # noqa: N818 - an answer: the reference itself rejects such inputs
    """The reference does not accept the inputs of a case."""


def normal(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Standard normal values with exact zeros sprinkled in: kinks are where formulas differ."""
    values = torch.randn(shape, generator=generator, dtype=torch.float64)
    zeros = torch.rand(shape, generator=generator) < 0.02
    return values.masked_fill(zeros, 0.0)


def _as_drawn(values: torch.Tensor) -> torch.Tensor:
    return values


def _probability(values: torch.Tensor) -> torch.Tensor:
    """Normal values onto (0, 1); NaN stays, and infinities end at 0 and 1."""
    return torch.sigmoid(values)


DOMAINS: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (_as_drawn, torch.abs, _probability)


class Builder:
    """Makes the cases of one op. `seed` is held out: it decides every value."""

    def __init__(
        self, reference: Reference, seed: int, *, gpu: bool, multiples: Mapping[str, int] | None = None
    ) -> None:
        self.reference, self.op, self.seed, self.gpu = reference, reference.op, seed, gpu
        self.dtypes = ["float32", "bfloat16", "float16"]
        self.columns_axis, self.labels_axis = column_axis(self.op), label_axis(self.op)
        self.reduced = reduced_axes(self.op)
        self.ignored = self._ignored_label()
        self.domain: Callable[[torch.Tensor], torch.Tensor] = _as_drawn
        self.multiples: dict[str, int] = {}
        self.multiples = self._multiples(dict(multiples or {}))
        self.multiple = self.multiples.get(self.columns_axis or "", 1)
        self.domain = self._domain()
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
        if self.columns_axis != "n_cols" and self.columns_axis is not None and self.labels_axis is None:
            cols = min(cols, MAX_SPACE)
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
        shape = shape_of(spec, rows, cols, self.columns_axis, self._size)
        if spec.dtype == "bool":
            return torch.rand(shape, generator=generator) < 0.5
        if spec.dtype == "int64":
            return self._integers(spec, shape, cols, generator)
        value = self.domain(values(tuple(shape), generator))
        if len(spec.shape) == 2 and spec.shape[-1] in self.reduced and spec.shape[0] == self.columns_axis:
            value = (
                value / shape[-1] ** 0.5
            )  # a linear layer's weight: its results are of the size of its inputs
        return value.to(DTYPES[dtype])

    def _integers(
        self, spec: TensorSpec, shape: list[int], cols: int, generator: torch.Generator
    ) -> torch.Tensor:
        if self.labels_axis is None:
            # What they index is not known: below the size of any of the axes, one for each.
            sizes = {axis: cols if axis == self.columns_axis else self._size(axis) for axis in self._axes()}
            bounds = torch.tensor([size + 1 for size in sizes.values()] or [2])
            chosen = bounds[torch.randint(0, len(bounds), shape, generator=generator)]
            return (torch.rand(shape, generator=generator) * chosen).long()
        high = cols if self.labels_axis == self.columns_axis else self._size(self.labels_axis)
        labels = torch.randint(0, max(high, 1), shape, generator=generator)
        if self.ignored is None or not spec.shape:
            return labels
        return labels.masked_fill(torch.rand(shape, generator=generator) < IGNORED_SHARE, self.ignored)

    def _axes(self) -> list[str]:
        """Every axis that has a size of its own, the columns first."""
        named = dict.fromkeys(axis for spec in self.op.tensors for axis in spec.shape)
        axes = [axis for axis in named if axis not in ROWS]
        return sorted(axes, key=lambda axis: axis != self.columns_axis)

    def _size(self, axis: str) -> int:
        """Axes other than the columns get small sizes of their own, the same wherever the name is used."""
        # What a linear layer sums over also says how many rows a chunk has: wide enough for a few.
        # Rows that are a product of several axes stay few: an interpreted program costs about a millisecond.
        small = (2, 3) if len(self._axes()) > MANY_AXES else (3, 5)
        least, spread = (33, 29) if axis in self.reduced else small
        return (least + zlib.crc32(axis.encode()) % spread) * self.multiples.get(axis, 1)

    def _scalars(self) -> dict[str, Any]:
        return {scalar.name: scalar.default for scalar in self.op.scalars}

    def _round(self, cols: int) -> int:
        return max(self.multiple, -(-cols // self.multiple) * self.multiple)

    def _outputs(self, case: Case) -> list[torch.Tensor]:
        try:
            with torch.no_grad(), self.reference.autocast(case):
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

    def _multiples(self, known: dict[str, int]) -> dict[str, int]:
        """What axes must be a multiple of: what is known, and for one more found by trying (packed halves want 2)."""
        more = ({axis: multiple} for multiple in MULTIPLES for axis in self._axes())
        tried = [known, *(known | one for one in more)]
        for multiples in tried:
            self.multiples = multiples
            columns = multiples.get(self.columns_axis or "", 1)
            if self._probe(3 * columns) is not None and self._probe(5 * columns) is not None:
                return multiples
        return known

    def _domain(self) -> Callable[[torch.Tensor], torch.Tensor]:
        """Where the op is defined: everywhere, or (probabilities under a logarithm) on positive values only.

        A result of nothing but NaN would say as little about a candidate as no case at all.
        """
        for domain in DOMAINS:
            self.domain = domain
            outputs = self._probe(self.multiple * 15)
            if outputs and all(bool(one.isfinite().all()) for one in outputs if one.is_floating_point()):
                return domain
        return _as_drawn

    def _ignored_label(self) -> int | None:
        """A value that labels may have without being one: the default of an integer `ignore_index`."""
        default = self._scalars().get("ignore_index")
        return default if isinstance(default, int) else None
