"""Verify: one job a gate, and what its report means. Pure; the jobs are run elsewhere.

Reports come from machines that ran a candidate, so their text is shown as data: nothing in it links, notifies or formats.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agents.candidate import Candidate
from agents.dev.analysis import derivation_of
from agents.dev.check_result import (
    MAX_MARKDOWN,
    MAX_MESSAGE,
    MAX_TITLE,
    Annotation,
    CheckResult,
    Conclusion,
    check_name,
)
from agents.dev.measurement_tables import measurement_tables
from agents.dev.repair import repair
from agents.dev.roofline import predicted_floor, predicted_speedup
from agents.dev.signature import axis_multiples
from agents.markdown import code, cut, fence, plain, table, visible
from agents.profiles import KernelProfile
from runners.products import has_product
from runners.protocol import (
    BenchmarkPayload,
    CompilePayload,
    CorrectnessPayload,
    Gate,
    Outcome,
    Report,
    Status,
    StylePayload,
    Verdict,
)
from runners.sizes import column_axis

__all__ = ["CheckResult", "judge", "plan", "repair"]

BENCHMARK_SHAPES = ((8192, 4096), (8192, 16384))
_ICONS = {Outcome.passed: "✅", Outcome.failed: "❌", Outcome.skipped: "⏭️", Outcome.flagged: "⚠️"}
_ORDER = {Outcome.failed: 0, Outcome.flagged: 1, Outcome.skipped: 2, Outcome.passed: 3}

Payload = StylePayload | CorrectnessPayload | CompilePayload | BenchmarkPayload


def plan(
    profile: KernelProfile, candidate: Candidate, checkout: str, sha: str, seed: int
) -> dict[Gate, Payload]:
    """One job payload a gate, in the order they run.

    checkout: the runner's path of a checkout of `sha`, the candidate's commit. seed: drawn by the app; it picks the held-out
    shapes and values, so the candidate's author must not know it.
    """
    traced, derivation = derivation_of(profile)
    multiple = axis_multiples(traced).get(column_axis(traced.op) or "", 1)
    widths = [
        -(-width // multiple) * multiple
        for width in CompilePayload.model_fields["n_cols"].get_default(call_default_factory=True)
    ]
    shapes = [(n_rows, -(-n_cols // multiple) * multiple) for n_rows, n_cols in BENCHMARK_SHAPES]
    target = candidate.target
    judged = {path: text for path, text in candidate.files.items() if path not in candidate.unclean_before}
    return {
        Gate.style: StylePayload(
            checkout=checkout,
            files=judged,
            ruff=candidate.ruff,
            products=[target.path] if target and has_product(target.op.source) else [],
        ),
        Gate.correctness: CorrectnessPayload(
            checkout=checkout,
            sha=sha,
            target=target,
            tests=candidate.tests,
            neighbours=candidate.neighbours,
            imports=candidate.imports,
            seed=seed,
        ),
        Gate.compile: CompilePayload(checkout=checkout, sha=sha, target=target, n_cols=widths),
        Gate.benchmark: BenchmarkPayload(
            checkout=checkout,
            sha=sha,
            target=target,
            shapes=shapes,
            traffic=derivation.traffic.model_dump(mode="json"),
        ),
    }


def judge(gate: Gate, report: Report, profile: KernelProfile | None = None) -> CheckResult:
    """The check run that a report amounts to. A report without a verdict about this gate never passes.

    profile: adds its predictions where the benchmark could not be run.
    """
    verdicts = sorted((v for v in report.verdicts if v.gate is gate), key=lambda v: _ORDER[v.outcome])
    conclusion, title = _conclusion(gate, report, verdicts)
    return CheckResult(
        name=check_name(gate),
        conclusion=conclusion,
        title=" ".join(visible(title).split())[:MAX_TITLE],
        summary=cut(
            _summary(report, verdicts, conclusion, _predicted(gate, verdicts, profile)), MAX_MARKDOWN
        ),
        text=cut(_text(report, verdicts), MAX_MARKDOWN),
        annotations=_annotations(verdicts),
    )


def _conclusion(gate: Gate, report: Report, verdicts: Sequence[Verdict]) -> tuple[Conclusion, str]:
    match report.status:
        case Status.timeout:
            return "timed_out", f"Stopped after {report.elapsed_s:.0f} s, at its deadline"
        case Status.error:
            return "action_required", "The runner failed, not the candidate: /liger retry"
        case Status.crashed:
            return "failure", "The candidate crashed the process that ran it"
        case Status.refused:
            return "failure", report.refusal.reason if report.refusal else "The runner refused the candidate"
        case Status.completed:
            return _completed(gate, verdicts)


def _completed(gate: Gate, verdicts: Sequence[Verdict]) -> tuple[Conclusion, str]:
    if not verdicts:
        return "action_required", f"The report says nothing about {gate.value}: /liger retry"
    blocking = [v for v in verdicts if v.outcome is Outcome.failed and v.hard]
    soft = [
        v for v in verdicts if v.outcome is Outcome.flagged or (v.outcome is Outcome.failed and not v.hard)
    ]
    if blocking:
        more = f" (and {len(blocking) - 1} more)" if len(blocking) > 1 else ""
        return "failure", f"{blocking[0].check}: {blocking[0].summary}{more}"
    if soft:
        more = f" (and {len(soft) - 1} more)" if len(soft) > 1 else ""
        return "neutral", f"To look at: {soft[0].check}: {soft[0].summary}{more}"
    skipped = [v for v in verdicts if v.outcome is Outcome.skipped]
    if len(skipped) == len(verdicts):
        return "neutral", skipped[0].summary
    passed = len(verdicts) - len(skipped)
    return "success", f"{passed} passed" + (f", {len(skipped)} could not be run here" if skipped else "")


def _summary(report: Report, verdicts: Sequence[Verdict], conclusion: Conclusion, predicted: str) -> str:
    parts: list[str] = []
    if report.refusal is not None:
        parts.append(_refusal(report))
    if report.status is Status.error:
        parts.append("This is a fault of the runner, not of the candidate; its log is below.")
    if verdicts:
        rows = [
            [
                _ICONS[v.outcome],
                code(v.check),
                plain(v.summary),
                f"{v.elapsed_s:.1f} s" if v.elapsed_s else "",
            ]
            for v in verdicts
        ]
        parts.append(table(["", "check", "what was found", "time"], rows))
    parts += [*measurement_tables(verdicts, predictions=not predicted), predicted]
    soft = [v for v in verdicts if v.outcome is Outcome.failed and not v.hard]
    if soft and conclusion == "neutral":
        parts.append("The findings marked ❌ here are soft: they don't block, a person should look at them.")
    parts.append(_where(report))
    return "\n\n".join(part for part in parts if part)


def _predicted(gate: Gate, verdicts: Sequence[Verdict], profile: KernelProfile | None) -> str:
    """The profile's bytes model, when nothing was measured."""
    if (
        gate is not Gate.benchmark
        or profile is None
        or any(v.outcome is not Outcome.skipped for v in verdicts)
    ):
        return ""
    rows = [
        [
            plain(at.shape),
            f"{at.forward_bytes / 1e6:,.0f} / {at.backward_bytes / 1e6:,.0f} MB",
            predicted_floor(at),
            predicted_speedup(at),
            f"{at.predicted_memory_saving_pct:.1f}%",
        ]
        for at in profile.roofline
    ]
    if not rows:
        return ""
    at = profile.roofline[0]
    header = [
        "predicted at",
        "bytes moved, forward / backward",
        "floor",
        "over eager, at most",
        "less peak memory",
    ]
    return f"{table(header, rows)}\n\nFloor: bytes moved / {at.bandwidth_tbps:g} TB/s ({plain(at.bandwidth_source)}). Nothing here was timed."


