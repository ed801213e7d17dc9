"""Measurements of a report as Markdown tables: timings side by side by provider, everything else as a list. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from agents.markdown import code, plain, table
from runners.protocol import Measurement, Verdict

MAX_ROWS = 200  # of one table; the report has them all
_BASELINES = ("eager", "compile", "incumbent")
_PROVIDERS = ("candidate", *_BASELINES)


def measurement_tables(verdicts: Sequence[Verdict]) -> list[str]:
    """Tables for what was measured: times first, then the compile resources, then the rest."""
    measured = [one for verdict in verdicts for one in verdict.measurements]
    times = [one for one in measured if one.unit == "ms" and one.tags.get("provider") in _PROVIDERS]
    resources = [one for one in measured if one.tags.get("arch") and one not in times]
    rest = [one for one in measured if one not in times and one not in resources]
    return [part for part in (_times(times), _resources(resources), _list(rest)) if part]


def _times(times: Sequence[Measurement]) -> str:
    """One row a shape, dtype and pass; a speed-up over a baseline is shown only where both were measured."""
    if not times:
        return ""
    by_point: dict[tuple[str, str, str], dict[str, Measurement]] = {}
    for one in times:
        point = (one.tags.get("shape", ""), one.tags.get("dtype", ""), one.tags.get("pass", ""))
        by_point.setdefault(point, {})[one.tags["provider"]] = one
    providers = [name for name in _PROVIDERS if any(name in found for found in by_point.values())]
    baselines = [name for name in providers if name != "candidate"]
    rows = []
    for (shape, dtype, kind), found in by_point.items():
        ours = found.get("candidate")
        ratios = [
            f"{found[name].median / ours.median:.2f}x"
            if ours is not None and name in found and ours.median > 0
            else ""
            for name in baselines
        ]
        rows.append(
            [
                plain(shape),
                plain(dtype),
                plain(kind),
                *(_value(found.get(name)) for name in providers),
                *ratios,
            ]
        )
    header = [
        "shape",
        "dtype",
        "pass",
        *(f"{name}, ms" for name in providers),
        *(f"over {name}" for name in baselines),
    ]
    return _limited(header, rows)


def _resources(resources: Sequence[Measurement]) -> str:
    """Registers, spills, shared memory, … of each kernel and architecture, side by side."""
    if not resources:
        return ""
    columns = list(dict.fromkeys(one.tags.get("resource", one.unit) for one in resources))
    by_kernel: dict[tuple[str, ...], dict[str, Measurement]] = {}
    for one in resources:
        key = (
            one.tags["arch"],
            one.tags.get("kernel", ""),
            one.tags.get("n_cols", ""),
            one.tags.get("dtype", ""),
        )
        by_kernel.setdefault(key, {})[one.tags.get("resource", one.unit)] = one
    rows = [
        [*map(plain, key), *(_value(found.get(name)) for name in columns)] for key, found in by_kernel.items()
    ]
    return _limited(["arch", "kernel", "columns", "dtype", *map(plain, columns)], rows)


def _list(rest: Sequence[Measurement]) -> str:
    if not rest:
        return ""
    rows = [[plain(one.name), _value(one), plain(one.unit), str(one.n)] for one in rest]
    return _limited(["measured", "median (95% interval)", "unit", "n"], rows)


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
