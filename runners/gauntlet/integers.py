"""Integer results (the indices of a top-k): equal to the truth's, except where the op itself leaves a choice. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import torch

# In bfloat16 and float16 equal values are common (300 normal values in bfloat16 hold about 30 pairs), and which of them comes
# first is free. A tie matters only at the edge of what is chosen or between chosen ones: few of the results.
TIED_SHARE = 0.05


def integer_problem(
    candidate: torch.Tensor, truth: torch.Tensor, beside: Sequence[torch.Tensor], precision: torch.dtype
) -> str:
    """What is wrong with an integer result, or "".

    beside: the truth's floating-point results of the same shape. A row of theirs that has a NaN has no order.
    """
    differs = candidate.long() != truth.long()
    for values in beside:
        if values.shape == truth.shape and values.dim():
            differs &= ~values.isnan().any(dim=-1, keepdim=True)
    count = int(differs.sum())
    allowed = 0 if precision == torch.float32 else max(1, int(TIED_SHARE * truth.numel()))
    if count <= allowed:
        return ""
    position = int(differs.flatten().nonzero()[0])
    return (
        f"{count} of {truth.numel()} integers differ, e.g. {int(candidate.flatten()[position])} "
        f"where it must be {int(truth.flatten()[position])}"
    )
