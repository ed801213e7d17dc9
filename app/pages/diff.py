"""A candidate against what the target repository had before: files, hunks, coloured lines. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from app.pages.source import code_lines

CONTEXT = 3
MAX_LINES = 4_000  # of one file's text; a longer one is named, not shown


@dataclass(frozen=True)
class DiffLine:
    """kind: hunk, context, added or removed; numbers are 1-based, None where there is no line."""

    kind: str
    old: int | None
    new: int | None
    html: Markup


@dataclass(frozen=True)
class FileDiff:
    """One file. status: new, changed or unchanged; note: why no lines are shown."""

    path: str
    status: str
    added: int
    removed: int
    lines: list[DiffLine]
    note: str = ""


def file_diffs(before: Mapping[str, str | None], after: Mapping[str, str]) -> list[FileDiff]:
    """Every file of a candidate, by path. before: its text in the base commit, None where there was none."""
    return [_file_diff(path, before.get(path), after[path]) for path in sorted(after)]


def _file_diff(path: str, old: str | None, new: str) -> FileDiff:
    status = "new" if old is None else "changed" if old != new else "unchanged"
    old_lines, new_lines = _lines(old or ""), _lines(new)
    if max(len(old_lines), len(new_lines)) > MAX_LINES:
        return FileDiff(path, status, 0, 0, [], f"longer than {MAX_LINES:,} lines; look at the pull request")
    lines = list(_diff_lines(path, old_lines, new_lines))
    return FileDiff(
        path,
        status,
        sum(line.kind == "added" for line in lines),
        sum(line.kind == "removed" for line in lines),
        lines,
    )


def _lines(text: str) -> list[str]:
    # a carriage return would be a line's end to the colouring, and invisible to people
    return text.removesuffix("\n").replace("\r", "␍").split("\n") if text else []


def _diff_lines(path: str, old: Sequence[str], new: Sequence[str]) -> Iterator[DiffLine]:
    for group in difflib.SequenceMatcher(None, old, new).get_grouped_opcodes(CONTEXT):
        first, last = group[0], group[-1]
        old_start, new_start = first[1], first[3]
        yield DiffLine("hunk", None, None, Markup(_range(old_start, last[2], new_start, last[4])))  # noqa: S704 - numbers
        # each side of a hunk is coloured as one text, so that a docstring keeps its colour; whole files would take too long
        old_html = code_lines(path, "\n".join(old[old_start : last[2]]))
        new_html = code_lines(path, "\n".join(new[new_start : last[4]]))
        for tag, old_from, old_to, new_from, new_to in group:
            if tag == "equal":
                for number in range(old_to - old_from):
                    at = new_from + number
                    yield DiffLine("context", old_from + number + 1, at + 1, new_html[at - new_start])
                continue
            for number in range(old_from, old_to):
                yield DiffLine("removed", number + 1, None, old_html[number - old_start])
            for number in range(new_from, new_to):
                yield DiffLine("added", None, number + 1, new_html[number - new_start])


def _range(old_from: int, old_to: int, new_from: int, new_to: int) -> str:
    return f"@@ -{_span(old_from, old_to)} +{_span(new_from, new_to)} @@"


def _span(start: int, end: int) -> str:
    return f"{start + 1 if end > start else start},{end - start}"
