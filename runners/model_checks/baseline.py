"""Whose defect it is: a check that fails is held against the same check on the checkout as it was before the change. Pure.

A failure is made of items: names, kernels, cases, distances. Those that were there before are old; the change answers for the rest.
"""

from __future__ import annotations

import re
from typing import Any

Finding = dict[str, Any]
WORSE = 1.25  # a distance of before may move by a quarter: rounding, with other kernels around it
_MANY = re.compile(r"(\d+) of \d+ differ")
_DISTANCE = re.compile(r"([\d.e+-]+|inf) from fp32")


def is_old(before: Finding | None, after: Finding) -> bool:
    """Whether everything that `after` complains of was so before. None: the check did not run before, so nothing is known."""
    if before is None or before.get("ok") is not False:
        return False
    return not new_items(before, after)


def new_items(before: Finding, after: Finding) -> set[str]:
    """What of the failure was not there before the change."""
    name = str(after.get("name", ""))
    if name.startswith("parity/"):
        return _worse(str(before["summary"]), str(after["summary"]))
    return _items(name, after) - _items(name, before)


def _items(name: str, finding: Finding) -> set[str]:
    summary, details = str(finding.get("summary", "")), str(finding.get("details", ""))
    match name.split("/", maxsplit=1)[0]:
        case "dead_names":
            return set(re.findall(r"[\w.]+\.[\w.\[\]\"']+", summary.partition(":")[2]))
        case "signature":
            return set(summary.split("; "))
        case "kernel_calls":
            return _kernels(summary)
        case "forward_cases" if details:
            return {line.partition(":")[0] for line in details.splitlines() if line}
        case _:
            return {re.sub(r"\d[\d.e+-]*", "#", summary)}


def _kernels(summary: str) -> set[str]:
    """The kernels that the paths call differently often; the whole text when they could not be counted."""
    counts = [dict(re.findall(r"'(\w+)': (\d+)", text)) for text in re.findall(r"\{[^}]*\}", summary)]
    if len(counts) != 2:
        return {summary}
    return {name for name in {**counts[0], **counts[1]} if counts[0].get(name) != counts[1].get(name)}


def _worse(before: str, after: str) -> set[str]:
    """Empty when no more differs, and no further, than before."""
    numbers = [(_MANY.search(text), _DISTANCE.search(text)) for text in (before, after)]
    if any(many is None or far is None for many, far in numbers):
        return set() if before == after else {after}
    (many0, far0), (many1, far1) = [(int(m[1]), float(f[1])) for m, f in numbers if m and f]
    return set() if many1 <= many0 and far1 <= WORSE * far0 else {after}
