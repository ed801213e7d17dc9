"""Replays model additions of Liger-Kernel's history: autopatch just before each, judged by the tests merged with it.

python -m benchmarks.autopatch_replay --repo MIRROR --profiles DIR --models nemotron,ministral --out benchmarks/results/autopatch

MIRROR is a git directory with the whole history. For each model the commit that registered it is found, its parent is
unpacked, the patch is made there from the profile (DIR/{model}.json, or else one made now with the newest commit's Liger
classes, because an old release rarely imports with the installed transformers), and the tests that the commit brought are laid over
it: the instance test, and the convergence tests in reduced form. The transformers used is the installed one, whatever the
commit's was; what fails to import with it is said. A model with a stored result is skipped, so that a run can be resumed.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import json
import subprocess
import sys
import tarfile
import tempfile
import time
from io import BytesIO
from pathlib import Path
from typing import Any

from agents.autopatch.act import act, write
from agents.autopatch.model_profile import ModelProfile
from agents.autopatch.understand import ask, understand
from agents.autopatch.verify import plan
from agents.conventions import NotAKernelLibrary
from agents.conventions.edits import AnchorMissing
from agents.dev.act import ActFailed
from agents.dev.refused import Refused
from app.checkout import CheckoutTree
from benchmarks.autopatch_batch import SCENARIOS, verified
from kernels.syntax import syntax_tree
from runners.environment import current_environment
from runners.jobs import run_job
from runners.protocol import Gate, Job, Report, VerifyModelPayload

MONKEY_PATCH = "src/liger_kernel/transformers/monkey_patch.py"
MODELS = "src/liger_kernel/transformers/model"
TEST_MONKEY_PATCH = "test/transformers/test_monkey_patch.py"
QUICK_BATCH = 3
NOT_NEEDED = (".arrow", ".png", ".gif", ".csv", ".ipynb")


class _Bench:
    """Runs jobs in this process's own runner."""

    async def run(self, job: Job, on_progress: Any = None) -> Report:  # noqa: ARG002 - the port's name
        return await asyncio.to_thread(run_job, job, lambda _: None)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--repo", type=Path, required=True, help="git directory with the history")
    parser.add_argument("--profiles", type=Path, help="folder with {model}.json; made when one is missing")
    parser.add_argument("--models", required=True, help="model types, separated by commas")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/autopatch"))
    parser.add_argument("--deadline", type=float, default=400.0, help="seconds a model")
    parser.add_argument(
        "--convergence",
        default="",
        help="parts of the paths of upstream's convergence files to run, separated by commas; all when left out",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="the cheap form of our own checks, unformatted files, several models in one child",
    )
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    wanted = tuple(part for part in arguments.convergence.split(",") if part)
    models = [m for m in arguments.models.split(",") if not (arguments.out / f"{m}.json").exists()]
    size = QUICK_BATCH if arguments.quick else 1
    for start in range(0, len(models), size):
        batch = models[start : start + size]
        profiles = {model: profile_of(arguments.repo, arguments.profiles, model) for model in batch}
        given = {model: one for model, one in profiles.items() if isinstance(one, ModelProfile)}
        found: dict[str, dict[str, Any]] = {
            model: {"refused": one.reason} for model, one in profiles.items() if isinstance(one, Refused)
        }
        if arguments.quick:
            found |= quick_replays(arguments.repo, given, arguments.deadline, wanted)
        else:
            for model, profile in given.items():
                found[model] = replay(arguments.repo, profile, arguments.deadline, wanted)
        for model, result in found.items():
            if model in given:
                result["decisions"] = [one.model_dump(mode="json") for one in given[model].decisions]
            result["quick"] = arguments.quick
            result["environment"] = current_environment().model_dump(mode="json")
            text = json.dumps(result, indent=1) + "\n"
            (arguments.out / f"{model}.json").write_text(text, encoding="utf-8")
            print(line(model, result), flush=True)
    return 0


def profile_of(repo: Path, folder: Path | None, model: str) -> ModelProfile | Refused:
    """The stored profile, or one made now on the newest commit."""
    stored = folder / f"{model}.json" if folder else None
    if stored is not None and stored.exists():
        return ModelProfile.model_validate_json(stored.read_text(encoding="utf-8"))
    asked = ask(model)
    if isinstance(asked, Refused):
        return asked
    with tempfile.TemporaryDirectory() as scratch:
        newest = Path(scratch) / "newest"
        unpack(repo, "HEAD", newest)
        return asyncio.run(understand(asked, str(newest), _Bench(), CheckoutTree(newest), replay=True))


