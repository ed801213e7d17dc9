"""The benchmark job: honest times on a GPU, or, without one, the bytes model and why there is nothing more.

Honest means: candidate and baselines interleaved in one process, L2 flushed before each call, values fresh, an A/A pair
for the noise floor, medians with intervals, a CUDA-graph column where launching dominates, percent of a roofline that is
measured in the same process, and peak memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from math import lcm
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from runners.checkout import copy_checkout
from runners.environment import has_gpu
from runners.protocol import (
    BenchmarkPayload,
    Gate,
    Job,
    KernelTarget,
    Measurement,
    Outcome,
    Progress,
    Report,
    Status,
    Verdict,
)
from runners.sandbox import (
    OWN_ROOT,
    Child,
    Ended,
    Limits,
    read_result,
    run_confined,
    scratch_folder,
    site_packages,
)
from runners.sizes import ROWS, column_axis, label_axis, reduced_axes, table_axis
from runners.statistics import median_interval, noise_floor

TIME_KERNELS = Path(__file__).resolve().parent / "confined" / "time_kernels.py"
ITEMSIZE = {"float32": 4, "bfloat16": 2, "float16": 2}
# Device-to-device copy on an H200 (torch 2.11, driver 580), read + written: 4.28 TB/s. Used only for predictions.
H200_COPY_BYTES_PER_S = 4.28e12
SLOWER_THAN_INCUMBENT = 1.03  # the design's bound; a larger noise floor widens it
# Work larger than any L2 cache can't move faster than a copy; a little more is timing noise.
ALARM_BYTES = 256 * 1024**2
ALARM_OVER_COPY = 1.15
# Axes other than rows and columns: small ones, what a linear layer sums over, and the rows of a table that labels index.
SMALL_AXIS, REDUCED_AXIS, TABLE_AXIS = 4, 4096, 32768
PASSES = ("forward", "backward", "full")


class Timed(BaseModel):
    """Samples of one provider at one point, in milliseconds; `graph_ms` under a CUDA graph."""

    model_config = ConfigDict(extra="forbid")

    provider: str
    shape: tuple[int, int]
    dtype: str
    pass_: str
    ms: list[float]
    graph_ms: list[float] = []
    peak_bytes: int | None = None
    error: str | None = None


class Timings(BaseModel):
    """What the timing process reports."""

    model_config = ConfigDict(extra="forbid")

    copy_tbps: float
    timed: list[Timed]
    problems: list[str] = []


def measure(
    job: Job, payload: BenchmarkPayload, on_progress: Callable[[Progress], None], target_python: Path
) -> Report:
    """Time the candidate against its baselines, or say why not."""
    report = Report(job_id=job.id, nonce=job.nonce, kind="benchmark", status=Status.completed)
    if not has_gpu():
        report.verdicts = [_prediction(payload)]
        return report
    ended, written = _time(job, payload, on_progress, target_python)
    report.isolation, report.log_tail = ended.isolation, ended.output[-8000:]
    if ended.timed_out:
        report.status = Status.timeout
    try:
        timings = Timings.model_validate(written)
    except ValidationError:
        summary = f"the benchmark did not finish: {ended.why or 'its result could not be read'}"
        report.verdicts = [
            _verdict("benchmark", Outcome.failed, summary, payload, details=ended.output[-8000:])
        ]
        return report
    report.verdicts = verdicts(timings, payload)
    return report


def predicted_bytes(payload: BenchmarkPayload, shape: tuple[int, int], dtype: str, which: str) -> int:
    """Bytes that a pass must move at this shape, from the profile's model; 0 when there is none."""
    traffic, (n_rows, n_cols) = payload.traffic, shape
    if which == "full":
        return sum(predicted_bytes(payload, shape, dtype, each) for each in ("forward", "backward"))
    tensors, per_row = int(traffic.get(f"{which}_tensors", 0)), int(traffic.get(f"{which}_per_row_bytes", 0))
    return tensors * n_rows * n_cols * ITEMSIZE.get(dtype, 2) + per_row * n_rows


