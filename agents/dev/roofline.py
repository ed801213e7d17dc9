"""The bytes-moved model of a derived op at a few shapes: floors, upper bounds of the speed-up, and memory. Pure."""

from __future__ import annotations

from agents.profiles import Roofline
from kernels.derivation import Traffic

SHAPES = ((8192, 4096), (8192, 16384))
ITEMSIZE = 2  # bfloat16
BANDWIDTH_TBPS = 4.28
BANDWIDTH_SOURCE = (
    "device-to-device copy, read + written, measured on one NVIDIA H200 (torch 2.11+cu130, driver 580)"
)


def rooflines(traffic: Traffic) -> list[Roofline]:
    """Predictions at SHAPES in bfloat16."""
    return [_at(traffic, n_rows, n_cols) for n_rows, n_cols in SHAPES]


def _at(traffic: Traffic, n_rows: int, n_cols: int) -> Roofline:
    tensor = n_rows * n_cols * ITEMSIZE
    forward = traffic.forward_tensors * tensor + traffic.forward_per_row_bytes * n_rows
    backward = traffic.backward_tensors * tensor + traffic.backward_per_row_bytes * n_rows
    eager_forward, eager_backward = (
        traffic.eager_forward_tensors * tensor,
        traffic.eager_backward_tensors * tensor,
    )
    peak, eager_peak = traffic.peak_tensors * tensor, traffic.eager_peak_tensors * tensor
    return Roofline(
        shape=f"{n_rows} x {n_cols}, bfloat16",
        bandwidth_tbps=BANDWIDTH_TBPS,
        bandwidth_source=BANDWIDTH_SOURCE,
        forward_bytes=forward,
        backward_bytes=backward,
        eager_forward_bytes=eager_forward,
        eager_backward_bytes=eager_backward,
        forward_floor_ms=_ms(forward),
        backward_floor_ms=_ms(backward),
        predicted_forward_speedup=_ratio(eager_forward, forward),
        predicted_backward_speedup=_ratio(eager_backward, backward),
        peak_bytes=peak,
        eager_peak_bytes=eager_peak,
        predicted_memory_saving_pct=round(100 * (1 - peak / eager_peak), 1) if eager_peak else 0.0,
    )


def _ms(n_bytes: int) -> float:
    return round(n_bytes / (BANDWIDTH_TBPS * 1e12) * 1e3, 4)


def _ratio(eager: int, ours: int) -> float:
    return round(eager / ours, 2) if ours else 1.0


def predicted_floor(at: Roofline) -> str:
    """The shortest possible times in words."""
    if at.backward_bytes:
        return f"{at.forward_floor_ms:.3f} ms and {at.backward_floor_ms:.3f} ms"
    return f"{at.forward_floor_ms:.3f} ms for both passes"


def predicted_speedup(at: Roofline) -> str:
    """The upper bound of the speed-up over eager, in words: by pass, or of both where the forward does the backward's work."""
    if at.backward_bytes:
        return f"{at.predicted_forward_speedup:.2f}x forward, {at.predicted_backward_speedup:.2f}x backward over eager"
    # The forward has the gradient written: only both passes together can be compared with eager's.
    both = _ratio(at.eager_forward_bytes + at.eager_backward_bytes, at.forward_bytes)
    return f"{both:.2f}x forward + backward over eager (the forward writes the gradient too)"
