"""The truth a candidate is held to: its reference in float64, and the same reference eager in the dtype under test.

Runs the reference, so it belongs in a sandbox; it never runs a candidate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernels.op_spec import OpSpec
from kernels.roles import Roles, guess_roles
from runners.gauntlet.case import Case
from runners.reference import load_reference

LOW = (torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Results:
    """Outputs and gradients of one call; a gradient is None where none flows."""

    outputs: list[torch.Tensor]
    gradients: dict[str, torch.Tensor | None]

    def output_name(self, position: int) -> str:
        """How a person is told which output is meant."""
        return "the output" if len(self.outputs) == 1 else f"output {position}"


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


class Reference:
    """A reference, loaded from its source, and what its tensors are."""

    def __init__(self, op: OpSpec, folder: Path) -> None:
        self._reference = load_reference(op, folder)
        self.roles: Roles = next(iter(guess_roles(op, self._reference)))
        self.op = self.roles.op

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
        return self._differentiate(case, tensors, needed)

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