def replay(
    repo: Path, profile: ModelProfile, deadline_s: float, convergence: tuple[str, ...] = ()
) -> dict[str, Any]:
    """One model's replay; a refusal is a result. `convergence`: parts of the paths of upstream's files to run; all when empty."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        found, payloads = prepared(repo, profile, Path(folder) / "base", convergence, quick=False)
        for name, payload in payloads.items():
            job = Job(
                id=f"replay-{profile.model_type}-{name}",
                nonce="replay",
                deadline_s=deadline_s,
                payload=payload,
            )
            found[name] = _kept(name, verdicts(run_job(job, lambda _: None)))
    return found | {"seconds": round(time.monotonic() - started, 1)}


def quick_replays(
    repo: Path, profiles: dict[str, ModelProfile], deadline_s: float, convergence: tuple[str, ...]
) -> dict[str, dict[str, Any]]:
    """Replays in the cheap form, in one child."""
    found: dict[str, dict[str, Any]] = {}
    payloads: dict[str, VerifyModelPayload] = {}
    with tempfile.TemporaryDirectory() as folder:
        for model, profile in profiles.items():
            found[model], asked = prepared(repo, profile, Path(folder) / model, convergence, quick=True)
            payloads |= {f"{model}.{name}": payload for name, payload in asked.items()}
        checks = verified(payloads, deadline_s * len(profiles)) if payloads else {}
    for key, verdicts_ in checks.items():
        model, _, name = key.rpartition(".")
        found[model][name] = _kept(name, verdicts_)
        found[model]["seconds"] = round(
            sum(v["seconds"] for g in ("own", "upstream") for v in found[model].get(g, [])), 1
        )
    return found


def prepared(
    repo: Path, profile: ModelProfile, base: Path, convergence: tuple[str, ...], *, quick: bool
) -> tuple[dict[str, Any], dict[str, VerifyModelPayload]]:
    """The patch at the commit before the addition: what is known of it, and the payloads of our own checks and of upstream's tests."""
    model = profile.model_type
    commit = adding_commit(repo, model)
    if commit is None:
        return {"refused": "no commit of the history registers it"}, {}
    unpack(repo, f"{commit}^", base)
    tree = CheckoutTree(base)
    try:
        if quick:
            candidate = write(profile, tree)
        else:
            candidate = asyncio.run(act(profile, tree, _Bench(), checkout=str(base)))
    except (ActFailed, AnchorMissing, NotAKernelLibrary) as error:
        return {"commit": commit, "refused": str(error)}, {}
    theirs = upstream_tests(repo, commit)
    ours = {path: text for path, text in candidate.files.items() if not path.startswith("test/")}
    names = new_tests(tree.read(TEST_MONKEY_PATCH), theirs.get(TEST_MONKEY_PATCH), model)
    found = {
        "commit": commit,
        "files": sorted(candidate.files),
        "beyond": candidate.beyond,
        "left_out": candidate.left_out,
    }
    plain = plan(profile, candidate, str(base), "", applied=False)[Gate.correctness]
    assert isinstance(plain, VerifyModelPayload)
    files = {**ours, **theirs, **upstream_names(repo, commit, model, set(ours))}
    there = [p for p in files if p.startswith("test/convergence/") and "multimodal" not in p]
    # upstream's own files are the judge of convergence here
    own: dict[str, Any] = {"files": candidate.files, "stand_ins": True, "convergence": []}
    upstream: dict[str, Any] = {
        "files": files,
        "stand_ins": True,
        "only_tests": True,
        "instance_tests": [f"{TEST_MONKEY_PATCH}::{name}" for name in names],
        "convergence": [p for p in there if not convergence or any(part in p for part in convergence)],
    }
    if quick:
        own["scenarios"] = SCENARIOS
    return found, {"own": plain.model_copy(update=own), "upstream": plain.model_copy(update=upstream)}


