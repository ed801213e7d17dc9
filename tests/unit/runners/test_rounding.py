"""Where a tolerance gives way: a lucky eager, products by chunks, indices of equal values. And where it does not."""

from __future__ import annotations

from pathlib import Path

import torch

from agents.catalog.lookup import catalog
from runners.checks.kernel_work import _allowed
from runners.checks.static import check_static
from runners.gauntlet.builder import Builder
from runners.gauntlet.integers import integer_problem
from runners.gauntlet.tolerance import compare
from runners.gauntlet.truth import Reference

SINGLE, HALF = torch.float32, torch.bfloat16


def test_a_loss_near_zero_is_held_to_what_fp32_leaves_there(tmp_path: Path) -> None:
    """jsd of values near 1e-4: terms near 1 that cancel to 1e-7. Eager's one sample was 20 times nearer than its usual error."""
    reference = Reference(catalog().ops["jsd"].op, tmp_path)
    tiny = Builder(reference, seed=7, gpu=False).case(
        "nonfinite", "x", rows=(4,), cols=33, values=lambda shape, g: 1e-4 * torch.randn(shape, generator=g)
    )
    truth = reference.results(tiny, torch.float64).outputs[0]
    noise = torch.zeros_like(truth)
    for right, single in reference.nearby(tiny):
        noise = torch.maximum(noise, (single.outputs[0].double() - right.outputs[0]).abs())
    off = truth + 4.5e-7
    assert compare(off, truth, truth, SINGLE).problem
    assert not compare(off, truth, truth, SINGLE, noise=noise).problem
    assert compare(truth + 1e-4, truth, truth, SINGLE, noise=noise).problem


def test_products_by_chunks_have_one_rounding_more_in_bf16_and_no_more_than_that() -> None:
    truth = torch.linspace(0.3, 0.45, 64, dtype=torch.float64)
    ulp = 2.0**-9
    near, far = truth + 2.2 * ulp, truth + 5 * ulp
    assert compare(near, truth, truth, HALF).problem
    assert not compare(near, truth, truth, HALF, products=True).problem
    assert compare(far, truth, truth, HALF, products=True).problem


def test_indices_are_exact_in_fp32_and_free_where_a_row_has_no_order() -> None:
    truth, other = torch.tensor([[3, 1], [0, 2]]), torch.tensor([[1, 3], [0, 2]])
    values = torch.tensor([[0.6, 0.4], [0.7, 0.3]], dtype=torch.float64)
    assert "2 of 4 integers differ" in integer_problem(other, truth, [values], SINGLE)
    assert integer_problem(truth, truth, [values], SINGLE) == ""
    values[0] = float("nan")
    assert integer_problem(other, truth, [values], SINGLE) == ""


def test_torch_may_multiply_matrices_only_where_the_reference_does() -> None:
    source = (
        "import triton\n\n\n@triton.jit\ndef k(x_ptr):\n    pass\n\n\ndef f(x, w):\n    return x @ w.t()\n"
    )
    failed = [verdict.summary for verdict in check_static({"src/p/ops/a.py": source})]
    assert failed == ["`@` computes outside the kernel"]
    assert [v.outcome.value for v in check_static({"src/p/ops/a.py": source}, ["src/p/ops/a.py"])] == [
        "passed"
    ]


def test_torch_may_scale_a_product_by_a_number_and_not_by_a_tensor() -> None:
    assert _allowed("mm", 200, products=True)
    assert _allowed("mul", 1, products=True)
    assert not _allowed("mul", 200, products=True)
    assert not _allowed("exp", 1, products=True)
    assert not _allowed("mm", 200, products=False)
