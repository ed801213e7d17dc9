"""Several model patches of our own, verified in one sandboxed child: importing torch and transformers costs as much as the checks.

The child forks for each; a patch could reach the findings of those after it, so this is for benchmarks, never for strangers' code.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from runners.checkout import copy_checkout
from runners.model_checks.verify import run_child, task
from runners.protocol import Job, VerifyModelPayload
from runners.sandbox import read_result, scratch_folder

# the cheap form of verify_model: without flags, instance parity, forward cases and convergence
SCENARIOS = [
    "dead_names", "signature", "kernel_calls", "parity/class_float32", "parity/class_bfloat16", "revert",
]  # fmt: skip


def verified(payloads: dict[str, VerifyModelPayload], deadline_s: float) -> dict[str, list[dict[str, Any]]]:
    """name -> its checks. One child for all: importing torch and transformers costs as much as the checks of a dense model."""
    job = Job(
        id="autopatch-batch", nonce="batch", deadline_s=deadline_s, payload=next(iter(payloads.values()))
    )
    with scratch_folder() as scratch:
        made = scratch / "made"
        made.mkdir()
        tasks = []
        for name, payload in payloads.items():
            # not by the model's name alone: a folder `xlstm` is a package of that name to what looks for one
            folder = scratch / "checkouts" / f"checkout_of_{name}"
            copy = copy_checkout(Path(payload.checkout), folder, payload.files)
            result = made / f"{name}.json"
            tasks.append({"task": task(payload), "checkout": str(copy), "result": str(result)})
        (scratch / "given").mkdir()
        (scratch / "given" / "task.json").write_text(json.dumps(tasks))
        ended = run_child(
            job, scratch / "checkouts", scratch / "given", made, Path(sys.executable), lambda _: None
        )
        return {
            name: _checks(read_result(made / f"{name}.json"), payloads[name], ended.why) for name in payloads
        }


def _checks(found: Any, payload: VerifyModelPayload, why: str | None) -> list[dict[str, Any]]:
    """The findings as records; one that fails stands for those that were not reached."""
    checks = [
        {
            "check": f"model/{one['name']}",
            "outcome": {True: "passed", None: "skipped"}.get(one["ok"], "failed"),
            "summary": one["summary"][:500],
            **({} if one["ok"] is True else {"details": one["details"][-600:]}),
            "seconds": round(one["seconds"], 1),
        }
        for one in found or []
    ]
    # what the imports don't allow is not reached; otherwise a check each: imports, the scenarios, the tests
    expected = 1 + len(payload.instance_tests) + len(payload.convergence)
    if not payload.only_tests:
        expected += len(payload.scenarios)
    if payload.stand_ins:
        expected += 1
    if len(checks) < expected and all(check["outcome"] != "failed" for check in checks):
        summary = f"{len(checks)} of {expected} checks were reached: {why or 'the process ended'}"
        checks.append({"check": "model/process", "outcome": "failed", "summary": summary, "seconds": 0.0})
    return checks
