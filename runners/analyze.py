"""The analyze job: scan a reference, then trace it in the sandbox. A person's mistake is a Refusal; ours is an error."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from pydantic import ValidationError

from kernels.traced import TracedOp
from runners.protocol import AnalyzePayload, AnalyzeResult, Job, Refusal, Report, Status
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
from runners.static_scan import scan

TRACE = Path(__file__).resolve().parent / "confined" / "trace_reference.py"
DOTTED_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def analyze(job: Job, payload: AnalyzePayload) -> Report:
    """Trace the reference of `payload` and return it with its roles filled in."""
    report = Report(job_id=job.id, nonce=job.nonce, kind="analyze", status=Status.refused)
    refusal = _refusal_before_running(payload)
    if refusal is not None:
        report.refusal = refusal
        return report
    with scratch_folder() as scratch:
        given, made = scratch / "given", scratch / "made"
        given.mkdir()
        made.mkdir()
        (given / "op.json").write_text(payload.op.model_dump_json())
        dotted = [payload.dotted_path] if payload.dotted_path else []
        ended = run_confined(
            Child(
                script=TRACE,
                arguments=[str(given / "op.json"), str(made / "traced.json"), str(OWN_ROOT), *dotted],
                cwd=made,
                limits=Limits(deadline_s=job.deadline_s, memory_bytes=job.memory_bytes, processes=64),
                import_path=[OWN_ROOT, *site_packages(Path(sys.executable))],
                readable=[given],
                writable=[made],
                environment={"OMP_NUM_THREADS": "1"},
                sees_own_packages=True,
            )
        )
        written = read_result(made / "traced.json")
    report.isolation, report.log_tail = ended.isolation, ended.output[-8000:]
    return _judge(report, ended, written)


def _refusal_before_running(payload: AnalyzePayload) -> Refusal | None:
    if payload.dotted_path is not None:
        if DOTTED_PATH.fullmatch(payload.dotted_path):
            return None
        return Refusal(
            reason=f"{payload.dotted_path[:100]!r} is not a dotted path",
            needed='something like "package.module:Name"',
        )
    findings = scan(payload.op.source)
    if not findings:
        return None
    first, more = findings[0], len(findings) - 1
    return Refusal(
        reason=first.message + (f" (and {more} more)" if more else ""),
        where=f"line {first.line}: {first.code}" if first.line else None,
        needed="a reference made of torch operations on its arguments",
    )


def _judge(report: Report, ended: Ended, written: object) -> Report:
    if ended.timed_out:
        report.status = Status.timeout
        report.refusal = Refusal(
            reason=f"tracing the reference took longer than it may: {ended.why}",
            needed="a reference that ends",
        )
    elif not ended.ok or not isinstance(written, dict):
        report.status = Status.crashed
        report.refusal = Refusal(
            reason=f"the reference brought its sandbox down: {ended.why or 'it left no result'}"
        )
    elif written.get("refusal"):
        try:
            report.refusal = Refusal.model_validate(written["refusal"])
        except ValidationError:
            report.status, report.refusal = (
                Status.crashed,
                Refusal(reason="the reference interfered with its tracing"),
            )
    else:
        try:
            traced = TracedOp.model_validate(written.get("traced"))
        except ValidationError:
            report.status, report.refusal = (
                Status.crashed,
                Refusal(reason="the reference interfered with its tracing"),
            )
        else:
            report.status = Status.completed
            report.result = AnalyzeResult(
                op=traced.op, traced=traced.model_dump(mode="json"), questions=list(traced.questions)
            )
    return report
