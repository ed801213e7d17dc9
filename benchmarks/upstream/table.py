"""From the plugin's records to counts per op, and from those to the table of docs/coverage.md. Pure.

A test counts for us only when a derived Function was called in it and the target's own answered no call; it passes
only when a derived kernel was launched. Everything else that ran is "not ours", whatever its outcome.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

HEADING = "## Upstream's own tests"
TOO_SLOW = "too slow here"
KINDS = ("passed", "failed", "skipped", "too_slow", "not_ours", "not_reached")


def kind_of(record: Mapping[str, Any]) -> str:
    """One of KINDS, but not_reached. A test that fails as expected upstream (xfail) is skipped: it judges nobody."""
    if TOO_SLOW in record["reason"]:
        return "too_slow"
    if record["outcome"] in ("skipped", "xfailed"):
        return "skipped"
    if record["not_ours"] or not record["calls"]:
        return "not_ours"
    if record["outcome"] == "passed" and not record["launches"]:
        return "not_ours"  # e.g. an empty input, for which nothing is launched
    return record["outcome"]


def failing(records: Iterable[Mapping[str, Any]]) -> list[str]:
    """Ids of the tests that failed."""
    return [record["test"] for record in records if "test" in record and kind_of(record) == "failed"]


def summary(
    records: Iterable[Mapping[str, Any]],
    baseline: Iterable[Mapping[str, Any]] = (),
    notes: Mapping[str, str] = {},
    deselected: Mapping[str, str] = {},
    remark: str = "",
) -> dict[str, Any]:
    """Counts of one op, its failing tests with their reasons, why tests were not ours, and which variants ran.

    baseline: records of the failing tests with the target's own Functions ·
    notes: the beginning of a test's name after `::` -> what is understood about its failure. A record {"ended": …} says
    how the process ended when not by itself. deselected: beginnings of names that were left out -> why.
    """
    collected: list[str] = []
    tests: dict[str, Mapping[str, Any]] = {}
    ended, environment = "", {}
    for record in records:
        if "collected" in record:
            collected, environment = record["collected"], record.get("environment", {})
        elif "ended" in record:
            ended = record["ended"]
        else:
            tests[record["test"]] = record
    itself = {record["test"]: record["outcome"] for record in baseline if "test" in record}
    counts: dict[str, int] = dict.fromkeys(KINDS, 0)
    counts["not_reached"] = len([test for test in collected if test not in tests])
    failures: list[dict[str, str]] = []
    not_ours: dict[str, int] = {}
    launched: dict[str, int] = {}
    variants: set[str] = set()
    for test, record in tests.items():
        kind = kind_of(record)
        counts[kind] += 1
        name = test.split("::", 1)[-1]
        if kind == "failed":
            note = next((text for start, text in notes.items() if name.startswith(start)), "")
            failures.append(
                {
                    "test": name,
                    "reason": record["reason"],
                    "target_itself": itself.get(test, "not run"),
                    "note": note,
                }
            )
        if kind == "not_ours":
            why = ", ".join(record["not_ours"]) or "no derived kernel was launched"
            if record["outcome"] == "failed":
                why += f" (and it failed: {record['reason']})"
            not_ours[why] = not_ours.get(why, 0) + 1
        for kernel, launches in record["launches"].items():
            launched[kernel] = launched.get(kernel, 0) + launches
        variants.update(record["calls"])
    return {
        "tests": len(collected),
        **counts,
        "seconds": round(sum(record["seconds"] for record in tests.values()), 1),
        "failures": failures,
        "not_ours_because": not_ours,
        "variants": sorted(variants),
        "launches": dict(sorted(launched.items())),
        "environment": environment,
        "deselected": {
            start: why
            for start, why in deselected.items()
            if not any(f"::{start}" in test for test in collected)
        },
        "remark": remark,
        "ended": ended,
    }


def section(results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Lines of docs/coverage.md for result files by name ("cpu" -> its JSON); none where there are no results."""
    if not results:
        return []
    lines = [
        "",
        HEADING,
        "",
        "`python -m benchmarks.upstream` prints the derived modules, puts them behind Liger's Functions in a copy of its package, and runs Liger's unit tests of each op there.",
        "A test counts as passed or failed only when a derived kernel was launched in it and Liger's own Function answered no call; otherwise it is *not ours*.",
        "Where a test compares Liger's functional form with its Function, it compares the derived kernel with itself.",
        "*Variants* are the references that answered: the catalog's op, and the same with Liger's options written out (`benchmarks/upstream/references.py`).",
        "*Too slow* and *not reached* are limits of the machine: seconds a test and seconds an op.",
    ]
    for result in results.values():
        lines += [
            "",
            _where(result),
            "",
            "| op | variants | tests | passed | failed | skipped | not ours | too slow | not reached | seconds |",
            "|---|---|---|---|---|---|---|---|---|---|",
            *(_row(op, counts) for op, counts in result["ops"].items()),
        ]
        remarks = [*_other_environments(result), *_remarks(result["ops"])]
        if remarks:
            lines += ["", *remarks]
    return lines


def _where(result: Mapping[str, Any]) -> str:
    environment = result["environment"]
    interpreter = " (interpreter, repaired)" if environment["interpreter"] else ""
    return (
        f"**{environment['device']}**: Liger {result['liger_commit'][:10]}, torch {environment['torch']}, "
        f"triton {environment['triton']}{interpreter}, transformers {environment['transformers']}. "
        f"`{result['command']}`"
    )


def _other_environments(result: Mapping[str, Any]) -> Iterable[str]:
    """Ops that ran with another version of something than the first one did."""
    usual = result["environment"]
    for op, counts in result["ops"].items():
        other = {key: value for key, value in counts["environment"].items() if usual.get(key) != value}
        if other:
            yield f"- `{op}` ran with " + ", ".join(f"{key} {value}" for key, value in other.items()) + "."


def _row(op: str, counts: Mapping[str, Any]) -> str:
    columns = ("tests", "passed", "failed", "skipped", "not_ours", "too_slow", "not_reached", "seconds")
    variants = str(len(counts["variants"]))
    return "| " + " | ".join([f"`{op}`", variants, *(str(counts[column]) for column in columns)]) + " |"


def _remarks(ops: Mapping[str, Mapping[str, Any]]) -> Iterable[str]:
    """What failed and why, one line a reason; why tests were not ours."""
    for op, counts in ops.items():
        by_note: dict[tuple[str, str], list[str]] = {}
        for failure in counts["failures"]:
            key = (failure["note"] or failure["reason"], failure["target_itself"])
            by_note.setdefault(key, []).append(failure["test"])
        for (note, itself), tests in by_note.items():
            more = f" and {len(tests) - 1} more" if len(tests) > 1 else ""
            yield f"- `{op}`, failed `{tests[0]}`{more} (Liger's own kernel: {itself}): {_line(note)}"
        if counts["ended"] and not counts["tests"]:
            yield f"- `{op}`, no test could be collected: {_line(counts['ended'])}"
        if counts["remark"]:
            yield f"- `{op}`: {_line(counts['remark'])}"
        for test, why in counts["deselected"].items():
            yield f"- `{op}`, deselected `{test}`: {_line(why)}"
        for why, count in counts["not_ours_because"].items():
            yield f"- `{op}`, not ours ({count}): {_line(why)}"


def _line(text: str) -> str:
    return " ".join(text.split())
