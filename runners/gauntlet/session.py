"""Runs one gauntlet: a judge in one sandbox, the candidate in another, files between them."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from runners.environment import has_gpu
from runners.protocol import Gate, Isolation, KernelTarget, Outcome, Refusal, Verdict
from runners.sandbox import OWN_ROOT, Child, Limits, read_result, run_confined, scratch_folder, site_packages

HERE = Path(__file__).resolve().parent
CANDIDATE = HERE.parent / "confined" / "candidate.py"
INTERPRETER = HERE.parent / "interpreter.py"
CASE_LINE = re.compile(r"case (\d+)/(\d+) (.*)")
VERDICTS = TypeAdapter(list[Verdict])


@dataclass(frozen=True)
class Outcomes:
    """What a gauntlet found. `refusal` when the reference itself could not be run."""

    verdicts: list[Verdict]
    refusal: Refusal | None
    isolation: Isolation | None
    log: str


def run_gauntlet(
    checkout: Path, target: KernelTarget, *, seed: int, deadline_s: float, memory_bytes: int, python: Path, on_case: Callable[[int, int, str], None],
    families: Sequence[str] = (),
) -> Outcomes:
    """Judge `target`, as it stands in `checkout` (read only), against its reference; by all families, or those named."""
    gpu = has_gpu()
    with scratch_folder() as scratch:
        cases, output, judged = scratch / "cases", scratch / "output", scratch / "judged"
        for folder in (cases, output, judged):
            folder.mkdir()
        target_file = cases / "target.json"
        target_file.write_text(target.model_dump_json())
        limits = Limits(deadline_s=deadline_s, memory_bytes=memory_bytes, processes=64 if not gpu else 512)
        judge = Child(
            script=HERE / "judge.py",
            arguments=[str(target_file), str(seed), str(cases), str(output), str(judged / "verdicts.json"), *families],
            cwd=judged,
            limits=limits,
            import_path=[OWN_ROOT, *site_packages(Path(sys.executable))],
            readable=[output],
            writable=[cases, judged],
            environment={"OMP_NUM_THREADS": "1"},
            sees_own_packages=True,
            undumpable=True,
            gpu=gpu,
        )
        candidate = Child(
            script=CANDIDATE,
            arguments=[str(cases), str(output), *([] if gpu else [str(INTERPRETER)])],
            python=python,
            cwd=output,
            limits=limits,
            import_path=[checkout / "src", checkout, *site_packages(python)],
            readable=[checkout, cases, INTERPRETER.parent / "confined", *([] if gpu else [INTERPRETER])],
            writable=[output],
            environment={"OMP_NUM_THREADS": "1", **({} if gpu else {"TRITON_INTERPRET": "1"})},
            gpu=gpu,
        )

        def heard(line: str) -> None:
            if match := CASE_LINE.fullmatch(line):
                on_case(int(match[1]), int(match[2]), match[3][:200])

        with ThreadPoolExecutor(1) as pool:
            judging = pool.submit(run_confined, judge)
            ran = run_confined(candidate, heard)
            part = cases / "ended.json.part"
            part.write_text(json.dumps({"why": ran.why}))
            os.replace(part, cases / "ended.json")
            judge_ended = judging.result()
        return _outcomes(read_result(judged / "verdicts.json"), ran.isolation, ran.output, judge_ended.why + "\n" + judge_ended.output)


def _outcomes(written: object, isolation: Isolation, log: str, judge_log: str) -> Outcomes:
    if isinstance(written, dict) and written.get("refusal"):
        return Outcomes([], Refusal(reason=str(written["refusal"])), isolation, log)
    try:
        verdicts = VERDICTS.validate_python(written["verdicts"] if isinstance(written, dict) else None)
    except ValidationError:
        lost = Verdict(
            check="gauntlet", gate=Gate.correctness, outcome=Outcome.failed, summary="the judge could not finish", details=judge_log.strip()[-20_000:]
        )
        return Outcomes([lost], None, isolation, log)
    return Outcomes(verdicts, None, isolation, log)
