"""The truth a candidate is held to: its reference in float64, and the same reference eager in the dtype under test.

Runs the reference, so it belongs in a sandbox; it never runs a candidate.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernels.op_spec import OpSpec
from kernels.roles import Roles, guess_roles
from runners.gauntlet.case import DTYPES, Case
from runners.products import has_product
from runners.reference import load_reference

LOW = (torch.float32, torch.bfloat16, torch.float16)
INEXACT = frozenset(
    "exp exp2 expm1 log log2 log1p tanh sigmoid erf rsqrt sin cos atan pow silu gelu mish softplus log_sigmoid_forward logsumexp "  # noqa: SIM905 - a word list is easier to read
    "_softmax _log_softmax".split()
)
NEARBY = 6
NEARBY_STEP = torch.finfo(torch.float32).eps


@dataclass(frozen=True)
class Results:
    """Outputs and gradients of one call; a gradient is None where none flows."""

    outputs: list[torch.Tensor]
    gradients: dict[str, torch.Tensor | None]

    def output_name(self, position: int) -> str:
        """How a person is told which output is meant."""
        return "the output" if len(self.outputs) == 1 else f"output {position}"

    def named(self, name: str) -> torch.Tensor | None:
        """A result by what a person is told it is."""
        outputs = {self.output_name(position): output for position, output in enumerate(self.outputs)}
        return outputs.get(name, {gradient_name(n): g for n, g in self.gradients.items()}.get(name))


def gradient_name(name: str) -> str:
    """How a person is told which gradient is meant."""
    return f"the gradient of {name}"


class AllFloat64(TorchDispatchMode):
    """Turns a reference's own casts to a lower precision into casts to float64: the truth is not rounded on its way."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise the first operation imports torch._dynamo, which takes seconds

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if kwargs.get("dtype") in LOW:
            kwargs = {**kwargs, "dtype": torch.float64}
        return func(*args, **kwargs)


class DeviceFunctions(TorchDispatchMode):
    """Makes torch's functions in fp32 as inexact as a GPU's: each call is off by one factor of at most 2 units.

    The same for all its elements, because values that are alike are rounded alike: near 1 a sum of exponentials is off by
    that much of the number of its terms.
    """

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self._generator = generator

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ not in INEXACT or result.dtype != torch.float32:
            return result
        units = 2 * (2 * torch.rand((), generator=self._generator).item() - 1)
        return result * (1 + units * NEARBY_STEP)


class Reference:
    """A reference, loaded from its source, and what its tensors are."""

    def __init__(self, op: OpSpec, folder: Path) -> None:
        self._reference = load_reference(op, folder)
        self.roles: Roles = next(iter(guess_roles(op, self._reference)))
        self.op = self.roles.op
        self.multiplies = has_product(op.source)

    def run(
        self, tensors: Mapping[str, torch.Tensor], scalars: Mapping[str, Any], sizes: Mapping[str, int]
    ) -> list[torch.Tensor]:
        """Outputs of the reference as a list."""
        result = self.roles.bind(self._reference, sizes, scalars)(tensors)
        return list(result) if isinstance(result, tuple | list) else [result]

    def results(self, case: Case, dtype: torch.dtype | None) -> Results:
        """Outputs and gradients for a case: with `dtype` float64 the truth, with None eager in the case's own dtypes."""
        needed = {placed.name for placed in case.tensors if placed.requires_grad}
        tensors = {}
        for placed in case.tensors:
            value = case.values[placed.name].detach()
            value = value.to(dtype) if dtype is not None and value.is_floating_point() else value.clone()
            tensors[placed.name] = value.requires_grad_(placed.name in needed)
        if dtype == torch.float64:
            with AllFloat64():
                return self._differentiate(case, tensors, needed)
        with self.autocast(case):
            return self._differentiate(case, tensors, needed)

    def autocast(self, case: Case) -> contextlib.AbstractContextManager[object]:
        """Autocast for a reference that multiplies matrices: torch rounds the factors, in a candidate as in eager.

        Without a product eager stays outside: its results in the case's own dtypes are the stricter measure.
        """
        if case.options.autocast is None or not self.multiplies:
            return contextlib.nullcontext()
        return torch.autocast("cpu", dtype=DTYPES[case.options.autocast])

    def nearby(self, case: Case) -> Iterator[tuple[Results, Results]]:
        """Truth and eager in fp32 for inputs a few fp32 units away: what rounding alone does at this place."""
        generator = torch.Generator().manual_seed(zlib.crc32(case.id.encode()))
        for _ in range(NEARBY):
            moved = {
                name: value.double() * (1 + NEARBY_STEP * torch.randn(value.shape, generator=generator))
                if value.is_floating_point()
                else value
                for name, value in case.values.items()
            }
            single = {n: v.float() if v.is_floating_point() else v for n, v in moved.items()}
            options = replace(case.options, autocast=None)
            there = replace(case, values=single, options=options)
            right = self.results(there, torch.float64)
            with DeviceFunctions(generator):
                single = self.results(there, None)
            yield right, single

    def _differentiate(self, case: Case, tensors: dict[str, torch.Tensor], needed: set[str]) -> Results:
        outputs = self.run(tensors, case.scalars, sizes_of(self.op, tensors))
        gradients: dict[str, torch.Tensor | None] = {}
        wanted = [tensors[name] for name in sorted(needed)]
        reachable = [
            (output, case.values[placed.name])
            for output, placed in zip(outputs, case.gradients, strict=False)
            if output.requires_grad
        ]
        if wanted and reachable:
            found = torch.autograd.grad(
                [output for output, _ in reachable],
                wanted,
                [value.to(output.dtype) for output, value in reachable],
                allow_unused=True,
            )
            gradients = dict(zip(sorted(needed), found, strict=True))
        return Results([output.detach() for output in outputs], gradients)


def sizes_of(op: OpSpec, tensors: Mapping[str, torch.Tensor]) -> dict[str, int]:
    """Axis name -> size, read off the tensors."""
    sizes: dict[str, int] = {}
    for spec in op.tensors:
        shape = list(tensors[spec.name].shape)
        names = list(spec.shape)
        if "*" in names:
            position = names.index("*")
            after = len(names) - position - 1
            shape[position : len(shape) - after] = [-1]
        sizes.update({name: size for name, size in zip(names, shape, strict=True) if name != "*"})
    return sizes
