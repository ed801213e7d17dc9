"""What the command line shows: profiles, refusals, live progress of gates, summaries. Text of others is never markup."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress as Bars
from rich.progress import SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from agents.autopatch.model_profile import ModelProfile
from agents.autopatch.unpatched import unpatched
from agents.command_agent import AnyProfile
from agents.dev.refused import Refused
from agents.dev.roofline import predicted_speedup
from agents.profiles import KernelProfile
from runners.protocol import Gate, Progress

if TYPE_CHECKING:
    from agents.dev.check_result import CheckResult
    from app.local_run import Record

SIGNS = {
    "success": "[green]✓[/]",
    "neutral": "[dim]○[/]",
    "failure": "[red]✗[/]",
    "timed_out": "[red]⌛[/]",
    "action_required": "[yellow]![/]",
}


def show_profile(console: Console, profile: AnyProfile) -> None:
    """The decisions in a table that is read in ten seconds."""
    is_kernel = isinstance(profile, KernelProfile)
    name = profile.operation_name if is_kernel else profile.model_type
    table = Table(
        title=f"Profile of {escape(name)} · hash {profile.sha256()[:12]}",
        show_header=False,
        title_justify="left",
    )
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for label, value in _kernel_rows(profile) if is_kernel else _model_rows(profile):
        table.add_row(escape(label), escape(value))
    console.print(table)
    for number, question in enumerate(profile.questions, 1):
        console.print(f"to confirm {number}: {escape(question)}", highlight=False)


def _files_and_risks(profile: AnyProfile) -> list[tuple[str, str]]:
    return [
        ("files", "\n".join(f"{one.action} {one.path}" for one in profile.files)),
        ("risks", "\n".join(profile.risks) or "none seen"),
    ]


def _kernel_rows(profile: KernelProfile) -> list[tuple[str, str]]:
    return [
        ("computes", profile.forward_computation),
        *[(f"d{name}", formula) for name, formula in profile.gradient_formulas.items()],
        ("names", f"{profile.function_class_name}, {profile.module_class_name}, {profile.functional_name}"),
        (
            "kind",
            f"tier {profile.tier}, {profile.tier_description}; nearest kernel: {profile.closest_existing_kernel}",
        ),
        ("kept for the backward", ", ".join(profile.backward_saved_tensors) or "nothing"),
        ("layout", f"{profile.grid_description}; block size: {profile.block_size_source}"),
        *[
            (
                f"predicted, {one.shape}",
                (
                    f"at most {predicted_speedup(one)},"
                    f" {one.predicted_memory_saving_pct:.1f}% less peak memory (bytes moved, not measured)"
                ),
            )
            for one in profile.roofline[:2]
        ],
        *_files_and_risks(profile),
        ("reference from", profile.source),
    ]


def _model_rows(profile: ModelProfile) -> list[tuple[str, str]]:
    rows = [("model", f"{profile.causal_class} of transformers {profile.transformers_version}")]
    if profile.requested:
        rows.append(("asked for", ", ".join(profile.requested)))
    for one in profile.decisions:
        lines = [one.value, f"because {one.why}"]
        lines += [f"{e.kind}: {e.text}" + (f" ({e.where})" if e.where else "") for e in one.evidence]
        rows.append((one.name, "\n".join(lines)))
    left = "\n".join(f"{name}: {why}" for name, why in unpatched(profile))
    rows += [
        ("not patched", left or "nothing is left out"),
        ("lce_forward from", f"{profile.forward.file}:{profile.forward.line}"),
    ]
    return [*rows, *_files_and_risks(profile)]


def show_refused(console: Console, refused: Refused) -> None:
    """Why there is no profile, and what to try."""
    console.print(f"[red]refused:[/] {escape(refused.reason)}", highlight=False, soft_wrap=True)
    for label, value in (("operation", refused.node), ("where", refused.where), ("needed", refused.needed)):
        if value:
            console.print(f"  {label}: {escape(value)}", highlight=False, soft_wrap=True)
    for suggestion in refused.suggestions[:3]:
        console.print(f"  try: {escape(suggestion)}", highlight=False, soft_wrap=True)
    if refused.model_could_help:
        console.print("  a language model could try it: set LIGER_BOT_MODEL", highlight=False)


def show_summary(console: Console, record: Record) -> None:
    """What was decided, what was verified, how long it took, what to do next."""
    table = Table(show_header=True)
    table.add_column("check")
    table.add_column("result", overflow="fold")
    table.add_column("s", justify="right")
    for gate, check in record.checks.items():
        table.add_row(
            f"{SIGNS.get(check.conclusion, '?')} {escape(check.name)}",
            escape(check.title),
            f"{record.reports[gate].elapsed_s:.1f}" if gate in record.reports else "",
        )
    console.print(table)
    times = ", ".join(f"{stage} {value:.1f} s" for stage, value in record.elapsed_s.items())
    console.print(
        f"{times}. The commit is on branch [bold]{escape(record.branch)}[/]; look at it with: git show {record.commit[:12]}",
        highlight=False,
    )


class Working:
    """One line that says what is going on, and how far it is."""

    def __init__(self, bars: Bars, task: TaskID):
        self._bars, self._task = bars, task

    async def progress(self, progress: Progress) -> None:
        self._bars.update(self._task, note=escape(progress.note))


@contextmanager
def working(console: Console, what: str) -> Iterator[Working]:
    """Show a spinner with the time and the last note while something runs."""
    with _bars(console) as bars:
        yield Working(bars, bars.add_task(what, total=None, note=""))


class Gates:
    """One line a gate."""

    def __init__(self, bars: Bars, tasks: dict[Gate, TaskID]):
        self._bars, self._tasks = bars, tasks

    def start(self, gate: Gate) -> None:
        self._bars.reset(self._tasks[gate], start=True)

    def progress(self, gate: Gate, progress: Progress) -> None:
        count = f"{progress.done}/{progress.total} " if progress.total else ""
        self._bars.update(self._tasks[gate], note=escape(count + progress.note))

    def done(self, gate: Gate, check: CheckResult) -> None:
        note = f"{SIGNS.get(check.conclusion, '?')} {escape(check.title)}"
        self._bars.update(self._tasks[gate], note=note, total=1, completed=1)


@contextmanager
def gates(console: Console, which: list[Gate]) -> Iterator[Gates]:
    """Show the gates while they run."""
    with _bars(console) as bars:
        yield Gates(
            bars,
            {
                gate: bars.add_task(f"Verify: {gate.value}", total=None, note="waiting", start=False)
                for gate in which
            },
        )


def _bars(console: Console) -> Bars:
    return Bars(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
        console=console,
    )
