"""A picture of what was timed: bars for candidate and baselines, one panel an architecture and pass."""

from __future__ import annotations

import asyncio
import hashlib
import io
import logging
from collections.abc import Mapping

from agents.dev.check_result import MAX_MARKDOWN, CheckResult
from app.github import GitHubError
from app.ports import Ports
from app.tables import Request, StoredJob
from app.timed_panels import CANDIDATE, PREDICTION, timed_panels
from runners.protocol import Gate, Measurement, Report

log = logging.getLogger(__name__)

MAX_PANELS = 6
MAX_BARS = 12  # shapes of one panel
MAX_PROVIDERS = 6


async def with_plots(
    ports: Ports, request: Request, job: StoredJob, result: CheckResult, reports: Mapping[str, Report]
) -> CheckResult:
    """The check with a picture of its times, when there are any. A picture that GitHub doesn't take is left out."""
    if Gate(job.gate) is not Gate.benchmark:
        return result
    picture = await asyncio.to_thread(times_picture, reports)
    if picture is None:
        return result
    path = f"requests/{request.id}/{job.id}-{hashlib.sha256(picture).hexdigest()[:12]}.png"
    try:
        commit = await ports.repository(request).assets.put({path: picture}, f"Times of job {job.id}")
    except GitHubError as error:
        log.warning("job %s: its picture is left out: %s", job.id, error)
        ports.store.note(request.id, "error", f"picture not stored: {error}")
        return result
    url = f"{ports.settings.github_web_url.rstrip('/')}/{request.repository}/raw/{commit}/{path}"
    summary = f"![Times of candidate and baselines]({url})\n\n{result.summary}"
    return result.model_copy(update={"summary": summary}) if len(summary) <= MAX_MARKDOWN else result


def times_picture(reports: Mapping[str, Report]) -> bytes | None:
    """A PNG of the times in reports, by architecture; None when nothing was timed. The same reports, the same bytes."""
    panels = _panels(reports)
    if not panels:
        return None
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 2.8 * len(panels)), layout="constrained")
    FigureCanvasAgg(figure)
    for number, (title, times) in enumerate(panels):
        axes = figure.add_subplot(len(panels), 1, number + 1)
        shapes = list(dict.fromkeys(one.tags["shape"] for one in times))[:MAX_BARS]
        providers = sorted(
            {one.tags["provider"] for one in times}, key=lambda name: (name != CANDIDATE, name)
        )[:MAX_PROVIDERS]
        width = 0.8 / len(providers)
        for index, provider in enumerate(providers):
            found = {one.tags["shape"]: one for one in times if one.tags["provider"] == provider}
            places = [place + (index - (len(providers) - 1) / 2) * width for place in range(len(shapes))]
            axes.bar(
                places,
                [found[shape].median if shape in found else 0.0 for shape in shapes],
                width,
                yerr=[[_spread(found.get(shape), low) for shape in shapes] for low in (True, False)],
                label=_short(provider),
                capsize=2,
            )
        axes.set_xticks(range(len(shapes)), [_short(shape) for shape in shapes])
        axes.set_title(_short(title), fontsize=9)
        axes.set_ylabel("ms")
        axes.legend(fontsize=8)
    target = io.BytesIO()
    figure.savefig(target, format="png", dpi=110, metadata={"Software": None})
    return target.getvalue()


def _panels(reports: Mapping[str, Report]) -> list[tuple[str, list[Measurement]]]:
    measured = {
        architecture: [
            one
            for verdict in report.verdicts
            for one in verdict.measurements
            if one.tags.get("provider") not in {None, PREDICTION}
        ]
        for architecture, report in sorted(reports.items())
    }
    return list(timed_panels(measured).items())[:MAX_PANELS]


def _spread(one: Measurement | None, low: bool) -> float:
    """Length of an error bar on one side of the median, ms."""
    if one is None or one.low is None or one.high is None:
        return 0.0
    return max(0.0, one.median - one.low if low else one.high - one.median)


def _short(text: str) -> str:
    """A report's words as a plain label: no mathematics markup, no more than fits."""
    return text.replace("$", "").replace("\n", " ")[:60]
