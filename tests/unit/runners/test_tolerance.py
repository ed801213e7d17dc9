"""What passes and what does not, against a known truth."""

from __future__ import annotations

import math

import pytest
import torch

from runners.gauntlet.tolerance import compare, ulp

GENERATOR = torch.Generator().manual_seed(3)
TRUTH = torch.randn(4000, generator=GENERATOR, dtype=torch.float64)


def eager(dtype: torch.dtype) -> torch.Tensor:
    """Two roundings, as an eager chain of two operations makes."""
    return (TRUTH * 0.7).to(dtype).double().div(0.7).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_one_rounding_of_the_truth_passes(dtype: torch.dtype) -> None:
    found = compare(TRUTH.to(dtype), TRUTH, eager(dtype), dtype)
    assert found.problem == ""
    assert found.ratio <= 1


@pytest.mark.parametrize("lower", [torch.float16, torch.bfloat16])
def test_a_lower_precision_inside_fp32_fails(lower: torch.dtype) -> None:
    assert compare(TRUTH.to(lower).float(), TRUTH, eager(torch.float32), torch.float32).problem


def test_tf32_inside_fp32_fails() -> None:
    bits = TRUTH.float().view(torch.int32) & ~0x1FFF
    assert compare(bits.view(torch.float32), TRUTH, eager(torch.float32), torch.float32).problem


def test_one_wrong_element_among_thousands_fails() -> None:
    candidate = TRUTH.to(torch.bfloat16)
    candidate[1234] *= 1.05
    found = compare(candidate, TRUTH, eager(torch.bfloat16), torch.bfloat16)
    assert "1 of 4000 elements" in found.problem


def test_small_results_do_not_hide_behind_large_ones() -> None:
    """A thousandth of the size, wrong by a tenth: far inside an absolute tolerance made for the large ones."""
    truth = TRUTH.clone()
    truth[:2000] *= 1e-3
    candidate = truth.to(torch.bfloat16)
    candidate[:2000] = (truth[:2000] * 1.1).to(torch.bfloat16)
    assert compare(candidate, truth, truth.to(torch.bfloat16), torch.bfloat16).problem


def test_zeros_do_not_pass_for_tiny_results() -> None:
    tiny = TRUTH.abs() * 1e-6 + 1e-8
    assert compare(torch.zeros(4000), tiny, tiny.float(), torch.float32).problem


def test_a_result_as_bad_as_eager_passes_and_much_worse_does_not() -> None:
    rough = TRUTH + 1e-3 * torch.randn(4000, generator=GENERATOR, dtype=torch.float64)
    rougher = TRUTH + 1e-2 * torch.randn(4000, generator=GENERATOR, dtype=torch.float64)
    assert compare(rough.float(), TRUTH, rough.float(), torch.float32).problem == ""
    assert compare(rougher.float(), TRUTH, rough.float(), torch.float32).problem


@pytest.mark.parametrize(
    ("candidate", "truth", "eager_value", "words"),
    [
        (0.0, math.nan, math.nan, "NaN was dropped"),
        (math.nan, 1.0, 1.0, "not finite"),
        (math.inf, 1.0, 1.0, "not finite"),
        (1.0, math.inf, math.inf, "finite where truth"),
        (math.nan, math.nan, math.nan, ""),
        (math.inf, math.nan, math.nan, ""),
        (math.inf, 1e39, math.inf, ""),  # overflows in fp32, as it must
        (math.nan, 3e38, math.inf, ""),  # eager overflows on the way: the candidate may too
        (3e38, 3e38, math.inf, ""),
    ],
)
def test_values_that_are_not_finite(candidate: float, truth: float, eager_value: float, words: str) -> None:
    found = compare(
        torch.tensor([candidate, 1.0]),
        torch.tensor([truth, 1.0], dtype=torch.float64),
        torch.tensor([eager_value, 1.0]),
        torch.float32,
    )
    assert words in found.problem
    assert bool(found.problem) is bool(words)


def test_ulp_is_the_spacing_of_a_dtype() -> None:
    values = torch.tensor([1.0, 1.5, 2.0, 1000.0], dtype=torch.float64)
    assert ulp(values, torch.bfloat16).tolist() == [2**-7, 2**-7, 2**-6, 4.0]


def test_an_empty_result_passes() -> None:
    empty = torch.empty(0, dtype=torch.float64)
    assert compare(empty, empty, empty, torch.float32).problem == ""
