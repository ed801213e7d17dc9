"""Format and lint with the target's own ruff rules, on the candidate's files only.

Liger's `make checkstyle` fixes files and then exits 1 if it had to; ruff 0.17 would reformat 13 files that its own pin
leaves alone. So the version is compared with the target's pin, and a mismatch is said, not hidden.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from runners.checkout import copy_checkout, inside
from runners.checks.static import check_static
from runners.protocol import Gate, Job, Outcome, Progress, Report, Status, StylePayload, StyleResult, Verdict
from runners.sandbox import scratch_folder

TIMEOUT_S = 60
MAX_DETAILS = 20_000


def check_style(job: Job, payload: StylePayload, on_progress: Callable[[Progress], None]) -> Report:
    """Style verdicts for the candidate's files; with `fix` also the files as ruff leaves them."""
    report = Report(job_id=job.id, nonce=job.nonce, kind="style", status=Status.completed)

    def progress(done: int, note: str) -> None:
        on_progress(Progress(job_id=job.id, done=done, total=3, note=note))

    progress(0, "reading what the kernels do")
    report.verdicts += check_static(payload.files, payload.products)
    python = sorted(name for name in payload.files if name.endswith(".py"))
    ruff = find_ruff()
    if ruff is None:
        report.verdicts.append(
            _verdict("style/ruff", Outcome.skipped, "ruff is not installed on this runner")
        )
        report.result = StyleResult(files=dict(payload.files) if payload.fix else {})
        return report
    with scratch_folder() as scratch:
        copy = copy_checkout(Path(payload.checkout), scratch / "checkout", payload.files)
        progress(1, "ruff check")
        report.verdicts += lint(ruff, copy, python, fix=payload.fix)
        progress(2, "ruff format")
        report.verdicts += format_files(ruff, copy, python, fix=payload.fix)
        if payload.fix:
            report.result = StyleResult(
                files={name: inside(copy, name).read_text() for name in payload.files}
            )
    report.verdicts += _version_verdict(ruff, payload.ruff)
    progress(3, "style done")
    return report


def find_ruff() -> Path | None:
    """ruff beside this interpreter, or on the path. LIGER_BOT_RUFF names another one, e.g. the target's pinned version."""
    beside = Path(sys.executable).parent / "ruff"
    named = os.environ.get("LIGER_BOT_RUFF")
    found = named or (str(beside) if beside.exists() else shutil.which("ruff"))
    return Path(found) if found else None


def lint(ruff: Path, checkout: Path, files: list[str], *, fix: bool) -> list[Verdict]:
    """One verdict a finding, or one that says all is well."""
    started = time.monotonic()
    done = _run(
        [
            str(ruff),
            "check",
            "--no-cache",
            "--output-format",
            "json",
            *(["--fix"] if fix else []),
            "--",
            *files,
        ],
        checkout,
    )
    try:
        findings = json.loads(done.stdout or "null")
    except json.JSONDecodeError:
        findings = None
    if not isinstance(findings, list):
        return [
            _verdict(
                "style/ruff-check",
                Outcome.failed,
                "ruff could not read the target's configuration or the files",
                details=done.stderr,
            )
        ]
    elapsed = time.monotonic() - started
    if not findings:
        return [
            _verdict(
                "style/ruff-check",
                Outcome.passed,
                f"{len(files)} files follow the target's lint rules",
                elapsed_s=elapsed,
            )
        ]
    return [
        _verdict(
            "style/ruff-check",
            Outcome.failed,
            f"{finding.get('code') or 'syntax'}: {finding['message']}",
            path=str(Path(finding["filename"]).resolve().relative_to(checkout.resolve())),
            line=finding["location"]["row"],
        )
        for finding in findings
    ]


def format_files(ruff: Path, checkout: Path, files: list[str], *, fix: bool) -> list[Verdict]:
    """Whether ruff format would change a file; with `fix` it does, and says nothing."""
    started = time.monotonic()
    verdicts = []
    before = {name: inside(checkout, name).read_text() for name in files}
    done = _run([str(ruff), "format", "--no-cache", "--", *files], checkout)
    if done.returncode != 0:
        return [
            _verdict(
                "style/ruff-format", Outcome.failed, "ruff could not format the files", details=done.stderr
            )
        ]
    for name in files:
        after = inside(checkout, name).read_text()
        if after != before[name] and not fix:
            diff = "".join(
                difflib.unified_diff(
                    before[name].splitlines(True), after.splitlines(True), name, f"{name} (formatted)"
                )
            )
            verdicts.append(
                _verdict(
                    "style/ruff-format",
                    Outcome.failed,
                    f"{name} is not formatted by the target's rules",
                    details=diff,
                    path=name,
                )
            )
    elapsed = time.monotonic() - started
    return verdicts or [
        _verdict("style/ruff-format", Outcome.passed, f"{len(files)} files are formatted", elapsed_s=elapsed)
    ]


def _version_verdict(ruff: Path, requirement: str | None) -> list[Verdict]:
    if not requirement:
        return []
    shown = _run([str(ruff), "--version"], Path("/")).stdout.split()
    version = shown[1] if len(shown) > 1 else "?"
    if satisfies(version, requirement):
        return [
            _verdict(
                "style/ruff-version",
                Outcome.passed,
                f"ruff {version} is what the target asks for ({requirement})",
            )
        ]
    summary = f"the target asks for {requirement}, this runner has ruff {version}: its formatting may differ in details"
    return [_verdict("style/ruff-version", Outcome.flagged, summary, hard=False)]


def satisfies(version: str, requirement: str) -> bool:
    """Whether a version meets a requirement such as "ruff>=0.12,<0.16" (comparisons and == only; others count as met)."""
    numbers = _numbers(version)
    for operator, wanted in re.findall(r"(>=|<=|==|!=|~=|<|>)\s*([\w.]+)", requirement):
        other = _numbers(wanted)
        width = max(len(numbers), len(other))
        mine, theirs = numbers + (0,) * (width - len(numbers)), other + (0,) * (width - len(other))
        met = {
            ">=": mine >= theirs,
            "<=": mine <= theirs,
            "==": mine == theirs,
            "!=": mine != theirs,
            "<": mine < theirs,
            ">": mine > theirs,
            "~=": mine >= theirs and numbers[: len(other) - 1] == other[:-1],
        }[operator]
        if not met:
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def _run(command: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(cwd), "RUFF_NO_CACHE": "true"}
    try:
        return subprocess.run(
            command,
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", f"{command[0]} took longer than {TIMEOUT_S} s")


def _verdict(
    check: str,
    outcome: Outcome,
    summary: str,
    *,
    hard: bool = True,
    details: str = "",
    path: str | None = None,
    line: int | None = None,
    elapsed_s: float = 0.0,
) -> Verdict:
    return Verdict(
        check=check,
        gate=Gate.style,
        outcome=outcome,
        hard=hard,
        summary=summary[:500],
        details=details[:MAX_DETAILS],
        path=path,
        line=line,
        elapsed_s=elapsed_s,
    )
