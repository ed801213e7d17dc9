"""The correctness job: imports, the target's own tests, and the gauntlet, at the same time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from runners.checkout import copy_checkout, inside
from runners.checks.imports import import_verdicts
from runners.checks.target_tests import file_verdicts, parse_junit
from runners.environment import has_gpu
from runners.gauntlet.judges import judges_of
from runners.gauntlet.session import INTERPRETED, INTERPRETER, Outcomes
from runners.protocol import CorrectnessPayload, Isolation, Job, Progress, Report, Status, Verdict
from runners.sandbox import Child, Limits, read_result, run_confined, scratch_folder, site_packages

RUN_TESTS = Path(__file__).resolve().parent / "confined" / "run_tests.py"


class Counter:
    """Progress of two things at once, as one stream."""

    def __init__(self, job_id: str, on_progress: Callable[[Progress], None]) -> None:
        self._job_id, self._on_progress = job_id, on_progress
        self._lock = threading.Lock()
        self._done: dict[str, int] = {}
        self._total: dict[str, int] = {}

    def __call__(self, part: str, done: int, total: int | None, note: str) -> None:
        with self._lock:
            self._done[part] = done
            if total is not None:
                self._total[part] = total
            known = sum(self._total.values()) if self._total else None
            self._on_progress(
                Progress(job_id=self._job_id, done=sum(self._done.values()), total=known, note=note)
            )


def check_correctness(
    job: Job, payload: CorrectnessPayload, on_progress: Callable[[Progress], None], target_python: Path
) -> Report:
    """Run everything that says whether a candidate is right. The checkout is copied; the original is not touched."""
    report = Report(job_id=job.id, nonce=job.nonce, kind="correctness", status=Status.completed)
    counter = Counter(job.id, on_progress)
    started = time.monotonic()
    with scratch_folder() as scratch:
        copy = copy_checkout(Path(payload.checkout), scratch / "checkout")
        for argument in [*payload.tests, *payload.neighbours]:
            inside(copy, argument.split("::")[0])
        with ThreadPoolExecutor(2) as pool:
            tests = pool.submit(_tests, job, payload, copy, target_python, counter)
            gauntlet = pool.submit(_gauntlet, job, payload, copy, target_python, counter)
            verdicts, isolation, log, timed_out = tests.result()
            outcomes = gauntlet.result()
    report.verdicts = [*verdicts, *outcomes.verdicts]
    report.isolation = isolation or outcomes.isolation
    report.log_tail = (log or outcomes.log)[-8000:]
    if outcomes.refusal is not None:
        report.status, report.refusal = Status.refused, outcomes.refusal
    elif timed_out and time.monotonic() - started >= job.deadline_s:
        report.status = Status.timeout
    return report


def _gauntlet(
    job: Job, payload: CorrectnessPayload, copy: Path, target_python: Path, counter: Counter
) -> Outcomes:
    if payload.target is None:
        return Outcomes([], None, None, "")
    settings = {
        "seed": payload.seed,
        "deadline_s": job.deadline_s,
        "memory_bytes": job.memory_bytes,
        "python": target_python,
    }
    with judges_of(payload.target, **settings) as judges:
        return judges.run(
            copy,
            payload.target,
            lambda done, total, name: counter("gauntlet", done, total, f"gauntlet {name}"),
        )


def _tests(
    job: Job, payload: CorrectnessPayload, copy: Path, target_python: Path, counter: Counter
) -> tuple[list[Verdict], Isolation | None, str, bool]:
    if not (payload.tests or payload.neighbours or payload.imports):
        return [], None, "", False
    gpu = has_gpu()
    made = copy.parent / "made"
    made.mkdir()
    files = [*payload.tests, *payload.neighbours]
    junit, found = made / "junit.xml", made / "imports.json"
    seen = 0

    def heard(line: str) -> None:
        nonlocal seen
        if any(f" {word}" in line for word in ("PASSED", "FAILED", "SKIPPED", "ERROR")) and "::" in line:
            seen += 1
            counter("tests", seen, None, line.split(" ", maxsplit=1)[0][-160:])

    pytest_arguments = [
        "-v", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts=", "-o", "log_cli=false", "--color=no", "--rootdir", str(copy),
        "-o", "junit_family=xunit1", f"--junitxml={junit}", *files,
    ]  # fmt: skip
    ended = run_confined(
        Child(
            script=RUN_TESTS,
            arguments=[
                "-" if gpu else str(INTERPRETER),
                "--imports",
                str(found),
                *payload.imports,
                "--",
                *(pytest_arguments if files else []),
            ],
            python=target_python,
            cwd=copy,
            limits=Limits(deadline_s=job.deadline_s, memory_bytes=job.memory_bytes),
            import_path=[copy / "src", copy, *site_packages(target_python)],
            readable=[] if gpu else [INTERPRETER],
            writable=[copy, made],
            environment={"OMP_NUM_THREADS": "1", **({} if gpu else INTERPRETED)},
            gpu=gpu,
        ),
        heard,
    )
    # pytest's own exit codes 0 to 5 are about the tests, which the report tells better.
    why = "" if ended.returncode in range(6) else ended.why
    verdicts = import_verdicts(payload.imports, read_result(found), ended.why)
    verdicts += file_verdicts(
        payload.tests, payload.neighbours, parse_junit(junit) if files else None, why, ended.output
    )
    return verdicts, ended.isolation, ended.output, ended.timed_out
