"""The operation that stands for `philox_uniform` in a traced graph. Imports torch."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from kernels.random_numbers import NAME, draws_uniform


@torch.library.custom_op("liger_bot::uniform", mutates_args=())
def uniform(x: torch.Tensor, seed: torch.Tensor) -> torch.Tensor:
    """Numbers of the right shape and dtype. Their values don't matter: this operation is only ever traced."""
    return torch.full(x.shape, 0.5, dtype=torch.float32, device=x.device) + 0 * seed


@uniform.register_fake
def _(x: torch.Tensor, seed: torch.Tensor) -> torch.Tensor:  # noqa: ARG001 - the operation's signature
    return torch.empty(x.shape, dtype=torch.float32, device=x.device)


@contextmanager
def uniform_as_one_operation(reference: Callable[..., Any], source: str) -> Iterator[None]:
    """While this lasts, the reference's own `philox_uniform` is the one operation. Nothing is changed when `source` defines
    another function of that name: it is traced as it stands."""
    function = reference if inspect.isfunction(reference) else getattr(reference, "forward", None)
    namespace = getattr(inspect.unwrap(function), "__globals__", {}) if function else {}
    if NAME not in namespace or not draws_uniform(source):
        yield
        return
    own = namespace[NAME]
    namespace[NAME] = lambda x, seed: uniform(x.detach(), _tensor(seed))
    try:
        yield
    finally:
        namespace[NAME] = own


def _tensor(seed: Any) -> torch.Tensor:
    return seed if isinstance(seed, torch.Tensor) else torch.full((), seed, dtype=torch.int64)
