"""What the runners found, by gate: checks, measurements, plots, where it was run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import ValidationError

from app.github import redact
from app.pages.plots import Plot, register_plots, time_plots
from app.store import Store
from app.tables import StoredDispatch, StoredJob
from runners.protocol import Measurement, Outcome, Report, Verdict

MAX_MEASUREMENTS = 400
_WORST_FIRST = (Outcome.failed, Outcome.flagged, Outcome.skipped, Outcome.passed)


@dataclass(frozen=True)
class PartView:
    """One report. where: the architecture, or "" for this machine; note: why there is no report."""

    where: str
    run_url: str
    note: str
    report: Report | None
    notable: list[Verdict] = field(default_factory=list)
    passed: list[Verdict] = field(default_factory=list)
    measurements: list[Measurement] = field(default_factory=list)
    measured: int = 0
    log_tail: str = ""


@dataclass(frozen=True)
class GateView:
    """One job of a gate."""

    job: StoredJob
    elapsed_s: float | None
    parts: list[PartView]
    plots: list[Plot]
    newest: bool


def gate_views(store: Store, request_id: str) -> list[GateView]:
    """Every job of a request, those of the newest attempt and round first."""
    jobs = store.jobs(request_id)
    dispatches: dict[str, list[StoredDispatch]] = {}
    for one in store.dispatches(request_id):
        dispatches.setdefault(one.job_id, []).append(one)
    newest = max(((job.attempt, job.round) for job in jobs), default=(0, 0))
    jobs.sort(key=lambda job: (-job.attempt, -job.round, job.created_at))
    return [_gate(job, dispatches.get(job.id, []), (job.attempt, job.round) == newest) for job in jobs]


def _gate(job: StoredJob, dispatches: Sequence[StoredDispatch], newest: bool) -> GateView:
    if dispatches:
        parts = [
            _part(one.architecture, one.report, one.run_url, one.detail or one.fault or one.state)
            for one in dispatches
        ]
    else:
        parts = [_part("", job.report, "", "")] if job.report else []
    elapsed = (job.finished_at - job.created_at).total_seconds() if job.finished_at else None
    measured = {part.where: _all_measurements(part.report) for part in parts if part.report}
    return GateView(job, elapsed, parts, _plots(measured), newest)


def _plots(measured: Mapping[str, Sequence[Measurement]]) -> list[Plot]:
    return [*time_plots(measured), *register_plots(measured)]


def _part(where: str, body: Mapping[str, object] | None, run_url: str, note: str) -> PartView:
    if body is None:
        return PartView(where, run_url, redact(note), None)
    try:
        report = Report.model_validate(body)
    except ValidationError:
        return PartView(where, run_url, "This report was made by another version and can't be read.", None)
    verdicts = sorted(report.verdicts, key=lambda one: _WORST_FIRST.index(one.outcome))
    everything = _all_measurements(report)
    return PartView(
        where,
        run_url,
        "",
        report,
        notable=[one for one in verdicts if one.outcome is not Outcome.passed],
        passed=[one for one in verdicts if one.outcome is Outcome.passed],
        measurements=everything[:MAX_MEASUREMENTS],
        measured=len(everything),
        log_tail=redact(report.log_tail),
    )


def _all_measurements(report: Report | None) -> list[Measurement]:
    return [one for verdict in report.verdicts for one in verdict.measurements] if report else []
