"""The inspect_model job: models of the installed transformers, looked at in the sandbox beside the target's own classes.

Always on the CPU, through the repaired interpreter: what a class computes does not depend on where.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runners.gauntlet.session import INTERPRETED, INTERPRETER
from runners.protocol import InspectModelPayload, InspectModelResult, Job, Progress, Report, Status
from runners.sandbox import Child, Ended, Limits, read_result, run_confined, scratch_folder, site_packages

INSPECT = Path(__file__).resolve().parent / "confined" / "inspect_model.py"
PROBE = Path(__file__).resolve().parent / "model_probe"


def inspect_models(
    job: Job, payload: InspectModelPayload, on_progress: Callable[[Progress], None], target_python: Path
) -> Report:
    """One entry a model in the result. A model that fails is a refusal in its entry; only a lost child makes the job crash."""
    report = Report(job_id=job.id, nonce=job.nonce, kind="inspect_model", status=Status.completed)
    source = Path(payload.checkout) / "src"
    if not source.is_dir():
        source = Path(payload.checkout)
    total = len(payload.models)

    def heard(line: str) -> None:
        words = line.split(" ", 2)
        if words[0] == "model" and len(words) == 3 and words[1].isdigit():
            on_progress(
                Progress(job_id=job.id, done=min(int(words[1]), total), total=total, note=words[2][:100])
            )

    with scratch_folder() as scratch:
        given, made = scratch / "given", scratch / "made"
        given.mkdir()
        made.mkdir()
        (given / "requests.json").write_text(json.dumps([model.model_dump() for model in payload.models]))
        ended = run_confined(
            Child(
                script=INSPECT,
                arguments=[str(INTERPRETER), str(PROBE), str(given / "requests.json"), str(made)],
                python=target_python,
                cwd=made,
                limits=Limits(deadline_s=job.deadline_s, memory_bytes=job.memory_bytes),
                import_path=[source, *site_packages(target_python)],
                readable=[INTERPRETER, PROBE, given],
                writable=[made],
                environment={"OMP_NUM_THREADS": "1", **INTERPRETED},
            ),
            heard,
        )
        results = [_entry(read_result(made / f"{position}.json"), ended) for position in range(total)]
    report.isolation, report.log_tail = ended.isolation, ended.output[-8000:]
    report.result = InspectModelResult(models=results)
    if ended.timed_out:
        report.status = Status.timeout
    elif not ended.ok:
        report.status = Status.crashed
    return report


def _entry(written: Any, ended: Ended) -> dict[str, Any]:
    """A model's result as it was written, or a refusal that says how the child ended without writing one."""
    if isinstance(written, dict) and (
        isinstance(written.get("facts"), dict) or isinstance(written.get("refusal"), dict)
    ):
        return written
    code = "timeout" if ended.timed_out else "crashed"
    return {
        "refusal": {"code": code, "detail": ended.why or "it left no result", "known": []},
        "seconds": 0.0,
    }
