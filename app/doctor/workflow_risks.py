"""Which workflows of a repository would run the bot's branches on its own runners. Pure.

A push or a pull request by an App starts workflows like anyone's, with no approval in between: code that nobody has
looked at would run outside our sandbox, on machines that keep what it leaves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

MAX_CHARS = 200_000
_HOSTED = re.compile(r"(ubuntu|windows|macos)-[a-z0-9.-]+", re.IGNORECASE)
_PULL_EVENTS = ("pull_request", "pull_request_target")


@dataclass(frozen=True)
class Risk:
    """A job that would run, and what starts it."""

    path: str
    job: str
    event: str
    where: str  # what it runs on, as written
    fix: str


def risks(path: str, text: str, branch_prefix: str, default_branch: str) -> list[Risk]:
    """Jobs of a workflow that a push to the bot's branches, or a pull request from them, starts on self-hosted runners."""
    try:
        parsed = yaml.safe_load(text[:MAX_CHARS])
    except (yaml.YAMLError, RecursionError, ValueError):
        return []  # GitHub can't run it either
    if not isinstance(parsed, dict) or not isinstance(parsed.get("jobs"), dict):
        return []
    # `on` is a word for true in YAML 1.1
    triggers = _triggers(parsed.get("on", parsed.get(True)))
    found = []
    for event, rules in triggers.items():
        if event == "push" and _pushed(rules, branch_prefix):
            fix = f"add `branches-ignore: ['{branch_prefix}**']` below `push:`"
        elif event in _PULL_EVENTS and _pulled(rules, default_branch):
            fix = f"add `if: ${{{{ !startsWith(github.head_ref, '{branch_prefix}') }}}}` to the job"
        else:
            continue
        found += [
            Risk(path, name, event, where, fix)
            for name, where in _own_runners(parsed["jobs"])
            if not _guarded(parsed["jobs"][name], branch_prefix)
        ]
    return found


def _triggers(on: Any) -> dict[str, Any]:
    if isinstance(on, str):
        return {on: None}
    if isinstance(on, list):
        return {str(event): None for event in on}
    return {str(event): rules for event, rules in on.items()} if isinstance(on, dict) else {}


def _pushed(rules: Any, branch_prefix: str) -> bool:
    rules = rules if isinstance(rules, dict) else {}
    sample = f"{branch_prefix}op-abc1234"
    if "branches" in rules:
        return _fits(sample, rules["branches"])
    if "branches-ignore" in rules:
        return not _fits(sample, rules["branches-ignore"])
    return not any(key in rules for key in ("tags", "tags-ignore"))


def _pulled(rules: Any, default_branch: str) -> bool:
    """A pull request's filter is about the branch that it goes to."""
    rules = rules if isinstance(rules, dict) else {}
    types = rules.get("types")
    if types is not None and not {"opened", "synchronize", "reopened", "labeled"} & set(_list(types)):
        return False
    if "branches" in rules:
        return _fits(default_branch, rules["branches"])
    return not ("branches-ignore" in rules and _fits(default_branch, rules["branches-ignore"]))


def _fits(branch: str, patterns: Any) -> bool:
    """GitHub's filter: patterns in order, `!` takes back."""
    fits = False
    for pattern in _list(patterns):
        text = str(pattern)
        if text.startswith("!"):
            fits = fits and not _glob(text[1:]).fullmatch(branch)
        elif _glob(text).fullmatch(branch):
            fits = True
    return fits


def _glob(pattern: str) -> re.Pattern[str]:
    parts = re.split(r"(\*\*|\*|\?)", pattern)
    # GitHub's `?` makes the letter before it optional; that it may match more than it should is the safe side
    words = {"**": ".*", "*": "[^/]*", "?": "?"}
    try:
        return re.compile("".join(words.get(part, re.escape(part)) for part in parts))
    except re.error:
        return re.compile(".*")


def _own_runners(jobs: Mapping[Any, Any]) -> Iterator[tuple[str, str]]:
    """(job, what it runs on) of the jobs that don't plainly run on GitHub's machines."""
    for name, job in jobs.items():
        if not isinstance(job, dict) or "runs-on" not in job:
            continue  # a reusable workflow decides itself
        wanted = job["runs-on"]
        if isinstance(wanted, dict):
            labels = [*_list(wanted.get("labels")), *(["a runner group"] if "group" in wanted else [])]
        else:
            labels = _list(wanted)
        resolved = [value for label in labels for value in _values(str(label), job)]
        if any(not _HOSTED.fullmatch(label) for label in resolved):
            yield str(name), ", ".join(str(label) for label in labels)


def _values(label: str, job: Mapping[str, Any]) -> list[str]:
    """What a label can be: `${{ matrix.os }}` is each of the matrix' values; another expression stays as it is."""
    match = re.fullmatch(r"\$\{\{\s*matrix\.([A-Za-z0-9_-]+)\s*\}\}", label)
    strategy = job.get("strategy")
    matrix = strategy.get("matrix") if isinstance(strategy, dict) else None
    if match is None or not isinstance(matrix, dict):
        return [label]
    values = [str(one) for one in _list(matrix.get(match[1]))]
    values += [
        str(row[match[1]])
        for row in _list(matrix.get("include"))
        if isinstance(row, dict) and match[1] in row
    ]
    return values or [label]


def _guarded(job: Any, branch_prefix: str) -> bool:
    """Whether the job has a condition that speaks of the bot's branches or of its name."""
    condition = str(job.get("if", "")) if isinstance(job, dict) else ""
    return branch_prefix in condition or "liger-bot" in condition


def _list(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list) else [value]
