"""The judge's process: makes the cases, waits for candidates' results, holds them to the truth, reports verdicts.

Usage (through boot.py): judge.py TARGET.json SEED CASES_FOLDER OUTPUTS_FOLDER VERDICTS_FOLDER gpu|cpu [FAMILY…]. It imports ours
and runs the reference, never a candidate. What it reads from OUTPUTS_FOLDER was written by a candidate's sandbox: bytes to
be bounded and checked.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from runners.checks.families import FAMILIES
from runners.checks.family import Family, Judged
from runners.gauntlet.builder import Builder, Refused
from runners.gauntlet.case import DTYPES, Case
from runners.gauntlet.casts import TELLING, cast_problems, changed_share
from runners.gauntlet.exchange import (
    Read,
    load_results,
    publish,
    read_answers,
    same_again,
    same_results,
    write_json,
)
from runners.gauntlet.ghost import ghost_problems
from runners.gauntlet.integers import integer_problem
from runners.gauntlet.tolerance import compare
from runners.gauntlet.truth import Reference, Results, gradient_name
from runners.protocol import Gate, KernelTarget, Outcome, Verdict

POLL_S = 0.02
GHOST_SLACK = (
    0.05  # of the elements may agree by chance beyond what zeros or a copied input would already match
)
MAX_LISTED = 8


class Judge:
    """Holds one candidate's results to the truth."""

    def __init__(
        self, target: KernelTarget, seed: int, folder: Path, *, gpu: bool, families: Sequence[str] = ()
    ) -> None:
        self.families = [family for family in FAMILIES if not families or family.name in families]
        self.target = target
        self.gpu = gpu
        self.reference = Reference(target.op, folder)
        self.builder = Builder(self.reference, seed, gpu=gpu, multiples=target.multiples)
        self.cases: dict[str, list[Case]] = {}
        self.refused: dict[str, list[str]] = {}
        self.truths: dict[str, tuple[Results, Results]] = {}
        self.nearby: dict[str, list[tuple[Results, Results]]] = {}

    def prepare(self) -> list[Case]:
        """Every case of every family that can run here."""
        for family in self.families:
            self.cases[family.name], self.refused[family.name] = [], []
            if family.cases is None or not self._runs_here(family):
                continue
            for make in family.cases(self.builder):
                try:
                    case = make()
                    truth, _ = self._truth(case)
                    if family.numbers == "casts" and changed_share(self.reference, case, truth) < TELLING:
                        continue
                except Refused as refusal:
                    self.refused[family.name].append(str(refusal))
                else:
                    self.cases[family.name].append(case)
        return [case for cases in self.cases.values() for case in cases]

    def verdicts(
        self,
        answers: dict[str, dict[str, Any]],
        read: Read,
        died: str,
        chosen: Sequence[str] = (),
    ) -> Iterable[Verdict]:
        """One verdict a family, or a chosen family. `died` says why the candidate's process ended early, or is empty."""
        families = [family for family in self.families if not chosen or family.name in chosen]
        judged = {
            f.name: [self._judge(case, answers.get(case.id), read, died) for case in self.cases[f.name]]
            for f in families
        }
        everything = [each for group in judged.values() for each in group]
        for family in families:
            yield self._verdict(family, judged[family.name], everything)

    def _runs_here(self, family: Family) -> bool:
        return family.only_on in (None, "a GPU" if self.gpu else "the interpreter")

    def _truth(self, case: Case) -> tuple[Results, Results]:
        """Truth and eager for a case, once. A case whose truth the reference can't give is refused before it is run."""
        if case.id not in self.truths:
            try:
                truth = self.reference.results(case, torch.float64)
            except Exception as error:
                raise Refused(
                    f"the reference refuses {case.id}: {type(error).__name__}: {str(error)[:200]}"
                ) from error
            self.truths[case.id] = truth, self._eager(case, truth)
        return self.truths[case.id]

    def _verdict(self, family: Family, judged: list[Judged], everything: list[Judged]) -> Verdict:
        started = time.monotonic()
        check = f"gauntlet/{family.name}"
        if not self._runs_here(family):
            return Verdict(
                check=check,
                gate=Gate.correctness,
                outcome=Outcome.skipped,
                hard=family.hard,
                summary=f"{family.title}: needs {family.only_on}",
            )
        if family.cases is not None and not judged:
            refused = self.refused[family.name]
            unjudged = family.essential and bool(refused)
            why = refused[0] if refused else family.nothing_to_test
            return Verdict(
                check=check,
                gate=Gate.correctness,
                outcome=Outcome.flagged if unjudged else Outcome.skipped,
                hard=family.hard and not unjudged,
                summary=f"{family.title}: {'not judged: ' if unjudged else ''}{why}"[:500],
            )
        problems = [f"{each.case.id}: {problem}" for each in judged for problem in each.problems]
        if family.inspect is not None:
            problems += family.inspect(judged)
        if family.inspect_all is not None:
            problems += family.inspect_all(everything)
        unseen = [each.case.id for each in everything if not each.runs] if family.cases is None else []
        if unseen and not problems:
            why = f"{family.title}: not judged, {len(unseen)} of {len(everything)} cases left no result"
            return Verdict(
                check=check, gate=Gate.correctness, outcome=Outcome.skipped, hard=family.hard, summary=why
            )
        count = len(judged) if family.cases is not None else len(everything)
        worst = max((each.worst_ratio for each in judged), default=0.0)
        numbers = (
            f"; worst error {worst:.2f} of what is allowed"
            if family.numbers == "truth" and family.cases is not None and not problems
            else ""
        )
        skipped = (
            f"; {len(self.refused[family.name])} not accepted by the reference"
            if self.refused[family.name]
            else ""
        )
        summary = (
            f"{family.title}: {problems[0]}"
            if problems
            else f"{family.title}: {count} cases{numbers}{skipped}"
        )
        details = "\n".join([*problems, *self.refused[family.name]])
        traceback = next(
            (each.error["traceback"] for each in judged if each.error and each.error.get("traceback")), ""
        )
        return Verdict(
            check=check,
            gate=Gate.correctness,
            outcome=Outcome.failed if problems else Outcome.passed,
            hard=family.hard,
            summary=summary[:500],
            details=f"{details}\n\n{traceback}".strip()[:20_000] if problems else details[:20_000],
            path=self.target.path,
            elapsed_s=time.monotonic() - started,
        )

    def _judge(self, case: Case, answer: dict[str, Any] | None, read: Read, died: str) -> Judged:
        if answer is None:
            return Judged(case, [], None, [died or "the candidate's process left no result"])
        if answer["error"]:
            error = {key: str(answer["error"].get(key, "")) for key in ("type", "message", "traceback")}
            return Judged(
                case,
                [],
                error,
                [f"{error['type']}: {error['message'].splitlines()[0] if error['message'] else ''}"],
            )
        family = next(f for f in FAMILIES if f.name == case.family)
        try:
            truth, eager = self._truth(case)
            problems, ratio = [], 0.0
            runs = answer["runs"]
            loaded = [load_results(run, read) for run in runs]
            for run, results in zip(runs, loaded, strict=True):
                if case.options.ghost:
                    run["ghost_problems"] = ghost_problems(case, results, truth, eager)
                elif family.numbers == "casts":
                    problems += cast_problems(self.reference, case, results, truth)
                elif family.numbers == "truth":
                    found, worst = self._numbers(case, results, truth, eager)
                    problems += [problem for problem in found if problem not in problems]
                    ratio = max(ratio, worst)
                run["differs"] = not same_results(results, loaded[0])
                run["again"] = same_again(run.get("again"), results, read)
        except (KeyError, TypeError, ValueError, RuntimeError, AttributeError, OSError) as error:
            return Judged(
                case,
                [],
                None,
                [f"the candidate's process left results that can't be read: {type(error).__name__}: {error}"],
            )
        return Judged(case, runs, None, problems, ratio)

    def _eager(self, case: Case, truth: Results) -> Results:
        try:
            return self.reference.results(case, None)
        except RuntimeError:
            # Eager itself does not take these dtypes together; then only the floor of the tolerance holds.
            return truth

    def _numbers(
        self, case: Case, results: Results, truth: Results, eager: Results
    ) -> tuple[list[str], float]:
        floats = [DTYPES[placed.dtype] for placed in case.tensors if DTYPES[placed.dtype].is_floating_point]
        lowest = max(floats, key=lambda dtype: torch.finfo(dtype).eps)
        precision = torch.bfloat16 if case.options.autocast else lowest
        problems: list[str] = []
        worst = 0.0
        if len(results.outputs) != len(truth.outputs):
            return [f"{len(results.outputs)} outputs where the reference has {len(truth.outputs)}"], 0.0
        pairs = [
            (truth.output_name(position), *each)
            for position, each in enumerate(zip(results.outputs, truth.outputs, eager.outputs, strict=True))
        ]
        if not case.options.no_grad:
            for name, expected in truth.gradients.items():
                mine = results.gradients.get(name)
                if expected is None:
                    continue
                if mine is None:
                    problems.append(f"no gradient for {name}")
                else:
                    theirs = eager.gradients.get(name)
                    pairs.append(
                        (gradient_name(name), mine, expected, expected if theirs is None else theirs)
                    )
        rows = case.options.sample_rows
        for name, mine, expected, theirs in pairs:
            if rows:
                tile = expected.shape[0]
                chosen = [row % tile for row in rows]
                expected, theirs = expected[chosen], theirs[chosen]  # noqa: PLW2901 - the rows that came back
            if mine.shape != expected.shape:
                problems.append(
                    f"{name} has shape {tuple(mine.shape)}, the reference's {tuple(expected.shape)}"
                )
                continue
            if mine.dtype != theirs.dtype and len(set(floats)) == 1 and not case.options.autocast:
                problems.append(
                    f"{name} is {mine.dtype}, the reference's {theirs.dtype}".replace("torch.", "")
                )
                continue
            if not expected.is_floating_point():
                beside = [one for one in truth.outputs if one.is_floating_point()]
                if problem := integer_problem(mine, expected, beside, precision):
                    problems.append(f"{name}: {problem}")
                continue
            eager_here = _nan_where_nan_came_in(case, mine, theirs)
            products = self.reference.multiplies
            comparison = compare(mine, expected, eager_here, precision, products=products)
            if comparison.problem and math.isfinite(comparison.ratio) and not rows:
                noise = self._noise(case, name, expected)
                comparison = compare(mine, expected, eager_here, precision, products=products, noise=noise)
            worst = max(worst, comparison.ratio)
            if comparison.problem:
                problems.append(f"{name}: {comparison.problem}")
        return problems, worst

    def _noise(self, case: Case, name: str, truth: torch.Tensor) -> torch.Tensor:
        """How far fp32 results get from this truth, or from theirs, at inputs that differ by roundings."""
        if case.id not in self.nearby:
            self.nearby[case.id] = list(self.reference.nearby(case))
        worst = torch.zeros_like(truth)
        for there, eager in self.nearby[case.id]:
            right, single = there.named(name), eager.named(name)
            if right is not None and single is not None:
                moved = torch.maximum((right - truth).abs(), (single.double() - right).abs())
                worst = torch.maximum(worst, moved.nan_to_num(0.0, 0.0))
        return worst


