"""Which times of reports stand in one picture: those of an architecture, pass, dtype and way of timing. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from runners.protocol import Measurement

CANDIDATE = "candidate"
PREDICTION = "prediction"


def timed_panels(reports: Mapping[str, Iterable[Measurement]]) -> dict[str, list[Measurement]]:
    """Title -> times in ms, in the order of the reports; `reports`: where something was timed -> its measurements."""
    panels: dict[str, list[Measurement]] = {}
    for where, measurements in reports.items():
        for one in measurements:
            if one.unit == "ms" and "shape" in one.tags and one.median > 0:
                words = (where, *(one.tags.get(name, "") for name in ("pass", "dtype", "timed")))
                panels.setdefault(" · ".join(filter(None, words)), []).append(one)
    return panels
