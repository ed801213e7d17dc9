"""Runs one job and returns its report: which payload goes where, how long it took, and that nothing escapes."""

from __future__ import annotations

import logging
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from runners.confinement import UnconfinedError
from runners.environment import current_environment
from runners.protocol import (
    AnalyzePayload,
    BenchmarkPayload,
    CompilePayload,
    CorrectnessPayload,
    InspectModelPayload,
    Job,
    Progress,
    Report,
    Status,
    StylePayload,
    VerifyModelPayload,
)  # fmt: skip

log = logging.getLogger(__name__)
OnProgress = Callable[[Progress], None]


def run_job(job: Job, on_progress: OnProgress, target_python: Path = Path(sys.executable)) -> Report:
    """Run `job`; a fault of ours becomes a report with status `error`, never an exception."""
    started = time.monotonic()
    try:
        report = _run(job, on_progress, target_python)
    except UnconfinedError as error:
        log.error("job %s (%s) was not run: %s", job.id, job.payload.kind, error)  # noqa: TRY400 - the message says all
        report = _fault(job, str(error))
    except (
        Exception
    ):  # the last line of defence: whatever broke, the peer gets a report that says it is our fault
        log.exception("job %s (%s) failed", job.id, job.payload.kind)
        report = _fault(job, traceback.format_exc()[-8000:])
    report.environment = current_environment()
    report.elapsed_s = time.monotonic() - started
    return report


def _fault(job: Job, why: str) -> Report:
    return Report(job_id=job.id, nonce=job.nonce, kind=job.payload.kind, status=Status.error, log_tail=why)


def _run(job: Job, on_progress: OnProgress, target_python: Path) -> Report:
    payload = job.payload
    if isinstance(payload, AnalyzePayload):
        from runners.analyze import analyze

        on_progress(Progress(job_id=job.id, done=0, total=1, note="tracing the reference"))
        return analyze(job, payload)
    if isinstance(payload, StylePayload):
        from runners.checks.style import check_style

        return check_style(job, payload, on_progress)
    if isinstance(payload, CorrectnessPayload):
        from runners.correctness import check_correctness

        return check_correctness(job, payload, on_progress, target_python)
    if isinstance(payload, CompilePayload):
        from runners.compile_only import check_compile

        return check_compile(job, payload, on_progress, target_python)
    if isinstance(payload, VerifyModelPayload):
        from runners.model_checks.verify import verify_model

        return verify_model(job, payload, on_progress, target_python)
    if isinstance(payload, InspectModelPayload):
        from runners.inspect_model import inspect_models

        return inspect_models(job, payload, on_progress, target_python)
    assert isinstance(payload, BenchmarkPayload)  # noqa: S101 - the union has no other member
    from runners.measure import measure

    return measure(job, payload, on_progress, target_python)