def _kept(name: str, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of upstream's run, the tests; and whatever failed, so that none is lost."""
    tests = ("model/test/", "model/convergence/")
    return [v for v in found if name == "own" or v["check"].startswith(tests) or v["outcome"] != "passed"]


def verdicts(report: Report) -> list[dict[str, Any]]:
    """The verdicts of a report as records; a job that did not complete adds a failed one."""
    found = [
        {"check": v.check, "outcome": v.outcome.value, "summary": v.summary, "seconds": round(v.elapsed_s, 1)}
        for v in report.verdicts
    ]
    if report.status.value != "completed":
        found.append(
            {
                "check": "model/job",
                "outcome": "failed",
                "summary": f"{report.status.value}: {report.log_tail[-300:]}",
            }
        )
    return found


def adding_commit(repo: Path, model: str) -> str | None:
    """The first commit whose change contains the model's entry in the table."""
    entry = f'"{model}": apply_liger'
    output = _git(
        repo, "log", "HEAD", "--first-parent", "--reverse", "--format=%H", f"-S{entry}", "--", MONKEY_PATCH
    )
    return output.decode().split("\n", 1)[0] or None


def upstream_tests(repo: Path, commit: str) -> dict[str, str]:
    """The test files that the commit changed, as it left them."""
    names = (
        _git(repo, "diff", "--name-only", "--diff-filter=AM", f"{commit}^", commit, "--", "test")
        .decode()
        .split()
    )
    return {
        name: _git(repo, "show", f"{commit}:{name}").decode()
        for name in names
        if name.endswith((".py", ".json"))
    }


def upstream_names(repo: Path, commit: str, model: str, ours: set[str]) -> dict[str, str]:
    """Modules by which upstream's tests import our lce_forward, where upstream called its one forward or its file otherwise."""
    added = (
        _git(repo, "diff", "--name-only", "--diff-filter=A", f"{commit}^", commit, "--", MODELS)
        .decode()
        .split()
    )
    found = {}
    for path in added:
        forwards = [
            n for n in _functions(_git(repo, "show", f"{commit}:{path}").decode()) if n.endswith("forward")
        ]
        if path not in ours and len(forwards) == 1:
            imported = f"from liger_kernel.transformers.model.{model} import lce_forward"
            found[path] = imported + (f" as {forwards[0]}" if forwards[0] != "lce_forward" else "") + "\n"
    return found


def new_tests(before: str | None, after: str | None, model: str) -> list[str]:
    """Instance tests that the commit added, of this model."""
    if after is None:
        return []
    old = set(_functions(before or ""))
    stem = "test_apply_liger_kernel_to_instance_for_"
    added = [name for name in _functions(after) if name.startswith(stem) and name not in old]
    exact = [name for name in added if name == f"{stem}{model}"]
    return exact or [name for name in added if name.removeprefix(stem).startswith(model)]


def _functions(text: str) -> list[str]:
    return [node.name for node in syntax_tree(text).body if isinstance(node, ast.FunctionDef)]


def unpack(repo: Path, commit: str, destination: Path) -> None:
    """The commit's files, but for large binaries that a mirror may lack."""
    listing = _git(repo, "ls-tree", "-r", "-z", "--name-only", commit).decode().split("\0")
    wanted = [
        n
        for n in listing
        if n and not n.endswith(NOT_NEEDED) and not n.startswith(("docs/", "examples/", "licenses/"))
    ]
    archive = _git(repo, "archive", "--format=tar", commit, "--", *wanted)
    destination.mkdir(parents=True)
    with tarfile.open(fileobj=BytesIO(archive)) as tar:
        tar.extractall(destination, filter="data")


def _git(repo: Path, *arguments: str) -> bytes:
    return subprocess.run(["git", f"--git-dir={repo}", *arguments], check=True, capture_output=True).stdout


def line(model: str, result: dict[str, Any]) -> str:
    """One line a model, for a person who watches."""
    if "refused" in result:
        return f"{model}: refused: {result['refused']}"
    parts = []
    for name in ("own", "upstream"):
        outcomes = [verdict["outcome"] for verdict in result[name]]
        failed = [v["check"].removeprefix("model/") for v in result[name] if v["outcome"] != "passed"]
        parts.append(
            f"{name} {outcomes.count('passed')}/{len(outcomes)}"
            + (f" (not: {', '.join(failed)})" if failed else "")
        )
    return f"{model} ({result['commit'][:8]}): {', '.join(parts)}, {result['seconds']} s"


if __name__ == "__main__":
    sys.exit(main())
