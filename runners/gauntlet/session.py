"""Runs gauntlets: the judge of one op in one sandbox, each candidate in another of its own, files between them."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from runners.environment import has_gpu
from runners.protocol import Gate, Isolation, KernelTarget, Outcome, Refusal, Verdict
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

HERE = Path(__file__).resolve().parent
CONFINED = HERE.parent / "confined"
INTERPRETER = HERE.parent / "interpreter.py"
CASE_LINE = re.compile(r"case (\d+)/(\d+) (.*)")
INTERPRETED = {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
VERDICTS = TypeAdapter(list[Verdict])
POLL_S = 0.02
OnCase = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Outcomes:
    """What a gauntlet found about one candidate. `refusal` when the reference itself could not be run."""

    verdicts: list[Verdict]
    refusal: Refusal | None
    isolation: Isolation | None
    log: str


@dataclass
class Gauntlet:
    """A judge that is ready for candidates of one op. Made by `gauntlet_of`; `run` may be called from several threads."""

    folder: Path
    limits: Limits
    python: Path
    judging: Future[Ended]
    gpu: bool
    numbers: Iterator[int] = field(default_factory=itertools.count)
    lock: threading.Lock = field(default_factory=threading.Lock)
    waiting: dict[int, dict[str, Any]] = field(default_factory=dict)
    next_ended: int = 0

    def run(
        self,
        checkout: Path,
        target: KernelTarget,
        on_case: OnCase = lambda *_: None,
        families: Sequence[str] = (),
    ) -> Outcomes:
        """Run `target`, as it stands in `checkout` (read only), through all families, or those named."""
        with self.lock:
            number = next(self.numbers)
        given, output = self.folder / f"given-{number}", self.folder / "outputs" / str(number)
        given.mkdir()
        output.mkdir()
        job = {
            "module": target.module, "function_class": target.function_class, "kernels": target.kernels,
            "call_order": target.call_order, "families": list(families), "device": "cuda" if self.gpu else "cpu",
        }  # fmt: skip
        (given / "job.json").write_text(json.dumps(job))
        cases = self.folder / "cases"
        candidate = Child(
            script=CONFINED / "candidate.py",
            arguments=[
                str(given / "job.json"),
                str(cases),
                str(output),
                *([] if self.gpu else [str(INTERPRETER)]),
            ],
            python=self.python,
            cwd=output,
            limits=self.limits,
            import_path=[checkout / "src", checkout, *site_packages(self.python)],
            readable=[checkout, cases, given, *([] if self.gpu else [INTERPRETER])],
            writable=[output],
            environment={"OMP_NUM_THREADS": "1", **({} if self.gpu else INTERPRETED)},
            gpu=self.gpu,
        )

        def heard(line: str) -> None:
            if match := CASE_LINE.fullmatch(line):
                on_case(int(match[1]), int(match[2]), match[3][:200])

        ran = run_confined(candidate, heard)
        self._tell(number, {"why": ran.why, "families": list(families)})
        written = self._verdicts(number)
        return self._outcomes(written, ran)

    def _tell(self, number: int, ended: dict[str, Any]) -> None:
        """Tell the judge, which takes candidates in order, that one has ended."""
        with self.lock:
            self.waiting[number] = ended
            while self.next_ended in self.waiting:
                part = self.folder / "cases" / "ended.part"
                part.write_text(json.dumps(self.waiting.pop(self.next_ended)))
                part.replace(self.folder / "cases" / f"ended-{self.next_ended}.json")
                self.next_ended += 1

    def _verdicts(self, number: int) -> Any:
        path = self.folder / "verdicts" / f"{number}.json"
        while not path.exists() and not self.judging.done():
            time.sleep(POLL_S)
        return read_result(path)

    def _outcomes(self, written: Any, ran: Ended) -> Outcomes:
        refusal = read_result(self.folder / "verdicts" / "refusal.json")
        if refusal is not None:
            return Outcomes([], Refusal(reason=str(refusal)), ran.isolation, ran.output)
        try:
            return Outcomes(VERDICTS.validate_python(written), None, ran.isolation, ran.output)
        except ValidationError:
            judge = self.judging.result()
            summary = f"the judge could not finish: {judge.why or 'its verdicts could not be read'}"
            lost = Verdict(
                check="gauntlet",
                gate=Gate.correctness,
                outcome=Outcome.failed,
                summary=summary,
                details=judge.output[-20_000:],
            )
            return Outcomes([lost], None, ran.isolation, ran.output)


@contextlib.contextmanager
def gauntlet_of(
    target: KernelTarget,
    *,
    seed: int,
    deadline_s: float,
    memory_bytes: int,
    python: Path = Path(sys.executable),
    families: Sequence[str] = (),
    interpreted: bool = False,
) -> Iterator[Gauntlet]:
    """Start the judge of `target.op`; candidates of that op are then run one by one, or two at a time.

    interpreted: in the interpreter, also where there is a GPU.
    """
    gpu = has_gpu() and not interpreted
    with scratch_folder() as scratch, ThreadPoolExecutor(1) as pool:
        cases, outputs, verdicts = scratch / "cases", scratch / "outputs", scratch / "verdicts"
        for folder in (cases, outputs, verdicts):
            folder.mkdir()
        (scratch / "target.json").write_text(target.model_dump_json())
        limits = Limits(deadline_s=deadline_s, memory_bytes=memory_bytes, processes=512 if gpu else 64)
        judge = Child(
            script=HERE / "judge.py",
            arguments=[
                str(scratch / "target.json"),
                str(seed),
                str(cases),
                str(outputs),
                str(verdicts),
                "gpu" if gpu else "cpu",
                *families,
            ],
            cwd=verdicts,
            limits=limits,
            import_path=[OWN_ROOT, *site_packages(Path(sys.executable))],
            readable=[outputs, scratch / "target.json"],
            writable=[cases, verdicts],
            environment={"OMP_NUM_THREADS": "1"},
            sees_own_packages=True,
            undumpable=True,
            gpu=gpu,
        )
        judging = pool.submit(run_confined, judge)
        judging.add_done_callback(lambda _: _release(cases))
        try:
            yield Gauntlet(scratch, limits, python, judging, gpu)
        finally:
            (cases / "finished").touch()
            judging.result()


def _release(cases: Path) -> None:
    """A judge that ended without publishing cases will publish none: a waiting candidate must not wait on."""
    if not (cases / "cases.json").exists():
        part = cases / "none.part"
        part.write_text("[]")
        part.replace(cases / "cases.json")
