"""The bytes model in words: a gradient written by the forward leaves the backward nothing to be compared with."""

from __future__ import annotations

from agents.dev.roofline import predicted_floor, predicted_speedup, rooflines
from kernels.derivation import Traffic

BY_PASS = Traffic(
    forward_tensors=2, backward_tensors=3, eager_forward_tensors=4, eager_backward_tensors=9, peak_tensors=2, eager_peak_tensors=4
)  # fmt: skip
GRADIENT_IN_FORWARD = BY_PASS.model_copy(update={"backward_tensors": 0})


def test_each_pass_has_its_own_bound() -> None:
    at = rooflines(BY_PASS)[0]
    assert predicted_speedup(at) == "2.00x forward, 3.00x backward over eager"
    assert predicted_floor(at) == f"{at.forward_floor_ms:.3f} ms and {at.backward_floor_ms:.3f} ms"


def test_a_backward_that_moves_nothing_is_counted_with_its_forward() -> None:
    at = rooflines(GRADIENT_IN_FORWARD)[0]
    # 13 tensors of eager's two passes over the 2 that the forward moves
    assert predicted_speedup(at).startswith("6.50x forward + backward over eager")
    assert "backward over eager, " not in predicted_speedup(at)
    assert predicted_floor(at) == f"{at.forward_floor_ms:.3f} ms for both passes"
