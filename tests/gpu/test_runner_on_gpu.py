"""The gauntlet and the benchmark where they can show most: on a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from runners.environment import has_gpu
from runners.gauntlet.judges import judges_of
from runners.jobs import run_job
from runners.protocol import BenchmarkPayload, Job, Outcome, Status
from tests.redteam.honest import HONEST, target

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not has_gpu(), reason="needs a CUDA or ROCm GPU")]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    ops = tmp_path / "checkout" / "src" / "kit" / "ops"
    ops.mkdir(parents=True)
    for folder in (ops.parent, ops):
        (folder / "__init__.py").write_text("")
    for name, (source, _, _) in HONEST.items():
        (ops / f"{name}.py").write_text(source)
    return tmp_path / "checkout"


@pytest.mark.parametrize("op", HONEST)
def test_an_honest_candidate_passes_everything(op: str, checkout: Path) -> None:
    with judges_of(target(op), seed=11, deadline_s=280, memory_bytes=64 * 1024**3) as gauntlet:
        outcomes = gauntlet.run(checkout, target(op))
    found = {verdict.check.removeprefix("gauntlet/"): verdict for verdict in outcomes.verdicts}
    assert [v.summary for v in found.values() if v.outcome is Outcome.failed] == []
    assert found["compiled"].outcome is Outcome.passed
    if op == "relu_squared":
        assert found["large"].outcome is Outcome.passed


def test_times_come_with_intervals_noise_and_a_roofline(checkout: Path) -> None:
    payload = BenchmarkPayload(
        checkout=str(checkout),
        target=target("relu_squared"),
        shapes=[(8192, 8192)],
        traffic={"forward_tensors": 2, "backward_tensors": 3},
    )
    report = run_job(
        Job(id="gpu", nonce="n", deadline_s=280, memory_bytes=64 * 1024**3, payload=payload), lambda _: None
    )
    assert report.status is Status.completed, report.log_tail
    (verdict,) = report.verdicts
    assert verdict.outcome is Outcome.passed, verdict.details
    assert "noise" in verdict.details
    times = [m for m in verdict.measurements if m.unit == "ms"]
    assert {m.tags["provider"] for m in times} == {"candidate", "candidate again", "eager", "compile"}
    assert {m.tags["timed"] for m in times} == {"events", "cuda graph"}
    assert all(m.low is not None and m.high is not None and m.low <= m.median <= m.high for m in times)
    assert all(0 < m.median < 1.15 for m in verdict.measurements if m.name.startswith("roofline"))