def _nan_where_nan_came_in(case: Case, mine: torch.Tensor, eager: torch.Tensor) -> torch.Tensor:
    """Eager's result, with NaN put where a NaN gradient came in and the candidate passes it on.

    ATen masks some gradients (threshold, clamp) and so loses a NaN that came in; multiplying by zero keeps it. Keeping it
    is never wrong. In an op that reduces over rows, it may spread along its row.
    """
    poisoned = torch.zeros(eager.shape, dtype=torch.bool)
    for placed in case.gradients:
        value = case.values[placed.name]
        if value.shape == eager.shape and value.dim():
            poisoned |= value.isnan().any(dim=-1, keepdim=True)
        elif value.numel() == 1:
            poisoned |= bool(
                value.isnan().any()
            )  # a loss: a row that it leaves out may have the NaN all the same
    return eager.masked_fill(poisoned & mine.isnan(), float("nan")) if bool(poisoned.any()) else eager


def main() -> None:
    target_file, seed, cases_folder, outputs_folder, verdicts_folder, device, *families = sys.argv[1:]
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    target = KernelTarget.model_validate_json(Path(target_file).read_text())
    cases, verdicts = Path(cases_folder), Path(verdicts_folder)
    with tempfile.TemporaryDirectory() as folder:
        try:
            judge = Judge(target, int(seed), Path(folder), gpu=device == "gpu", families=families)
            prepared = judge.prepare()
            if not prepared:
                raise Refused(
                    next((why[0] for why in judge.refused.values() if why), "no family has a case for it")
                )
            publish(prepared, cases)
        except Exception as error:  # noqa: BLE001 - the reference is a person's code
            write_json(
                verdicts / "refusal.json", f"the reference can't be run: {type(error).__name__}: {error}"
            )
            return
        number = 0
        while True:
            # The runner writes one file for each candidate whose process has ended, with how it ended.
            ended = cases / f"ended-{number}.json"
            if ended.exists():
                told = json.loads(ended.read_text())
                answers = read_answers(Path(outputs_folder) / str(number), told["why"])
                write_json(
                    verdicts / f"{number}.json",
                    [v.model_dump(mode="json") for v in judge.verdicts(*answers, told["families"])],
                )
                number += 1
            elif (cases / "finished").exists():
                return
            else:
                time.sleep(POLL_S)


if __name__ == "__main__":
    main()