def _refusal(report: Report) -> str:
    refusal = report.refusal
    if refusal is None:
        return ""
    rows = [["reason", plain(refusal.reason)]]
    rows += [["operation", code(refusal.node)]] if refusal.node else []
    rows += [["where", code(refusal.where)]] if refusal.where else []
    rows += [["needed", plain(refusal.needed)]] if refusal.needed else []
    return table(["refused", ""], rows)


def _where(report: Report) -> str:
    """One line: on what it ran and how it was confined."""
    words = []
    if (environment := report.environment) is not None:
        gpu = f"{environment.gpu_count} x {plain(environment.gpu)}" if environment.gpu else "no GPU"
        words.append(f"{gpu}, {environment.cpu_count} CPU cores")
        versions = {
            "torch": environment.torch,
            "triton": environment.triton,
            "transformers": environment.transformers,
            "Python": environment.python,
        }
        words += [f"{name} {plain(version)}" for name, version in versions.items() if version]
    if (isolation := report.isolation) is not None:
        words.append(
            f"confined by {isolation.method}, " + ("network reachable" if isolation.network else "no network")
        )
    words.append(f"{report.elapsed_s:.1f} s")
    return f"<sub>{' · '.join(words)}</sub>"


def _text(report: Report, verdicts: Sequence[Verdict]) -> str:
    parts = [
        f"### {plain(verdict.check)}\n\n{plain(verdict.summary)}\n\n{fence(cut(verdict.details, 20_000))}"
        for verdict in verdicts
        if verdict.details and verdict.outcome is not Outcome.passed
    ]
    if report.status is not Status.completed and report.log_tail:
        parts.append(f"### Log\n\n{fence(report.log_tail)}")
    return "\n\n".join(parts)


def _annotations(verdicts: Sequence[Verdict]) -> list[Annotation]:
    levels: dict[Outcome, Any] = {Outcome.failed: "failure", Outcome.flagged: "warning"}
    return [
        Annotation(
            path=verdict.path,
            line=max(verdict.line or 1, 1),
            message=cut(visible(f"{verdict.summary}\n{verdict.details}").strip(), MAX_MESSAGE),
            level="warning"
            if verdict.outcome is Outcome.failed and not verdict.hard
            else levels[verdict.outcome],
            title=" ".join(visible(verdict.check).split())[:MAX_TITLE],
        )
        for verdict in verdicts
        if verdict.path and verdict.outcome in levels
    ]
