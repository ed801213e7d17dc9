"""The compile job: every kernel of a candidate, compiled offline for every architecture, with what that shows.

It can show registers, spills, shared memory, theoretical occupancy, double-precision arithmetic and 32-bit addresses. It
can't show speed, races, or what a launch does.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from math import lcm
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from runners.checkout import copy_checkout
from runners.occupancy import Occupancy, occupancy
from runners.protocol import (
    CompilePayload,
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
from runners.sandbox import Child, Ended, Limits, read_result, run_confined, scratch_folder, site_packages
from runners.sizes import column_axis, reduced_axes, shape_of

COMPILE = Path(__file__).resolve().parent / "confined" / "compile_kernels.py"
MAX_THREADS = 1024
N_ROWS = 8
SMALL_AXIS = 4
# What a linear layer sums over: torch's work, and how many rows a chunk has. At the large shape chunks of one row would take
# the host a million turns.
REDUCED_AXIS, LARGE_REDUCED_AXIS = 64, 4096
# Recorded on tensors without memory: 2^32 elements, which a 32-bit offset can't reach the end of.
LARGE_ROWS, LARGE_COLS = 2**20, 4096


class Compiled(BaseModel):
    """One kernel compiled for one architecture, as the sandbox reported it."""

    model_config = ConfigDict(extra="ignore")

    kernel: str
    label: str
    arch: str
    error: str | None = None
    registers: int = 0
    spill_bytes: int = 0
    shared: int = 0
    num_warps: int = 4
    warp_size: int = 32
    f64_instructions: int = 0
    overflows: list[str] = []
    large: bool = False
    alternative: bool = False  # with another number of warps than the candidate asks for
    elapsed_s: float = 0.0

    @property
    def threads(self) -> int:
        return self.num_warps * self.warp_size

    def occupancy(self) -> Occupancy:
        return occupancy(self.arch, registers=self.registers, shared=self.shared, threads=self.threads)


def check_compile(
    job: Job, payload: CompilePayload, on_progress: Callable[[Progress], None], target_python: Path
) -> Report:
    """One verdict an architecture, with a measurement for each kernel and width."""
    report = Report(job_id=job.id, nonce=job.nonce, kind="compile", status=Status.completed)
    done = 0

    def heard(line: str) -> None:
        nonlocal done
        if line.startswith("compiled "):
            done += 1
            on_progress(Progress(job_id=job.id, done=done, note=line[:200]))

    with scratch_folder() as scratch:
        copy = copy_checkout(Path(payload.checkout), scratch / "checkout")
        # Two processes: compiling uses one core, and each needs the candidate imported.
        halves = [half for half in (payload.archs[0::2], payload.archs[1::2]) if half]
        with ThreadPoolExecutor(len(halves)) as pool:
            runs = list(
                pool.map(
                    lambda pair: _run(
                        job, payload, pair[1], copy, scratch / f"half{pair[0]}", target_python, heard
                    ),
                    enumerate(halves),
                )
            )
    report.isolation, report.log_tail = runs[0][0].isolation, runs[0][0].output[-8000:]
    for (ended, written), archs in zip(runs, halves, strict=True):
        report.verdicts += _half_verdicts(ended, written, archs, payload)
        if ended.timed_out:
            report.status = Status.timeout
    report.verdicts.sort(
        key=lambda verdict: [f"compile/{arch}" for arch in payload.archs].index(verdict.check)
    )
    return report


def _run(
    job: Job,
    payload: CompilePayload,
    archs: list[str],
    checkout: Path,
    folder: Path,
    python: Path,
    heard: Callable[[str], None],
) -> tuple[Ended, Any]:
    given, made = folder / "given", folder / "made"
    given.mkdir(parents=True)
    made.mkdir()
    target = payload.target
    spec = {
        "module": target.module,
        "function_class": target.function_class,
        "call_order": target.call_order,
        "archs": archs,
        "cases": [_case(target, N_ROWS, n_cols, "bfloat16") for n_cols in payload.n_cols],
        "num_warps": payload.num_warps,
        "large_case": _case(target, LARGE_ROWS, LARGE_COLS, "bfloat16", device="meta"),
    }
    (given / "job.json").write_text(json.dumps(spec))
    ended = run_confined(
        Child(
            script=COMPILE,
            arguments=[str(given / "job.json"), str(made / "compiled.json")],
            python=python,
            cwd=made,
            limits=Limits(deadline_s=job.deadline_s, memory_bytes=job.memory_bytes),
            import_path=[checkout / "src", checkout, *site_packages(python)],
            readable=[checkout, given],
            writable=[made],
            environment={"OMP_NUM_THREADS": "1"},
        ),
        heard,
    )
    return ended, read_result(made / "compiled.json")


def _case(target: KernelTarget, n_rows: int, n_cols: int, dtype: str, device: str = "cpu") -> dict[str, Any]:
    op, tensors, columns = target.op, [], column_axis(target.op)
    reduced = reduced_axes(op)

    def other(axis: str) -> int:
        small = (
            (LARGE_REDUCED_AXIS if n_rows == LARGE_ROWS else REDUCED_AXIS) if axis in reduced else SMALL_AXIS
        )
        return lcm(small, target.multiples.get(axis, 1))

    for spec in op.tensors:
        shape = shape_of(spec, [n_rows], n_cols, columns, other)
        kind = dtype if spec.dtype == "float" else spec.dtype
        needs_grad = spec.dtype == "float" and spec.needs_grad
        tensors.append({"name": spec.name, "dtype": kind, "shape": shape, "requires_grad": needs_grad})
    return {
        "label": f"{n_cols} columns {dtype}" if n_rows == N_ROWS else f"{n_rows}x{n_cols} {dtype}",
        "device": device,
        "tensors": tensors,
        "scalars": {scalar.name: scalar.default for scalar in op.scalars},
    }


def _half_verdicts(ended: Ended, written: Any, archs: list[str], payload: CompilePayload) -> list[Verdict]:
    def all_failed(summary: str, details: str = "") -> list[Verdict]:
        return [_verdict(arch, Outcome.failed, summary, payload, details=details) for arch in archs]

    if not isinstance(written, dict):
        return all_failed(
            f"the kernels could not be compiled: {ended.why or 'the process left no result'}",
            ended.output[-8000:],
        )
    if written.get("error"):
        return all_failed(
            f"the candidate's host code failed: {str(written['error'])[:300]}",
            str(written.get("traceback", "")),
        )
    try:
        compiled = [Compiled.model_validate(item) for item in written["compiled"]]
    except (ValidationError, KeyError, TypeError):
        return all_failed("the compiling process left a result that can't be read")
    if not compiled:
        return all_failed("no kernel was launched, so there is nothing to compile")
    unseen = str(written.get("large_error") or "")[:300]
    return [_arch_verdict(arch, [c for c in compiled if c.arch == arch], payload, unseen) for arch in archs]


def _arch_verdict(arch: str, compiled: list[Compiled], payload: CompilePayload, unseen: str) -> Verdict:
    """`unseen` says why offsets could not be followed at the large shape, or is empty."""
    alternatives = [each for each in compiled if each.alternative and not each.error]
    compiled = [each for each in compiled if not each.alternative]
    hard = [problem for each in compiled for problem in _hard_problems(each)]
    missing = sorted(set(payload.target.kernels) - {each.kernel for each in compiled})
    if missing:
        hard.append(f"{', '.join(missing)} is never launched")
    good = [each for each in compiled if not each.error and not each.large]
    soft = [
        f"{each.kernel} ({each.label}) spills {each.spill_bytes} bytes" for each in good if each.spill_bytes
    ]
    if unseen:
        soft.append(
            f"offsets past 2^31 elements were not checked: the host code can't run without memory: {unseen}"
        )
    details = "\n".join(
        [*hard, *soft, "", *map(_line, good), *(each.error or "" for each in compiled if each.error)]
    )
    if hard:
        outcome, summary = Outcome.failed, hard[0]
    elif soft:
        outcome, summary = (
            Outcome.flagged,
            soft[0] + (f" (and {len(soft) - 1} more)" if len(soft) > 1 else ""),
        )
    else:
        registers = max(each.registers for each in good)
        lowest = min(good, key=lambda each: each.occupancy().fraction)
        outcome = Outcome.passed
        summary = f"{len(good)} kernels compile; at most {registers} registers, no spills, occupancy at least {lowest.occupancy().fraction:.0%}"
    verdict = _verdict(arch, outcome, summary, payload, details=details)
    verdict.hard = outcome is not Outcome.flagged
    verdict.elapsed_s = sum(each.elapsed_s for each in compiled)
    verdict.measurements = [
        measurement for each in (*good, *alternatives) for measurement in _measurements(each)
    ]
    return verdict


def _hard_problems(each: Compiled) -> list[str]:
    where = f"{each.kernel} ({each.label})"
    if each.error:
        return [f"{where} does not compile: {each.error.splitlines()[0][:300]}"]
    problems = []
    if each.threads > MAX_THREADS:
        problems.append(
            f"{where} asks for {each.num_warps} warps of {each.warp_size} threads: {each.threads}, at most {MAX_THREADS} can be launched"
        )
    if each.f64_instructions:
        problems.append(
            f"{where} computes in double precision when a scalar is passed as fp64 ({each.f64_instructions} instructions)"
        )
    if each.overflows:
        problems.append(f"{where} makes offsets in 32 bits that overflow: {each.overflows[0][:200]}")
    if each.occupancy().blocks == 0:
        problems.append(
            f"{where} does not fit: {each.shared} bytes of shared memory, {each.registers} registers"
        )
    return problems


def _line(each: Compiled) -> str:
    found = each.occupancy()
    return (
        f"{each.kernel}, {each.label}: {each.num_warps} warps, {each.registers} registers, {each.spill_bytes} B spilled, "
        f"{each.shared} B shared, occupancy {found.fraction:.0%} (limited by {found.limit})"
    )


def _measurements(each: Compiled) -> list[Measurement]:
    tags = {"kernel": each.kernel, "arch": each.arch, "shape": each.label, "num_warps": str(each.num_warps)}
    tags |= {"alternative": "yes"} if each.alternative else {}
    values = {
        "registers": ("registers", float(each.registers)),
        "spill": ("bytes", float(each.spill_bytes)),
        "shared memory": ("bytes", float(each.shared)),
        "theoretical occupancy": ("ratio", each.occupancy().fraction),
    }
    return [
        Measurement(name=f"{name} {each.kernel} {each.label}", unit=unit, median=value, tags=tags)
        for name, (unit, value) in values.items()
    ]


def _verdict(
    arch: str, outcome: Outcome, summary: str, payload: CompilePayload, details: str = ""
) -> Verdict:
    return Verdict(
        check=f"compile/{arch}",
        gate=Gate.compile,
        outcome=outcome,
        summary=summary[:500],
        details=details.strip()[:20_000],
        path=payload.target.path,
    )
