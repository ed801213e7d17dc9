"""How many models of the installed transformers can be profiled, how long it takes, and how often the decisions are right.

    python -m benchmarks.autopatch_profile --repo PATH --out FILE.jsonl [--all] [MODEL …]
    python -m benchmarks.autopatch_profile --out FILE.jsonl --report

One JSON line a model: {"model", "seconds", "profile" or "refused"}. A model that has a line is not run again.
"""

from __future__ import annotations

import argparse
import json
import secrets
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from agents.autopatch.model_profile import ModelProfile
from agents.autopatch.understand import Asked, profile_of
from benchmarks.autopatch_expected import EXPECTED, decisions_right
from runners.jobs import run_job
from runners.protocol import InspectModelPayload, InspectModelResult, Job, ModelRequest, Progress, Report

BATCH = (
    8  # models in one process: what they share is imported once, and little is lost when the run is stopped
)
SECONDS_PER_MODEL = 120.0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.autopatch_profile", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("models", nargs="*", help="model types; those with known answers when left out")
    parser.add_argument("--repo", type=Path, help="a target checkout")
    parser.add_argument("--out", type=Path, required=True, help="JSON lines; a model that has one is skipped")
    parser.add_argument(
        "--all",
        action="store_true",
        help="every causal and vision-language type of the installed transformers",
    )
    parser.add_argument(
        "--unsupported", action="store_true", help="every causal type that the checkout does not patch"
    )
    parser.add_argument("--report", action="store_true", help="only print what the file says")
    arguments = parser.parse_args()
    if not arguments.report:
        if arguments.repo is None:
            parser.error("--repo is needed to run models")
        models = arguments.models or (
            _types(arguments.all or arguments.unsupported, arguments) or list(EXPECTED)
        )
        _run(models, arguments.repo, arguments.out)
    _print_report(_lines(arguments.out))
    return 0


def _types(wanted: bool, arguments: argparse.Namespace) -> list[str]:
    """Model types of the installed transformers, asked in a process of its own: this one imports no transformers."""
    if not wanted:
        return []
    code = (
        "import json; from transformers.models.auto import modeling_auto as m; "
        "print(json.dumps([list(m.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES), list(m.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES)]))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    causal, vision = json.loads(output.splitlines()[-1])
    if arguments.unsupported:
        patched = (arguments.repo / "src/liger_kernel/transformers/monkey_patch.py").read_text()
        table = patched[patched.index("MODEL_TYPE_TO_APPLY_LIGER_FN = {") :]
        return [name for name in causal if f'"{name}":' not in table]
    return sorted({*causal, *vision})


def _lines(out: Path) -> dict[str, dict[str, Any]]:
    if not out.exists():
        return {}
    found = (json.loads(line) for line in out.read_text().splitlines() if line.strip())
    return {line["model"]: line for line in found}


def _run(models: list[str], repo: Path, out: Path) -> None:
    done = _lines(out)
    todo = [model for model in models if model not in done]
    started, finished = time.monotonic(), 0
    for position in range(0, len(todo), BATCH):
        batch = todo[position : position + BATCH]
        report = _inspect(batch, repo)
        entries = report.result.models if isinstance(report.result, InspectModelResult) else []
        with out.open("a") as file:
            for model, entry in zip(batch, entries, strict=False):
                file.write(json.dumps(_judged(model, entry, report)) + "\n")
        finished += len(batch)
        left = (time.monotonic() - started) / finished * (len(todo) - finished)
        print(
            f"{finished}/{len(todo)} models, {left / 60:.0f} min left, last {batch[-1]}",
            file=sys.stderr,
            flush=True,
        )


def _inspect(batch: list[str], repo: Path) -> Report:
    payload = InspectModelPayload(checkout=str(repo), models=[ModelRequest(model=model) for model in batch])
    job = Job(
        id="autopatch-profile",
        nonce=secrets.token_hex(8),
        deadline_s=SECONDS_PER_MODEL * len(batch),
        payload=payload,
    )

    def show(progress: Progress) -> None:
        print(f"\r  {progress.note:40}", end="", file=sys.stderr, flush=True)

    return run_job(job, show)


def _judged(model: str, entry: dict[str, Any], report: Report) -> dict[str, Any]:
    environment = report.environment.model_dump() if report.environment else {}
    transformers = str(environment.get("transformers") or "")
    line: dict[str, Any] = {
        "model": model,
        "seconds": entry.get("seconds"),
        "transformers": transformers,
        "torch": environment.get("torch"),
    }
    try:
        found = profile_of(entry, Asked(model, ModelRequest(model=model)), transformers, replay=True)
    except Exception as error:  # noqa: BLE001 - counted and shown: it is what this script looks for
        return line | {"fault": f"{type(error).__name__}: {str(error)[:300]}"}
    if isinstance(found, ModelProfile):
        return line | {"profile": found.model_dump(mode="json")}
    return line | {"refused": found.reason, "code": (entry.get("refusal") or {}).get("code")}


def _print_report(lines: dict[str, dict[str, Any]]) -> None:
    profiled = {model: line for model, line in lines.items() if "profile" in line}
    faults = {model: line for model, line in lines.items() if "fault" in line}
    print(
        f"{len(lines)} models: {len(profiled)} profiled, {len(lines) - len(profiled) - len(faults)} refused, {len(faults)} faults of ours"
    )
    seconds = sorted(line["seconds"] for line in profiled.values())
    if seconds:
        print(
            f"seconds a model: median {seconds[len(seconds) // 2]:.1f}, most {seconds[-1]:.1f} (and once a process, its imports)"
        )
    print(f"with questions: {sum(bool(line['profile']['questions']) for line in profiled.values())}")
    for model in EXPECTED:
        if model in profiled:
            right, wrong = decisions_right(model, profiled[model]["profile"]["decisions"])
            print(f"{model:14} {right}/12 {'; '.join(wrong)}")
    for code, count in Counter(
        line.get("code") for line in lines.values() if "refused" in line
    ).most_common():
        print(f"refused, {code}: {count}")
    for model, line in faults.items():
        print(f"fault {model}: {line['fault']}")


if __name__ == "__main__":
    sys.exit(main())