def _prediction(payload: BenchmarkPayload) -> Verdict:
    lines, measurements = [], []
    for shape in payload.shapes:
        for dtype in payload.dtypes:
            for which in ("forward", "backward"):
                moved = predicted_bytes(payload, shape, dtype, which)
                floor_ms = moved / H200_COPY_BYTES_PER_S * 1e3
                where = f"{payload.target.op.name} {shape[0]}x{shape[1]} {dtype}"
                lines.append(f"{which} {where}: {moved:,} bytes, at least {floor_ms:.3f} ms at 4.28 TB/s")
                tags = {
                    "op": payload.target.op.name,
                    "shape": f"{shape[0]}x{shape[1]}",
                    "dtype": dtype,
                    "pass": which,
                    "provider": "prediction",
                }
                measurements.append(
                    Measurement(
                        name=f"predicted bytes {which} {where}", unit="bytes", median=float(moved), tags=tags
                    )
                )
                measurements.append(
                    Measurement(
                        name=f"predicted floor {which} {where}", unit="ms", median=floor_ms, tags=tags
                    )
                )
    first = f"; predicted: {lines[0]}" if lines and payload.traffic else ""
    verdict = _verdict(
        "benchmark",
        Outcome.skipped,
        f"no GPU on this runner, so nothing was timed{first}",
        payload,
        details="\n".join(lines),
    )
    verdict.measurements = measurements
    return verdict


def _axes(target: KernelTarget) -> dict[str, Any]:
    """Which axis has the columns, which one labels index, and the sizes of the rest of them."""
    op, reduced = target.op, reduced_axes(target.op)
    sizes = dict.fromkeys(
        (axis for spec in op.tensors for axis in spec.shape if axis not in ROWS), SMALL_AXIS
    )
    sizes |= dict.fromkeys(reduced, REDUCED_AXIS)
    if table := table_axis(op):
        sizes[table] = TABLE_AXIS
    sizes = {axis: lcm(size, target.multiples.get(axis, 1)) for axis, size in sizes.items()}
    return {"columns": column_axis(op), "labels": label_axis(op), "sizes": sizes}


def _time(
    job: Job, payload: BenchmarkPayload, on_progress: Callable[[Progress], None], python: Path
) -> tuple[Ended, Any]:
    done = 0

    def heard(line: str) -> None:
        nonlocal done
        if line.startswith("timed "):
            done += 1
            total = len(payload.shapes) * len(payload.dtypes)
            on_progress(Progress(job_id=job.id, done=done, total=total, note=line[:200]))

    with scratch_folder() as scratch:
        copy = copy_checkout(Path(payload.checkout), scratch / "checkout")
        given, made = scratch / "given", scratch / "made"
        given.mkdir()
        made.mkdir()
        spec = payload.model_dump(mode="json") | {"axes": _axes(payload.target)}
        (given / "job.json").write_text(json.dumps(spec))
        ended = run_confined(
            Child(
                script=TIME_KERNELS,
                arguments=[str(given / "job.json"), str(made / "timings.json"), str(OWN_ROOT)],
                python=python,
                cwd=made,
                limits=Limits(
                    deadline_s=job.deadline_s,
                    memory_bytes=max(job.memory_bytes, 32 * 1024**3),
                    processes=1024,
                ),
                import_path=[copy / "src", copy, *site_packages(python)],
                readable=[given, copy, OWN_ROOT / "kernels", OWN_ROOT / "runners"],
                writable=[made],
                environment={"LD_LIBRARY_PATH": ""},
                sees_own_packages=True,
                gpu=True,
            ),
            heard,
        )
        return ended, read_result(made / "timings.json")


def verdicts(timings: Timings, payload: BenchmarkPayload) -> list[Verdict]:
    """One verdict a shape and dtype, with every measurement, and one for what went wrong with the timing itself."""
    found = [_point(timings, payload, shape, dtype) for shape in payload.shapes for dtype in payload.dtypes]
    if timings.problems:
        found.append(
            _verdict(
                "benchmark/honesty",
                Outcome.failed,
                timings.problems[0],
                payload,
                details="\n".join(timings.problems),
            )
        )
    return found


