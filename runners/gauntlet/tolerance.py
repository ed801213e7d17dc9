"""How far a candidate's result may be from the truth: no further than the eager op's own error, and a stated little more.

Truth is the reference in float64. Eager is the reference in the dtype under test, on the same inputs. Judging against
eager's error, not against a fixed number, is what tells a precision downgrade from honest rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

# A correct kernel computes in fp32 and rounds once, so in bf16 and fp16 it should be closer than eager, which rounds
# every intermediate. Twice eager's worst error leaves room for eager being lucky on the elements at hand.
WORST_OVER_EAGER = 2.0
# One rounding is at most half a unit in the last place; two roundings (a kept cast and the store) at most one, and a
# gradient is the product of two such values.
FLOOR_ULPS = {"bfloat16": 1.5, "float16": 1.5}
# A linear layer by chunks of rows: torch rounds each chunk's product to the dtype of its factors, where eager rounds one
# product of all rows. A chunk's product may be larger than the sum: half a unit of the typical result, and one more of its own.
CHUNK_ULPS, CHUNK_TYPICAL_ULPS = 1.0, 0.5
# fp32: device functions (exp, tanh, rsqrt) are good to 2 ulp on a GPU and a chain of them is used; sums are ordered
# differently. fp16 arithmetic inside an fp32 kernel would show as 8192 ulp, TF32 as 8192, bf16 as 65536.
FLOOR_ULPS_FP32 = 32.0
# Results much smaller than the rest of their tensor come from cancellation; fp32 leaves this much of the typical size.
ABSOLUTE_FP32 = 16 * torch.finfo(torch.float32).eps
# Results below 2^-100 are products of factors near 2^-64: subnormal on their way, with as few as 14 bits left.
SUBNORMAL_FACTORS, SUBNORMAL_SHARE = 2.0**-100, 2.0**-14
BIN_MIN = 32  # elements of similar size needed before their average error says something
BIN_RMS_OVER_EAGER = 3.0
BIN_WORST_OVER_EAGER = 8.0


@dataclass(frozen=True)
class Comparison:
    """How one result compares. `ratio` is its worst error over what is allowed; `problem` is "" when it passes."""

    problem: str
    worst_error: float
    eager_error: float
    ratio: float


def ulp(magnitude: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Spacing of `dtype` around each magnitude (float64 in, float64 out)."""
    info = torch.finfo(dtype)
    _, exponent = torch.frexp(magnitude.clamp(min=info.tiny))
    return torch.ldexp(torch.full_like(magnitude, info.eps), exponent - 1)


