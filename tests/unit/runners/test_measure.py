"""From raw times to verdicts: intervals, noise, alarms, and what is said without a GPU."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kernels.op_spec import OpSpec, TensorSpec
from runners.measure import Timed, Timings, predicted_bytes, verdicts
from runners.protocol import BenchmarkPayload, KernelTarget, Outcome
from runners.statistics import median_interval, noise_floor

TARGET = KernelTarget(
    op=OpSpec(name="relu_squared", entry="f", source="", tensors=(TensorSpec(name="x", shape=("*", "n_cols")),)),
    module="kit.ops.relu_squared", function_class="F", kernels=["k"], call_order=["x"], path="src/kit/ops/relu_squared.py",
)  # fmt: skip
SHAPE = (8192, 16384)
PAYLOAD = BenchmarkPayload(
    checkout="", target=TARGET, shapes=[SHAPE], traffic={"forward_tensors": 2, "backward_tensors": 3}
)


def timings(problems: list[str] | None = None, **medians: float) -> Timings:
    timed = [
        Timed(
            provider=provider.replace("_", " "),
            shape=SHAPE,
            dtype="bfloat16",
            pass_="forward",
            ms=[ms * f for f in (0.99, 1.0, 1.01)] * 5,
        )
        for provider, ms in medians.items()
    ]
    return Timings(copy_tbps=4.28, timed=timed, problems=problems or [])


def only(found: list[Any]) -> Any:
    assert len(found) == 1
    return found[0]


def test_a_faster_candidate_passes_and_says_by_how_much() -> None:
    verdict = only(verdicts(timings(candidate=0.135, candidate_again=0.1351, eager=0.27), PAYLOAD))
    assert verdict.outcome is Outcome.passed
    assert "forward 2.00x" in verdict.summary
    assert "93% of copy bandwidth" in verdict.details


def test_slower_than_the_incumbent_is_flagged_not_blocked() -> None:
    verdict = only(
        verdicts(timings(candidate=0.150, candidate_again=0.1501, eager=0.27, incumbent=0.14), PAYLOAD)
    )
    assert verdict.outcome is Outcome.flagged
    assert not verdict.hard
    assert "7.1% slower than the incumbent" in verdict.summary


def test_a_difference_inside_the_noise_is_none() -> None:
    verdict = only(
        verdicts(timings(candidate=0.150, candidate_again=0.165, eager=0.27, incumbent=0.14), PAYLOAD)
    )
    assert verdict.outcome is Outcome.passed


def test_a_time_that_memory_does_not_allow_is_refused() -> None:
    """Row 14 of the known cheats: one impossible time collapses an aggregate."""
    verdict = only(verdicts(timings(candidate=0.001, candidate_again=0.001, eager=0.27), PAYLOAD))
    assert verdict.outcome is Outcome.failed
    assert verdict.hard
    assert "faster than memory allows" in verdict.summary


def test_a_dishonest_clock_is_a_failure_of_its_own() -> None:
    found = verdicts(
        timings(["the candidate replaced the timer"], candidate=0.135, candidate_again=0.135, eager=0.27),
        PAYLOAD,
    )
    assert [v.check for v in found if v.outcome is Outcome.failed] == ["benchmark/honesty"]


def test_graph_times_are_compared_only_when_all_have_them() -> None:
    some = timings(candidate=0.2, candidate_again=0.2, eager=0.27)
    some.timed[0].graph_ms = [0.01] * 5
    assert "forward 1.35x" in only(verdicts(some, PAYLOAD)).summary


def test_bytes_follow_the_profile() -> None:
    assert predicted_bytes(PAYLOAD, SHAPE, "bfloat16", "forward") == 2 * 8192 * 16384 * 2
    assert predicted_bytes(PAYLOAD, SHAPE, "float32", "full") == 5 * 8192 * 16384 * 4
    per_row = PAYLOAD.model_copy(update={"traffic": {"forward_tensors": 2, "forward_per_row_bytes": 4}})
    assert predicted_bytes(per_row, (10, 100), "bfloat16", "forward") == 2 * 1000 * 2 + 40


def test_the_interval_covers_the_median_as_often_as_it_says() -> None:
    draw = random.Random(0)  # noqa: S311 - reproducible
    covered = 0
    for _ in range(400):
        _, low, high = median_interval([draw.gauss(0, 1) for _ in range(25)])
        covered += low <= 0 <= high
    assert covered >= 0.93 * 400


@pytest.mark.parametrize("n", [1, 2, 5])
def test_few_samples_give_the_whole_range(n: int) -> None:
    samples = [float(i) for i in range(n)]
    assert median_interval(samples)[1:] == (0.0, float(n - 1))


def test_no_samples_is_an_error() -> None:
    with pytest.raises(ValueError, match="no samples"):
        median_interval([])


def test_the_noise_floor_is_symmetric() -> None:
    assert noise_floor([1.0, 1.1, 1.2], [1.21]) == noise_floor([1.21], [1.0, 1.1, 1.2]) == pytest.approx(0.1)
