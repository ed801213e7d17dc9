"""Medians with distribution-free confidence intervals, and what counts as a difference. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence


def median_interval(samples: Sequence[float], confidence: float = 0.95) -> tuple[float, float, float]:
    """(median, low, high): the interval is between two order statistics, so no distribution is assumed.

    Raises ValueError without samples. With fewer than six the interval is the whole range.
    """
    if not samples:
        raise ValueError("no samples")
    ordered = sorted(samples)
    n = len(ordered)
    # P(fewer than k of n fall below the median) is binomial(n, 1/2); take the widest tail that stays under half of alpha.
    tail, k = 0.0, 0
    while True:
        tail += math.comb(n, k) / 2**n
        if tail > (1 - confidence) / 2:
            break
        k += 1
    low = ordered[max(0, k - 1)]
    return statistics.median(ordered), low, ordered[min(n - 1, n - max(1, k))]


def noise_floor(one: Sequence[float], other: Sequence[float]) -> float:
    """Relative difference between two measurements of the same thing: the smallest difference that means anything."""
    a, b = statistics.median(one), statistics.median(other)
    return abs(a - b) / min(a, b) if min(a, b) > 0 else 0.0
