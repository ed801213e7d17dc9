"""New ground: patches for the causal models that the checkout doesn't support, and what their tests say on a CPU.

    python -m benchmarks.autopatch_new_ground --repo CHECKOUT --profiles FILE.jsonl --out benchmarks/results/autopatch/new_ground.json

FILE.jsonl comes from `python -m benchmarks.autopatch_profile --unsupported`; a refusal there is a result here. The checks are
the cheap form of verify_model's: import, dead names, signature, kernel calls of both paths, parity of the class path in fp32
and bf16, revert, and the instance test. Flags, forward cases and convergence are not run. Dense models come first. A model
with a result is skipped, so that a run can be resumed; `--again` names those to run once more.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from pathlib import Path
from typing import Any

from agents.autopatch.act import write
from agents.autopatch.model_profile import ModelProfile
from agents.autopatch.verify import plan
from agents.conventions import NotAKernelLibrary
from agents.conventions.edits import AnchorMissing
from agents.dev.act import ActFailed
from app.checkout import CheckoutTree
from benchmarks.autopatch_batch import SCENARIOS, verified
from runners.environment import current_environment
from runners.protocol import Gate, VerifyModelPayload

BATCH = 6  # models in one process; more would lose more when the run is stopped
ARCHITECTURES = ("dense", "hybrid", "moe")  # the order of their cost in the interpreter


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--repo", type=Path, required=True, help="checkout of the target's newest release")
    parser.add_argument(
        "--profiles", type=Path, required=True, help="JSON lines of benchmarks.autopatch_profile"
    )
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/autopatch/new_ground.json"))
    parser.add_argument("--deadline", type=float, default=300.0, help="seconds a model")
    parser.add_argument("--models", default="", help="only these, separated by commas")
    parser.add_argument("--commit", default="", help="of the checkout, to store beside the results")
    parser.add_argument("--again", default="", help="models to run although they have a result")
    arguments = parser.parse_args()
    stored = json.loads(arguments.out.read_text(encoding="utf-8")) if arguments.out.exists() else {}
    models: dict[str, Any] = stored.get("models", {})
    only, again = (set(filter(None, text.split(","))) for text in (arguments.models, arguments.again))
    lines = [json.loads(line) for line in arguments.profiles.read_text(encoding="utf-8").splitlines()]
    todo = [
        line
        for line in sorted(lines, key=_cost)
        if (line["model"] not in models or line["model"] in again) and (not only or line["model"] in only)
    ]
    for start in range(0, len(todo), BATCH):
        batch = todo[start : start + BATCH]
        models |= results(batch, arguments.repo, arguments.deadline)
        _store(models, arguments)
        for position, line in enumerate(batch, start + 1):
            print(f"{position}/{len(todo)} {line['model']}: {said(models[line['model']])}", flush=True)
    _store(models, arguments)
    return 0


def _store(models: dict[str, Any], arguments: argparse.Namespace) -> None:
    stored = {
        "environment": current_environment().model_dump(mode="json"),
        "command": "python -m benchmarks.autopatch_new_ground --repo CHECKOUT --profiles FILE.jsonl",
        "liger": liger_version(arguments.repo),
        "commit": arguments.commit,
        "scenarios": SCENARIOS,
        "models": dict(sorted(models.items())),
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")


def liger_version(repo: Path) -> str:
    """The version that the checkout's pyproject.toml names."""
    return str(tomllib.loads((repo / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])


def _cost(line: dict[str, Any]) -> tuple[int, float]:
    """Refusals cost nothing; then dense before mixtures of experts, and what profiled fast before what didn't."""
    profile = line.get("profile")
    return (ARCHITECTURES.index(profile["architecture"]) if profile else -1, line.get("seconds") or 0.0)


def results(batch: list[dict[str, Any]], repo: Path, deadline_s: float) -> dict[str, dict[str, Any]]:
    """model -> refused with the reason, or its decisions, files and checks."""
    found = {line["model"]: written(line, repo) for line in batch}
    payloads = {model: result.pop("payload") for model, result in found.items() if "payload" in result}
    if payloads:
        for model, checks in verified(payloads, deadline_s * len(payloads)).items():
            found[model]["checks"] = checks
    return found


def written(line: dict[str, Any], repo: Path) -> dict[str, Any]:
    """The patch of one model as a result without checks, with the `payload` that checks it; or a refusal."""
    if "profile" not in line:
        return {
            "refused": line.get("refused") or line["fault"],
            "code": line.get("code") or ("fault" if "fault" in line else "misfit"),
        }
    profile = ModelProfile.model_validate(line["profile"])
    found: dict[str, Any] = {
        "architecture": profile.architecture,
        "decisions": {decision.name: decision.value for decision in profile.decisions},
        "questions": profile.questions,
    }
    try:
        candidate = write(profile, CheckoutTree(repo))
    except (ActFailed, AnchorMissing, NotAKernelLibrary) as error:
        return found | {"refused": str(error), "code": "act"}
    payload = plan(profile, candidate, str(repo), "", applied=False)[Gate.correctness]
    assert isinstance(payload, VerifyModelPayload)
    return found | {
        "flags": candidate.flags,
        "files": sorted(candidate.files),
        "beyond": candidate.beyond,
        "left_out": candidate.left_out,
        "payload": payload.model_copy(update={"scenarios": SCENARIOS, "convergence": []}),
    }


def passes(result: dict[str, Any]) -> bool:
    """Whether there is a patch and no check of it failed; where the model itself doesn't run in bfloat16, that one is skipped."""
    return bool(result.get("checks")) and all(check["outcome"] != "failed" for check in result["checks"])


def said(result: dict[str, Any]) -> str:
    """One line for a person who watches."""
    if "refused" in result:
        return f"refused: {result['refused'][:160]}"
    failed = [
        f"{c['check'].removeprefix('model/')}: {c['summary']}"
        for c in result["checks"]
        if c["outcome"] != "passed"
    ]
    right = len(result["checks"]) - len(failed)
    return f"{right}/{len(result['checks'])} {'; '.join(failed)[:300]}"


if __name__ == "__main__":
    sys.exit(main())
