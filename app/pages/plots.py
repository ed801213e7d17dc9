"""Stored measurements as bars that a template draws in SVG. Pure.

Lengths are percent of the plot's width and heights are pixels, so that a plot fits a phone and its letters stay readable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from app.timed_panels import CANDIDATE, PREDICTION, timed_panels
from runners.protocol import Measurement

MAX_PLOTS = 12
MAX_GROUPS = 16
MAX_BARS = 8  # of one group
WIDEST = 96.0  # percent
_GROUP_PX, _BAR_PX, _GAP_PX = 26, 30, 6
_ORDER = {CANDIDATE: 0, "baseline": 1, PREDICTION: 2}

Naming = Callable[[Measurement], tuple[str, str]]  # the bar's name and its tone


@dataclass(frozen=True)
class Bar:
    """One bar. label: words above it; low, high: the interval, percent; tone: candidate, baseline or prediction."""

    label: str
    percent: float
    low: float | None
    high: float | None
    tone: str
    y: int


@dataclass(frozen=True)
class Group:
    """The bars of one shape."""

    label: str
    y: int
    bars: list[Bar]


@dataclass(frozen=True)
class Plot:
    """One picture: its title, what it says in a sentence, its groups and its height in pixels."""

    title: str
    says: str
    groups: list[Group]
    height: int


def time_plots(reports: Mapping[str, Sequence[Measurement]]) -> list[Plot]:
    """Times by architecture, pass and dtype: candidate against baselines, by shape. Predictions are marked as such."""
    return [
        _plot(f"Time, {title}", measurements, "shape", _provider, "ms")
        for title, measurements in list(_with_predictions(timed_panels(reports)).items())[:MAX_PLOTS]
    ]


def _with_predictions(panels: dict[str, list[Measurement]]) -> dict[str, list[Measurement]]:
    """A prediction stands beside what was measured of the same pass; alone where nothing was."""
    measured = {title: found for title, found in panels.items() if not _predicted(found)}
    together = {title: list(found) for title, found in measured.items()}
    for title, found in panels.items():
        if title in measured:
            continue
        beside = [other for other in measured if other == title or other.startswith(f"{title} · ")]
        for other in beside:
            shapes = {one.tags["shape"] for one in measured[other]}
            together[other] += [one for one in found if one.tags["shape"] in shapes]
        if not beside:
            together[title] = found
    return together


def _predicted(measurements: Sequence[Measurement]) -> bool:
    return all(one.tags.get("provider") == PREDICTION for one in measurements)


def register_plots(reports: Mapping[str, Sequence[Measurement]]) -> list[Plot]:
    """Registers a thread by kernel and width, one bar an architecture; what was compiled for comparison is left out."""
    panels: dict[str, list[Measurement]] = {}
    for measurements in reports.values():
        for one in measurements:
            named = {"kernel", "arch", "shape"} <= one.tags.keys()
            if one.unit == "registers" and named and "alternative" not in one.tags:
                panels.setdefault(one.tags["kernel"], []).append(one)
    return [
        _plot(f"Registers a thread, {kernel}", measurements, "shape", _architecture, "registers")
        for kernel, measurements in list(panels.items())[:MAX_PLOTS]
    ]


def _provider(one: Measurement) -> tuple[str, str]:
    provider = one.tags.get("provider", "")
    if provider == PREDICTION:
        return "predicted floor, not measured", PREDICTION
    return provider, CANDIDATE if provider == CANDIDATE else "baseline"


def _architecture(one: Measurement) -> tuple[str, str]:
    return one.tags["arch"], CANDIDATE


def _plot(title: str, measurements: Iterable[Measurement], by: str, name_of: Naming, unit: str) -> Plot:
    groups: dict[str, list[Measurement]] = {}
    for one in measurements:
        groups.setdefault(one.tags[by], []).append(one)
    shown = [
        (label, sorted(found, key=lambda one: _ORDER[name_of(one)[1]])[:MAX_BARS])
        for label, found in list(groups.items())[:MAX_GROUPS]
    ]
    widest = max(one.high or one.median for _, found in shown for one in found)
    scale = WIDEST / widest
    y, drawn = 0, []
    for label, found in shown:
        bars = []
        top, y = y, y + _GROUP_PX
        for one in found:
            name, tone = name_of(one)
            bars.append(
                Bar(
                    f"{name} · {_value(one, unit)}",
                    one.median * scale,
                    one.low * scale if one.low is not None else None,
                    one.high * scale if one.high is not None else None,
                    tone,
                    y,
                )
            )
            y += _BAR_PX
        drawn.append(Group(label.replace("x", " × "), top, bars))
        y += _GAP_PX
    left_out = len(groups) - len(shown)
    says = "; ".join(f"{group.label}: {', '.join(bar.label for bar in group.bars)}" for group in drawn)
    return Plot(title, says + (f"; {left_out} more are not drawn" if left_out else ""), drawn, y)


def _value(one: Measurement, unit: str) -> str:
    if unit != "ms":
        return f"{one.median:g}"
    spread = f" ({one.low:.4g} to {one.high:.4g})" if one.low is not None and one.high is not None else ""
    return f"{one.median:.4g} ms{spread}"