def _point(timings: Timings, payload: BenchmarkPayload, shape: tuple[int, int], dtype: str) -> Verdict:
    here = [t for t in timings.timed if tuple(t.shape) == tuple(shape) and t.dtype == dtype]
    name = f"{shape[0]}x{shape[1]} {dtype}"
    lines, measurements, slow, gains, broken = [], [], [], [], []
    for which in PASSES:
        by_provider = {t.provider: t for t in here if t.pass_ == which}
        broken += [
            f"{t.provider} {which}: {t.error}"
            for t in by_provider.values()
            if t.error and t.provider == "candidate"
        ]
        good = {provider: t for provider, t in by_provider.items() if t.ms}
        if "candidate" not in good:
            continue
        noise = (
            noise_floor(good["candidate"].ms, good["candidate again"].ms)
            if "candidate again" in good
            else 0.0
        )
        moved = predicted_bytes(payload, shape, dtype, which)
        for t in good.values():
            measurements += _measurements(t, payload, moved, timings.copy_tbps)
        medians = _comparable(good)
        mine = medians["candidate"]
        row = [
            f"{provider} {median:.4f}"
            for provider, median in medians.items()
            if provider != "candidate again"
        ]
        roofline = (
            f", {moved / (mine * 1e-3) / (timings.copy_tbps * 1e12):.0%} of copy bandwidth" if moved else ""
        )
        if moved > ALARM_BYTES and moved / (mine * 1e-3) > ALARM_OVER_COPY * timings.copy_tbps * 1e12:
            broken.append(
                f"{which} is faster than memory allows: {moved / (mine * 1e-3) / 1e12:.2f} TB/s where a copy makes {timings.copy_tbps:.2f}"
            )
        lines.append(f"{which}: {', '.join(row)} ms; noise {noise:.1%}{roofline}")
        if "eager" in good:
            gains.append(f"{which} {medians['eager'] / mine:.2f}x")
        if "incumbent" in good and mine > medians["incumbent"] * max(SLOWER_THAN_INCUMBENT, 1 + noise):
            slow.append(f"{which} is {mine / medians['incumbent'] - 1:.1%} slower than the incumbent")
    if broken:
        outcome, summary = Outcome.failed, f"{name}: {broken[0]}"
    elif slow:
        outcome, summary = Outcome.flagged, f"{name}: {slow[0]}"
    else:
        outcome, summary = Outcome.passed, f"{name}: {', '.join(gains)} over eager"
    verdict = _verdict(
        f"benchmark/{name}", outcome, summary, payload, details="\n".join([*lines, *slow, *broken])
    )
    verdict.hard, verdict.measurements = outcome is Outcome.failed, measurements
    return verdict


def _comparable(good: Mapping[str, Timed]) -> dict[str, float]:
    """Medians of all providers taken the same way: under CUDA graphs if all could be captured, so that Python's launch
    cost is not what is compared, else by events."""
    captured = all(timed.graph_ms for timed in good.values())
    return {
        provider: median_interval(timed.graph_ms if captured else timed.ms)[0]
        for provider, timed in good.items()
    }


def _measurements(timed: Timed, payload: BenchmarkPayload, moved: int, copy_tbps: float) -> list[Measurement]:
    shape = f"{timed.shape[0]}x{timed.shape[1]}"
    tags = {
        "op": payload.target.op.name,
        "shape": shape,
        "dtype": timed.dtype,
        "pass": timed.pass_,
        "provider": timed.provider,
    }
    name = f"{timed.pass_} {payload.target.op.name} {shape} {timed.dtype} {timed.provider}"
    found = []
    for samples, how in ((timed.ms, "events"), (timed.graph_ms, "cuda graph")):
        if samples:
            median, low, high = median_interval(samples)
            found.append(
                Measurement(
                    name=name,
                    unit="ms",
                    median=median,
                    low=low,
                    high=high,
                    n=len(samples),
                    tags={**tags, "timed": how},
                )
            )
    if moved and found:
        fraction = moved / (found[-1].median * 1e-3) / (copy_tbps * 1e12)
        found.append(
            Measurement(
                name=f"roofline {name}",
                unit="ratio",
                median=fraction,
                tags={**tags, "copy_tbps": f"{copy_tbps:.3f}"},
            )
        )
    if timed.peak_bytes is not None:
        found.append(
            Measurement(name=f"peak memory {name}", unit="bytes", median=float(timed.peak_bytes), tags=tags)
        )
    return found


def _verdict(
    check: str, outcome: Outcome, summary: str, payload: BenchmarkPayload, details: str = ""
) -> Verdict:
    return Verdict(
        check=check,
        gate=Gate.benchmark,
        outcome=outcome,
        summary=summary[:500],
        details=details[:20_000],
        path=payload.target.path,
    )
