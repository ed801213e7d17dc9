"""The verify_model job: a model patch, run in the sandbox on an overlay of the checkout; each finding becomes a verdict."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runners.checkout import copy_checkout
from runners.gauntlet.session import INTERPRETED, INTERPRETER
from runners.model_checks.baseline import is_old
from runners.model_checks.import_range import import_range
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
    "part": "which part of a patch that differs is the one that does",
    "vision_modules": "the instance path forgot the vision tower that the class path patches (#763)",
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

    started = time.monotonic()
    with scratch_folder() as scratch:
        copy = copy_checkout(Path(payload.checkout), scratch / "checkout", payload.files)
        before = copy_checkout(Path(payload.checkout), scratch / "before", payload.baseline)
        found, ended = _findings(job, payload, copy, scratch / "after", target_python, heard)
        report.isolation, report.log_tail = ended.isolation, ended.output[-8000:]
        report.verdicts = [_verdict(one) for one in found]
        imported = any(one["name"] == "imports" and one.get("ok") is True for one in found)
        if imported and not payload.only_tests and not payload.scenarios:
            rest = _rest(job, started)
            report.verdicts += import_range(rest, payload, (copy, before), scratch, target_python)
        failed = [one for one in found if one.get("ok") is False]
        if failed and _defines(before, payload):
            narrow = payload.model_copy(update=_only(failed, payload))
            earlier, _ = _findings(
                _rest(job, started), narrow, before, scratch / "baseline", target_python, heard
            )
            report.verdicts = [_blamed(one, found, earlier) for one in report.verdicts]
    if ended.timed_out:
        report.status = Status.timeout
    elif not ended.ok:
        report.status = Status.crashed if not report.verdicts else report.status
        report.verdicts.append(_ended_early(ended))
    return report


def _rest(job: Job, started: float) -> Job:
    """The job with what is left of its time, so that the report comes before its sender gives up."""
    return job.model_copy(update={"deadline_s": max(1.0, job.deadline_s - (time.monotonic() - started))})


def _findings(
    job: Job,
    payload: VerifyModelPayload,
    checkout: Path,
    folder: Path,
    target_python: Path,
    heard: Callable[[str], None],
) -> tuple[list[dict[str, Any]], Ended]:
    """What the scenarios found in `checkout`, and how their process ended."""
    given, made = folder / "given", folder / "made"
    given.mkdir(parents=True)
    made.mkdir()
    (given / "task.json").write_text(json.dumps(task(payload)))
    ended = run_child(job, checkout, given, made, target_python, heard)
    found = read_result(made / "findings.json")
    return [one for one in found if _is_finding(one)] if isinstance(found, list) else [], ended


def _defines(checkout: Path, payload: VerifyModelPayload) -> bool:
    """Whether the patch function was there before the change: only then is there something to compare with."""
    for root in (checkout / "src", checkout):
        path = root / payload.package / "transformers" / "monkey_patch.py"
        if path.is_file() and f"def {payload.function}(" in path.read_text(
            encoding="utf-8", errors="replace"
        ):
            return True
    return False


def _only(failed: list[dict[str, Any]], payload: VerifyModelPayload) -> dict[str, Any]:
    """The part of the job that failed, to be run on the checkout as it was."""
    names = [str(one["name"]) for one in failed]
    wanted = {name.split("/")[0] if name.startswith("flag/") else name for name in names}
    scenarios = [{"flag": "flags"}.get(name, name) for name in wanted]
    scenarios += ["kernel_calls"] if "flags" in scenarios else []
    return {
        "scenarios": scenarios or ["none"],
        "instance_tests": [
            one for one in payload.instance_tests if f"test/{one.partition('::')[2]}" in names
        ],
        "convergence": [
            one
            for one in payload.convergence
            if f"convergence/{one.removeprefix('test/convergence/').removesuffix('.py')}" in names
        ],
    }


def _blamed(verdict: Verdict, after: list[dict[str, Any]], before: list[dict[str, Any]]) -> Verdict:
    """The verdict, or a soft one when everything that it complains of was so before the change."""
    name = verdict.check.removeprefix("model/")
    mine, earlier = (next((one for one in found if one["name"] == name), None) for found in (after, before))
    if verdict.outcome is not Outcome.failed or mine is None:
        return verdict
    # a part of the patch is looked at because its path differs, so it is as old as that difference
    parity = [one for one in after if str(one["name"]).startswith("parity/") and one.get("ok") is False]
    old = is_old(earlier, mine) or (
        name.startswith("part/")
        and all(is_old(next((b for b in before if b["name"] == one["name"]), None), one) for one in parity)
    )
    if not old:
        return verdict
    return verdict.model_copy(
        update={
            "outcome": Outcome.flagged,
            "hard": False,
            "summary": f"already so before this change: {verdict.summary}"[:500],
        }
    )


def task(payload: VerifyModelPayload) -> dict[str, Any]:
    """What the confined child is told about one patch."""
    return payload.model_dump(mode="json", exclude={"kind", "checkout", "sha", "files", "baseline"})


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
            environment={"OMP_NUM_THREADS": "1", **INTERPRETED},
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
