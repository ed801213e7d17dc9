"""How far two results lie apart, as numbers that JSON can carry."""

from __future__ import annotations

import math

import torch


def distance(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """Largest absolute difference relative to the largest wanted value; infinite when the shapes or a NaN differ."""
    if found.shape != wanted.shape:
        return math.inf
    a, b = found.detach().double(), wanted.detach().double()
    if bool((a.isnan() != b.isnan()).any()):
        return math.inf
    scale = float(b.abs().nan_to_num().max()) if b.numel() else 0.0
    difference = float((a - b).abs().nan_to_num().max()) if b.numel() else 0.0
    return difference / scale if scale else difference


def equal_bits(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """The share of elements that are the same number, exactly."""
    if found.shape != wanted.shape or not found.numel():
        return 0.0
    return float((found.detach() == wanted.detach()).double().mean())


def finite(value: float) -> float | None:
    """A number for JSON, None for infinity; three digits are enough for a person."""
    return float(f"{value:.3g}") if math.isfinite(value) else None
