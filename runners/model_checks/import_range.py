"""The patched package imported under the oldest and the newest transformers that the checkout supports, as verdicts."""

from __future__ import annotations

import json
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from runners.model_checks.versions import SITES, Range, numbers, sites, supported
from runners.protocol import Gate, Job, Outcome, Verdict, VerifyModelPayload
from runners.sandbox import Child, Limits, read_result, run_confined, site_packages

SCRIPT = Path(__file__).resolve().parent.parent / "confined" / "import_patch.py"
DEADLINE_S = 120.0
LEAST_S = 10.0  # less than an import takes
REASON = "a guarded import or an output class that one supported transformers lacks broke the whole package (#1169, #1263)"


def import_range(
    job: Job, payload: VerifyModelPayload, checkouts: tuple[Path, Path], scratch: Path, target_python: Path
) -> list[Verdict]:
    """One verdict for each environment of the runner that the checkout supports, and one that says what is missing.

    job: its deadline is for all of them together. checkouts: with the patch, and as it was: what fails without the patch as well is not the patch's.
    """
    declared, known = supported(checkouts[0]), sites()
    found = []
    ends = time.monotonic() + job.deadline_s
    for version, site in known.items():
        job = job.model_copy(update={"deadline_s": max(1.0, ends - time.monotonic())})
        if declared.has(version) and job.deadline_s < LEAST_S:
            found.append(
                _verdict(version, None, f"not run: {job.deadline_s:.0f} s of the job's time were left")
            )
        elif declared.has(version):
            found.append(_under(version, site, declared, job, payload, checkouts, scratch, target_python))
    installed = _installed()
    if declared.oldest and not any(declared.is_oldest(version) for version in [*known, installed]):
        asked = f"{declared.where} asks for transformers >= {declared.oldest}"
        found.append(
            _verdict("oldest", None, f"not run: {asked}, and {SITES} of the runner has no folder with it")
        )
    newest = max([*filter(declared.has, known), installed], key=numbers)
    if newest == installed:
        bound = f"below {declared.below}" if declared.below else "without an upper bound"
        found.append(
            _verdict(
                "newest",
                True,
                f"transformers {installed}, the installed one, is the newest here ({bound}): all checks run under it",
            )
        )
    return found


def _installed() -> str:
    try:
        return metadata.version("transformers")
    except metadata.PackageNotFoundError:
        return "0"


def _under(
    version: str, site: Path, declared: Range, job: Job, payload: VerifyModelPayload,
    checkouts: tuple[Path, Path], scratch: Path, target_python: Path,
) -> Verdict:  # fmt: skip
    started = time.monotonic()
    patched = _imported(
        checkouts[0], site, payload.imports, job, payload, scratch / f"{version}-after", target_python
    )
    seconds = time.monotonic() - started
    name = version + (f", the oldest that {declared.where} allows" if declared.is_oldest(version) else "")
    if isinstance(patched, str):
        return _verdict(version, False, f"transformers {name}: {patched}", seconds=seconds)
    if "unusable" in patched:
        why = f"not run: the runner's transformers {version} can't be imported: {str(patched['unusable'])[:200]}"
        return _verdict(version, None, why, seconds=seconds)
    failed: dict[str, str] = patched["failed"]
    if not failed:
        without = (
            "" if patched["model"] else "; it has no such model, so the model's own module was not asked for"
        )
        return _verdict(version, True, f"transformers {name}: imports{without}", seconds=seconds)
    details = "\n".join(f"{what}: {why}" for what, why in failed.items())
    summary = f"transformers {name}: {next(iter(failed.values()))}"
    root = [f"{payload.package}.transformers:AutoLigerKernelForCausalLM"]
    before = _imported(checkouts[1], site, root, job, payload, scratch / f"{version}-before", target_python)
    if (
        isinstance(before, dict)
        and before["failed"]
        and set(before["failed"].values()) >= set(failed.values())
    ):
        return _verdict(
            version, False, f"already so before this change: {summary}", details, seconds, old=True
        )
    return _verdict(version, False, summary, details, seconds)


def _imported(
    checkout: Path,
    site: Path,
    imports: list[str],
    job: Job,
    payload: VerifyModelPayload,
    folder: Path,
    python: Path,
) -> dict[str, Any] | str:
    """What the child wrote, or how it ended without writing."""
    folder.mkdir()
    (folder / "task.json").write_text(
        json.dumps(
            {**payload.model_dump(include={"package", "model_type", "modeling_module"}), "imports": imports}
        )
    )
    (folder / "made").mkdir()
    ended = run_confined(
        Child(
            script=SCRIPT,
            arguments=[str(folder / "task.json"), str(folder / "made" / "result.json")],
            python=python,
            cwd=checkout,
            limits=Limits(deadline_s=min(DEADLINE_S, job.deadline_s), memory_bytes=job.memory_bytes),
            import_path=[checkout / "src", checkout, site, *site_packages(python)],
            readable=[folder, checkout, site],
            writable=[folder / "made"],
            environment={"OMP_NUM_THREADS": "1", "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""},
        ),
        lambda _: None,
    )
    found = read_result(folder / "made" / "result.json")
    if isinstance(found, dict) and isinstance(found.get("failed"), dict) and ended.ok:
        # where the runner keeps its environments is not for a pull request
        found["failed"] = {
            str(name): str(why).replace(f"{site}/", "").replace(f"{checkout}/", "")
            for name, why in found["failed"].items()
        }
        return found
    last = ended.output.strip().splitlines()[-1:] or [""]
    return f"the import ended early: {ended.why or 'it left no result'} {last[0][:200]}".strip()


def _verdict(
    version: str, ok: bool | None, summary: str, details: str = "", seconds: float = 0.0, *, old: bool = False
) -> Verdict:
    outcome = (
        Outcome.skipped
        if ok is None
        else Outcome.passed
        if ok
        else Outcome.flagged
        if old
        else Outcome.failed
    )
    return Verdict(
        check=f"model/import/{version}",
        gate=Gate.correctness,
        outcome=outcome,
        hard=not old,
        summary=summary[:500],
        details=f"Stands for: {REASON}.\n{details}"[:20_000],
        elapsed_s=seconds,
    )