def compare(
    candidate: torch.Tensor,
    truth: torch.Tensor,
    eager: torch.Tensor,
    precision: torch.dtype,
    *,
    products: bool = False,
    noise: torch.Tensor | None = None,
) -> Comparison:
    """Compare a candidate's result with the float64 truth. `precision` is the lowest dtype that its inputs have.

    products: the reference multiplies matrices. noise: eager's own fp32 error at inputs a rounding away, where one sample of it
    is not enough: a loss is one number and eager may be lucky, and a constant column has no variance.

    Shapes must be equal. NaN never equals NaN by accident: where truth is NaN and eager is too, the candidate must be.
    """
    candidate, truth, eager = candidate.double().flatten(), truth.double().flatten(), eager.double().flatten()
    problem = _nonfinite_problem(candidate, truth, eager, precision)
    if problem:
        return Comparison(problem, float("inf"), 0.0, float("inf"))
    finite = candidate.isfinite() & truth.isfinite() & eager.isfinite()
    around = torch.zeros_like(truth) if noise is None else noise.double().flatten().nan_to_num(0.0, 0.0)
    candidate, truth, eager, around = candidate[finite], truth[finite], eager[finite], around[finite]
    if not truth.numel():
        return Comparison("", 0.0, 0.0, 0.0)
    error, eager_error = (candidate - truth).abs(), torch.maximum((eager - truth).abs(), around)
    magnitude = truth.abs()
    typical = float(magnitude.square().mean().sqrt())
    ulps = FLOOR_ULPS.get(str(precision).removeprefix("torch."), FLOOR_ULPS_FP32)
    floor = (ulps + CHUNK_ULPS * products) * ulp(magnitude, precision) + ABSOLUTE_FP32 * typical
    if typical < SUBNORMAL_FACTORS:
        floor = floor + SUBNORMAL_SHARE * typical
    if products:
        floor = floor + CHUNK_TYPICAL_ULPS * ulp(torch.tensor(typical, dtype=torch.float64), precision)

    # 1. The whole tensor: the worst error, against eager's worst. An outlier anywhere shows here.
    allowed = torch.maximum(floor, WORST_OVER_EAGER * eager_error.max())
    over = error / allowed
    worst = int(over.argmax())
    ratio = float(over[worst])
    if ratio > 1:
        return Comparison(
            _words(candidate, truth, eager, worst, int((over > 1).sum())),
            float(error.max()),
            float(eager_error.max()),
            ratio,
        )
    # 2. Elements of similar size: small results may not hide behind the errors of large ones.
    _, exponents = torch.frexp(magnitude)
    for exponent in exponents.unique().tolist():
        chosen = exponents == exponent
        if int(chosen.sum()) < BIN_MIN:
            continue
        mine, theirs, least = error[chosen], eager_error[chosen], floor[chosen]
        rms = float(mine.square().mean().sqrt())
        rms_allowed = max(BIN_RMS_OVER_EAGER * float(theirs.square().mean().sqrt()), float(least.max()))
        worst_allowed = torch.maximum(least, BIN_WORST_OVER_EAGER * theirs.max())
        bin_ratio = max(rms / rms_allowed, float((mine / worst_allowed).max()))
        if bin_ratio > 1:
            position = int(torch.nonzero(chosen).flatten()[int((mine / worst_allowed).argmax())])
            words = f"among results near {2.0 ** (exponent - 1):.3g}: " + _words(
                candidate, truth, eager, position, int((mine > worst_allowed).sum())
            )
            return Comparison(words, float(error.max()), float(eager_error.max()), bin_ratio)
        ratio = max(ratio, bin_ratio)
    return Comparison("", float(error.max()), float(eager_error.max()), ratio)


def _nonfinite_problem(
    candidate: torch.Tensor, truth: torch.Tensor, eager: torch.Tensor, precision: torch.dtype
) -> str:
    rounded = truth.to(precision).double()  # a truth too large for the dtype is inf in it
    # Where eager itself overflows on the way, inf, NaN and the right value are all acceptable.
    free = ~eager.isfinite() & rounded.isfinite()
    dropped = rounded.isnan() & eager.isnan() & candidate.isfinite()  # inf for NaN is as visible as NaN
    if bool(dropped.any()):
        position = int(dropped.nonzero()[0])
        return f"NaN was dropped in {int(dropped.sum())} of {truth.numel()} elements: {float(candidate[position]):g} where it must be NaN"
    invented = ~candidate.isfinite() & rounded.isfinite() & ~free
    if bool(invented.any()):
        position = int(invented.nonzero()[0])
        return f"{int(invented.sum())} of {truth.numel()} elements are not finite: {float(candidate[position]):g} where truth is {float(truth[position]):g}"
    infinite = rounded.isinf() & eager.isinf()
    wrong = infinite & candidate.isfinite() & (candidate.abs() < torch.finfo(precision).max * 0.99)
    if bool(wrong.any()):
        position = int(wrong.nonzero()[0])
        return f"{int(wrong.sum())} of {truth.numel()} elements are finite where truth is {float(truth[position]):g}: {float(candidate[position]):g}"
    return ""


def _words(
    candidate: torch.Tensor, truth: torch.Tensor, eager: torch.Tensor, position: int, count: int
) -> str:
    return (
        f"{count} of {truth.numel()} elements are too far from the truth; the worst is {float(candidate[position]):.8g} "
        f"where truth is {float(truth[position]):.8g} and eager gives {float(eager[position]):.8g}"
    )
