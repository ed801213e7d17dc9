"""The verify_model job: a model patch, run in the sandbox on an overlay of the checkout; each finding becomes a verdict."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runners.checkout import copy_checkout
from runners.gauntlet.session import INTERPRETER
from runners.protocol import (
    Gate,
    Job,
    Outcome,
    Progress,
    Report,
    Status,
    Verdict,
    VerifyModelPayload,
)
from runners.sandbox import Child, Ended, Limits, read_result, run_confined, scratch_folder, site_packages

SCRIPT = Path(__file__).resolve().parent.parent / "confined" / "verify_model.py"
SCENARIOS = Path(__file__).resolve().parent / "confined"
MAX_DETAILS = 20_000
# check -> the bug it stands for, for a person who asks why it is there
REASONS = {
    "imports": "an import of something that this transformers lacks broke the whole package (#1169)",
    "dead_names": "an assignment to a name that the modeling module lacks patches nothing (#1165, #1166)",
    "signature": "HuggingFace added or dropped a parameter of forward (#1117, #1140, #1155)",
    "kernel_calls": "the class and the instance path patched different modules (#763, #905)",
    "flag": "a flag that changes nothing, or whose path fails (#1263)",
    "parity": "a wrong casting mode, offset or in-place backward diverges silently (#370, #305)",
    "others_untouched": "an instance patch reached other models (#776, #907)",
    "forward_cases": "labels, shift_labels and logits_to_keep in combination (#678, #974, #1181)",
    "revert": "the next test started from a patched model",
    "test": "the instance test of the patch",
    "convergence": "the checkout's convergence tests, reduced: fp32 and bf16, fused loss and logits",
}


def verify_model(
    job: Job, payload: VerifyModelPayload, on_progress: Callable[[Progress], None], target_python: Path
) -> Report:
    """Run every scenario of `payload`. The checkout is copied; the original is not touched."""
    report = Report(job_id=job.id, nonce=job.nonce, kind=payload.kind, status=Status.completed)
    seen = 0

    def heard(line: str) -> None:
        nonlocal seen
        if line.startswith("verify "):
            seen += 1
            on_progress(Progress(job_id=job.id, done=seen, total=_expected(payload), note=line.strip()[:160]))

    with scratch_folder() as scratch:
        copy = copy_checkout(Path(payload.checkout), scratch / "checkout", payload.files)
        given, made = scratch / "given", scratch / "made"
        given.mkdir()
        made.mkdir()
        (given / "task.json").write_text(json.dumps(task(payload)))
        ended = run_child(job, copy, given, made, target_python, heard)
        found = read_result(made / "findings.json")
    report.isolation, report.log_tail = ended.isolation, ended.output[-8000:]
    report.verdicts = [_verdict(one) for one in found if _is_finding(one)] if isinstance(found, list) else []
    if ended.timed_out:
        report.status = Status.timeout
    elif not ended.ok:
        report.status = Status.crashed if not report.verdicts else report.status
        report.verdicts.append(_ended_early(ended))
    return report


def task(payload: VerifyModelPayload) -> dict[str, Any]:
    """What the confined child is told about one patch."""
    return payload.model_dump(mode="json", exclude={"kind", "checkout", "sha", "files"})


def _expected(payload: VerifyModelPayload) -> int:
    """Findings of a run that goes to its end: the fixed scenarios, two a flag, one a test."""
    return 11 + 2 * len(payload.flags) + len(payload.instance_tests) + len(payload.convergence)


def run_child(
    job: Job, copy: Path, given: Path, made: Path, target_python: Path, heard: Callable[[str], None]
) -> Ended:
    # Kernels run in the interpreter even beside a GPU: the scenarios fork, and CUDA can't be forked. The checkout's own
    # convergence tests run on the GPU in the correctness job.
    return run_confined(
        Child(
            script=SCRIPT,
            arguments=[
                str(INTERPRETER),
                str(SCENARIOS),
                str(given / "task.json"),
                str(made / "findings.json"),
            ],
            python=target_python,
            cwd=copy,
            limits=Limits(deadline_s=job.deadline_s, memory_bytes=job.memory_bytes),
            import_path=[copy / "src", copy, *site_packages(target_python)],
            readable=[INTERPRETER, SCENARIOS, given],
            writable=[copy, made],
            environment={"OMP_NUM_THREADS": "1", "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""},
        ),
        heard,
    )


def _is_finding(one: object) -> bool:
    return isinstance(one, dict) and isinstance(one.get("name"), str) and isinstance(one.get("summary"), str)


def _verdict(one: dict[str, Any]) -> Verdict:
    name, ok = one["name"], one.get("ok")
    soft = name.startswith("convergence/") and ok is False and _only_tolerance(str(one.get("details", "")))
    outcome = Outcome.passed if ok is True else Outcome.skipped if ok is None else Outcome.failed
    reason = REASONS.get(name.split("/")[0], "")
    details = str(one.get("details", ""))
    return Verdict(
        check=f"model/{name}"[:200],
        gate=Gate.correctness,
        outcome=Outcome.flagged if soft else outcome,
        hard=not soft,
        summary=one["summary"][:500],
        details=(f"Stands for: {reason}.\n{details}" if reason else details)[:MAX_DETAILS],
        elapsed_s=_seconds(one.get("seconds")),
    )


def _only_tolerance(details: str) -> bool:
    """The comparison of the checkout's test failed by distance: no NaN, no missing value, no other exception."""
    last = details.strip().splitlines()[-1] if details.strip() else ""
    return (
        "Number of mismatched elements" in details and "Mismatch at" in last and "nan" not in details.lower()
    )


def _seconds(value: object) -> float:
    return float(value) if isinstance(value, int | float) and value >= 0 else 0.0


def _ended_early(ended: Ended) -> Verdict:
    return Verdict(
        check="model/process",
        gate=Gate.correctness,
        outcome=Outcome.failed,
        summary=f"the run ended early: {ended.why or 'it left no result'}"[:500],
        details=ended.output[-4000:],
    )
