"""The ghost run: with a candidate's kernels replaced by no-ops, its results must no longer be right."""

from __future__ import annotations

import torch

from runners.gauntlet.case import Case
from runners.gauntlet.truth import Results

GHOST_SLACK = (
    0.05  # of the elements may agree by chance beyond what zeros or a copied input would already match
)


def ghost_problems(case: Case, ghost: Results, truth: Results, eager: Results) -> list[str]:
    """Results that are still right with the kernels replaced by no-ops."""
    problems = []
    named = [
        (truth.output_name(i), mine, right)
        for i, (mine, right) in enumerate(zip(ghost.outputs, eager.outputs, strict=False))
    ]
    for name, mine in ghost.gradients.items():
        right = eager.gradients.get(name)
        if mine is not None and right is not None:
            named.append((f"the gradient of {name}", mine, right))
    for name, mine, right in named:
        if mine.shape != right.shape or not right.numel():
            continue
        chance = [_matching(torch.zeros_like(right), right)]
        chance += [_matching(value, right) for value in case.values.values() if value.shape == right.shape]
        matching = _matching(mine, right)
        if matching > max(chance) + GHOST_SLACK:
            problems.append(
                f"{case.id}: with its kernels replaced by no-ops, {matching:.0%} of {name} is still right: something else computes it"
            )
    return problems


def _matching(one: torch.Tensor, other: torch.Tensor) -> float:
    return float(torch.isclose(one.double(), other.double(), rtol=1e-2, atol=1e-6).double().mean())
