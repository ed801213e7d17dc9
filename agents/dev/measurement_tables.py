"""Measurements of a report as Markdown tables: times and memory side by side by provider, resources by architecture. Pure.

The tags are the runner's: `provider`, `shape`, `dtype`, `pass` and `timed` of the benchmark, `arch`, `kernel` and `shape` of the compiler.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from agents.markdown import code, plain, table
from runners.protocol import Measurement, Verdict

MAX_ROWS = 200  # of one table; the report has them all
CANDIDATE = "candidate"
PREDICTION = "prediction"


def measurement_tables(verdicts: Sequence[Verdict], *, predictions: bool = True) -> list[str]:
    """Tables for what was measured. `predictions`: show those of the runner, too."""
    measured = [one for verdict in verdicts for one in verdict.measurements]
    compiled = [one for one in measured if "arch" in one.tags]
    predicted = [one for one in measured if one.tags.get("provider") == PREDICTION]
    provided = [one for one in measured if "provider" in one.tags and one not in predicted]
    times = [one for one in provided if one.unit == "ms"]
    memory = [one for one in provided if one.unit == "bytes"]
    roofline = [one for one in provided if one.unit == "ratio"]
    known = [*compiled, *predicted, *times, *memory, *roofline]
    tables = [
        _by_provider(times, "ms", roofline),
        _by_provider(memory, "bytes"),
        _side_by_side(compiled, ("arch", "kernel", "shape")),
        _side_by_side(predicted, ("shape", "dtype", "pass")) if predictions else "",
        _list([one for one in measured if one not in known]),
    ]
    return [one for one in tables if one]


def _by_provider(found: Sequence[Measurement], unit: str, roofline: Sequence[Measurement] = ()) -> str:
    """One row a shape, dtype and pass; the ratio to a baseline is shown only where both were measured."""
    if not found:
        return ""
    keys = ("shape", "dtype", "pass", "timed")
    shown_keys = [key for key in keys if any(key in one.tags for one in found)]
    points = _grouped(found, keys, "provider")
    providers = sorted(
        {one.tags["provider"] for one in found}, key=lambda name: (not name.startswith(CANDIDATE), name)
    )
    baselines = [name for name in providers if not name.startswith(CANDIDATE)]
    share = {
        tuple(one.tags.get(key, "") for key in keys[:3]): one
        for one in roofline
        if one.tags["provider"] == CANDIDATE
    }
    rows = []
    for point, values in points.items():
        ours = values.get(CANDIDATE)
        ratios = [_ratio(values.get(name), ours) for name in baselines]
        bandwidth = [f"{share[point[:3]].median:.0%}" if point[:3] in share else ""] if roofline else []
        told = [plain(text) for key, text in zip(keys, point, strict=True) if key in shown_keys]
        rows.append([*told, *(_value(values.get(name)) for name in providers), *ratios, *bandwidth])
    header = [
        *shown_keys,
        *(f"{plain(name)}, {unit}" for name in providers),
        *(f"{plain(name)} / candidate" for name in baselines),
    ]
    return _limited([*header, "of copy bandwidth"] if roofline else header, rows)


def _side_by_side(found: Sequence[Measurement], keys: Sequence[str]) -> str:
    """One row for each value of the keys; what is measured gives the columns, its name without the keys' values."""
    if not found:
        return ""
    named = [one.model_copy(update={"tags": {**one.tags, "what": _what(one)}}) for one in found]
    columns = list(
        dict.fromkeys(
            f"{one.tags['what']}, {one.unit}" if one.unit != one.tags["what"] else one.unit for one in named
        )
    )
    points = _grouped(named, keys, "what")
    rows = [
        [
            *(code(text) for text in point),
            *(_value(values.get(column.rsplit(", ", 1)[0])) for column in columns),
        ]
        for point, values in points.items()
    ]
    return _limited([*keys, *map(plain, columns)], rows)


def _what(one: Measurement) -> str:
    words = " ".join(one.tags.values()).split()
    return " ".join(word for word in one.name.split() if word not in words) or one.name


def _grouped(
    found: Iterable[Measurement], keys: Sequence[str], column: str
) -> dict[tuple[str, ...], dict[str, Measurement]]:
    points: dict[tuple[str, ...], dict[str, Measurement]] = {}
    for one in found:
        points.setdefault(tuple(one.tags.get(key, "") for key in keys), {})[one.tags[column]] = one
    return points


def _list(rest: Sequence[Measurement]) -> str:
    if not rest:
        return ""
    rows = [[plain(one.name), _value(one), plain(one.unit), str(one.n)] for one in rest]
    return _limited(["measured", "median (95% interval)", "unit", "n"], rows)


def _ratio(baseline: Measurement | None, ours: Measurement | None) -> str:
    if baseline is None or ours is None or not ours.median > 0:
        return ""
    return f"{baseline.median / ours.median:.2f}x"


def _value(one: Measurement | None) -> str:
    if one is None:
        return ""
    middle = _number(one.median)
    if one.low is None or one.high is None:
        return middle
    return f"{middle} ({_number(one.low)} – {_number(one.high)})"


def _number(value: float) -> str:
    whole = math.isfinite(value) and value == int(value) and abs(value) < 1e15
    return f"{value:,.0f}" if whole else f"{value:.4g}"


def _limited(header: list[str], rows: list[list[str]]) -> str:
    shown = table(header, rows[:MAX_ROWS])
    return (
        shown if len(rows) <= MAX_ROWS else f"{shown}\n\n… and {len(rows) - MAX_ROWS} rows more in the report"
    )
