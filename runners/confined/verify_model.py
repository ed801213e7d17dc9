"""Verifies a model patch in the sandbox. Usage (through boot.py): verify_model.py INTERPRETER|- SCENARIOS TASK.json RESULT.json.

TASK.json may hold a list of {"task", "checkout", "result"}: several patches of our own, each in a fork that has imported torch
and transformers already, in its own checkout. RESULT.json is not written then.

SCENARIOS is the folder of runners/model_checks/confined; loaded by path, imports none of ours. Findings are written as they
come, so that a candidate which ends the process leaves those before it. Every line "verify NAME" is progress.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def main() -> int:
    interpreter, scenarios_folder, task_file, result_file = sys.argv[1:]
    sys.path.insert(0, scenarios_folder)
    if interpreter != "-":
        spec = importlib.util.spec_from_file_location("repaired_interpreter", interpreter)
        module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
        sys.modules["repaired_interpreter"] = module
        spec.loader.exec_module(module)  # type: ignore[union-attr]
        module.repair()
    data = json.loads(Path(task_file).read_text())
    if isinstance(data, list):
        several(data)
    else:
        Verification(data, Path(result_file)).run()
    return 0


def several(entries: list[dict[str, Any]]) -> None:
    """Each entry in a fork, because each checkout has a package of the same name."""
    for shared in ("torch", "triton", "transformers.modeling_utils", "transformers.masking_utils"):
        importlib.import_module(shared)
    from forked import in_fork

    for entry in entries:
        answer = in_fork(lambda entry=entry: one_of_several(entry))
        print(f"verified {entry['task']['model_type']} {answer.get('error', '')[-300:]}", flush=True)


def one_of_several(entry: dict[str, Any]) -> None:
    os.chdir(entry["checkout"])
    sys.path[:0] = [f"{entry['checkout']}/src", entry["checkout"]]
    Verification(entry["task"], Path(entry["result"])).run()


class Verification:
    """Runs the scenarios in order and keeps their findings."""

    def __init__(self, data: dict[str, Any], result: Path):
        self.data, self.result = data, result
        self.findings: list[dict[str, Any]] = []

    def run(self) -> None:
        import reduced_convergence
        import scenarios
        import single_test
        import stand_ins
        from tiny_runs import Task

        if self.data["stand_ins"]:
            package, model = self.data["package"], self.data["model_type"]
            own = f"{package}.transformers.model.{model}"
            stand_ins.install((f"{package}.", "test.", "whole_test_file", "alone"), (own,))
        task = Task(self.data)
        if not self.check("imports", lambda: scenarios.imports(self.data["imports"])):
            return
        # imported once here, so that the forked scenarios don't each pay for it
        importlib.import_module(f"{task.package}.transformers.monkey_patch")
        if self.data["stand_ins"]:
            self.add(
                "stand_ins",
                True,
                f"names this transformers lacks: {', '.join(stand_ins.LISTED) or 'none'}",
                "",
                0.0,
            )
        if not self.data["only_tests"]:
            self.scenarios(task, scenarios)
        for test in self.data["instance_tests"]:
            path, _, function = test.partition("::")
            self.check(f"test/{function}", lambda p=path, f=function: single_test.run(p, f))
        for path in self.data["convergence"]:
            name = path.removeprefix("test/convergence/").removesuffix(".py")
            self.check(f"convergence/{name}", lambda p=path: reduced_convergence.run(task, p))

    def scenarios(self, task: Any, scenarios: Any) -> None:
        for name in filter(self.wanted, ("dead_names", "signature")):
            self.check(name, lambda name=name: getattr(scenarios, name)(task))
        if self.wanted("kernel_calls"):
            self.kernel_calls(task, scenarios)
        self.parity(task)
        if self.wanted("vision_modules"):
            found = self.tried(lambda: scenarios.vision_modules(task))
            if found[0] is not None:  # a text model has none, which is nothing to report
                self.add("vision_modules", *found)
        for name in filter(self.wanted, ("others_untouched", "forward_cases", "revert")):
            self.check(name, lambda name=name: getattr(scenarios, name)(task))

    def parity(self, task: Any) -> None:
        """Both paths in both dtypes; what fails first on a path is looked for part by part."""
        import parity

        for path in ("class", "instance"):
            looked = False
            for dtype in filter(lambda d, p=path: self.wanted(f"parity/{p}_{d}"), ("float32", "bfloat16")):
                batches = 1
                found = self.tried(lambda p=path, d=dtype: parity.parity(task, p, d))
                if found[0] is False and dtype == "bfloat16":
                    batches = parity.BATCHES
                    found = self.tried(lambda p=path, d=dtype: parity.parity(task, p, d, parity.BATCHES))
                self.add(f"parity/{path}_{dtype}", *found)
                if found[0] is False and not looked:
                    looked = True
                    self.parts(task, path, dtype, batches)

    def parts(self, task: Any, path: str, dtype: str, batches: int) -> None:
        """Each part of the patch on its own, so that a repair knows which one differs."""
        import parity
        from forked import in_fork
        from parts import parts_of

        for part in in_fork(lambda: parts_of(task, path)).get("value", []):
            found = self.tried(lambda p=part: parity.alone(task, path, dtype, p, batches))
            self.add(f"part/{part}", *found)

    def wanted(self, name: str) -> bool:
        """Whether the job asks for this scenario: it names them, or it names none and wants all."""
        return not self.data["scenarios"] or name in self.data["scenarios"]

    def kernel_calls(self, task: Any, scenarios: Any) -> None:
        """Class and instance path call the same kernels; each flag flipped changes the calls."""
        from forked import in_fork

        defaults: dict[str, bool] = self.data["flags"]
        found = {
            path: in_fork(lambda p=path: scenarios.counts(task, p, {})) for path in ("class", "instance")
        }
        errors = [f"{path}: {answer['error']}" for path, answer in found.items() if "error" in answer]
        seconds = sum(answer["seconds"] for answer in found.values())
        if errors:
            self.add(
                "kernel_calls", False, "patching or running the tiny model failed", "\n".join(errors), seconds
            )
            return
        by_class, by_instance = found["class"]["value"], found["instance"]["value"]
        same = by_class == by_instance and bool(by_class)
        text = (
            f"class and instance path: {by_class}"
            if same
            else f"class path {by_class}, instance path {by_instance}"
        )
        self.add("kernel_calls", same, text if by_class else "no Liger kernel was called", "", seconds)
        for path, usual in (("class", by_class), ("instance", by_instance)):
            if not self.wanted("flags"):
                break
            for flag, default in defaults.items():
                changed = {flag: not default}
                if flag == "cross_entropy":
                    changed["fused_linear_cross_entropy"] = False
                self.flag(task, scenarios, path, flag, changed, usual)

    def flag(self, task: Any, scenarios: Any, path: str, flag: str, changed: Any, usual: Any) -> None:
        from forked import in_fork

        base = {**changed, flag: self.data["flags"][flag]}
        answer = in_fork(lambda: scenarios.counts(task, path, changed))
        if "value" in answer and base != self.data["flags"] and flag == "cross_entropy":
            other = in_fork(lambda: scenarios.counts(task, path, base))
            usual = other.get("value", usual)
        name = f"flag/{path}_{flag}"
        if "error" in answer:
            self.add(name, False, f"{flag}={changed[flag]} fails", answer["error"], answer["seconds"])
            return
        value = answer["value"]
        ok = value != usual
        self.add(
            name,
            ok,
            f"{_difference(usual, value)}" if ok else f"{flag} changes no kernel call",
            "",
            answer["seconds"],
        )

    def check(self, name: str, scenario: Callable[[], Any]) -> bool:
        found = self.tried(scenario)
        self.add(name, *found)
        return bool(found[0])

    def tried(self, scenario: Callable[[], Any]) -> tuple[bool | None, str, str, float]:
        """(ok, summary, details, seconds) of a scenario in a fork; what it raises is a failure."""
        from forked import in_fork

        answer = in_fork(scenario)
        if "error" in answer:
            return False, answer["error"].strip().splitlines()[-1][:300], answer["error"], answer["seconds"]
        ok, summary, details = answer["value"]
        return ok, summary, details, answer["seconds"]

    def add(self, name: str, ok: bool | None, summary: str, details: str, seconds: float) -> None:
        found = {"name": name, "ok": ok, "summary": summary, "details": details, "seconds": seconds}
        self.findings.append(found)
        self.result.write_text(json.dumps(self.findings))
        print(f"verify {name} {'passed' if ok else 'failed'} {seconds:.1f}s", flush=True)


def _difference(before: dict[str, int], after: dict[str, int]) -> str:
    names = sorted(set(before) | set(after))
    return ", ".join(
        f"{name} {before.get(name, 0)} -> {after.get(name, 0)}"
        for name in names
        if before.get(name, 0) != after.get(name, 0)
    )


if __name__ == "__main__":
    sys.exit(main())
