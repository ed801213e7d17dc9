"""The target repository's own tests: the generated ones, and the neighbours that an export could break.

Liger's functional tests compare Liger with Liger and pass on garbage; so they are run, counted, and not believed alone.
A file in which nothing ran is not a pass: qwen2vl_mrope skips everything after an import drifted.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from pathlib import Path

from runners.protocol import Gate, Outcome, Verdict

MAX_REPORT_BYTES = 32 * 1024**2


@dataclass
class FileCount:
    """What happened to the tests of one file."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)
    first: str = ""
    skip_reason: str = ""


def parse_junit(path: Path) -> dict[str, FileCount] | None:
    """Counts by test file from pytest's junit report, or None when there is none that can be read."""
    try:
        if path.is_symlink() or path.stat().st_size > MAX_REPORT_BYTES:
            return None
        text = path.read_text(errors="replace")
        if "<!ENTITY" in text or "<!DOCTYPE" in text:  # written by a child: no entity expansion
            return None
        root = ET.fromstring(text)  # noqa: S314 - entities were refused above
    except (OSError, ET.ParseError):
        return None
    counts: dict[str, FileCount] = {}
    for case in root.iter("testcase"):
        name = case.get("file") or _file_of(case.get("classname", ""))
        count = counts.setdefault(name, FileCount())
        count.seconds += float(case.get("time") or 0)
        problem = case.find("failure") if case.find("failure") is not None else case.find("error")
        if problem is not None:
            count.failed += 1
            count.failures.append(
                f"{case.get('name')}: {(problem.get('message') or '').splitlines()[0] if problem.get('message') else ''}"
            )
            count.first = count.first or (problem.text or problem.get("message") or "")[-6000:]
        elif (skip := case.find("skipped")) is not None:
            count.skipped += 1
            count.skip_reason = count.skip_reason or (skip.get("message") or "")
        else:
            count.passed += 1
    return counts


def _file_of(classname: str) -> str:
    parts = classname.split(".")
    # "test.transformers.test_x" or "test.transformers.test_x.TestClass"
    while len(parts) > 1 and not parts[-1].startswith("test"):
        parts.pop()
    return "/".join(parts) + ".py"


def file_verdicts(
    requested: list[str], neighbours: list[str], counts: dict[str, FileCount] | None, why: str, log: str
) -> list[Verdict]:
    """One verdict a requested file. `why` says how the process ended when it did not end by itself."""
    if not requested and not neighbours:
        return []
    if counts is None:
        summary = f"the tests could not be run: {why or 'pytest left no report'}"
        return [
            Verdict(
                check="tests",
                gate=Gate.correctness,
                outcome=Outcome.failed,
                summary=summary,
                details=log[-20_000:],
            )
        ]
    verdicts = []
    for argument in [*requested, *neighbours]:
        file = argument.split("::")[0]
        kind = "tests" if argument in requested else "neighbours"
        verdicts.append(
            _file_verdict(
                f"{kind}/{Path(file).stem}", file, counts.get(file), why, log, generated=argument in requested
            )
        )
    return verdicts


def _file_verdict(
    check: str, file: str, count: FileCount | None, why: str, log: str, *, generated: bool
) -> Verdict:
    outcome, details = Outcome.passed, ""
    if count is None or not (count.passed or count.failed or count.skipped):
        outcome, summary, details = (
            Outcome.failed,
            f"{file}: no test ran" + (f" ({why})" if why else ""),
            log[-20_000:],
        )
    elif count.failed:
        summary = f"{file}: {count.failed} failed, {count.passed} passed; first: {count.failures[0]}"
        outcome, details = Outcome.failed, "\n".join(count.failures[:50]) + "\n\n" + count.first
    elif not count.passed:
        # A generated test that never runs proves nothing; a neighbour may need what this machine lacks.
        outcome = Outcome.failed if generated else Outcome.skipped
        summary = f"{file}: all {count.skipped} tests were skipped: {count.skip_reason}"
    else:
        skipped = f", {count.skipped} skipped ({count.skip_reason})" if count.skipped else ""
        summary = f"{file}: {count.passed} passed{skipped}"
        if why:
            outcome, summary = Outcome.failed, f"{summary}; but the run was {why}"
    elapsed = count.seconds if count else 0.0
    return Verdict(
        check=check,
        gate=Gate.correctness,
        outcome=outcome,
        summary=summary[:500],
        details=details[:20_000],
        path=file,
        elapsed_s=elapsed,
    )
