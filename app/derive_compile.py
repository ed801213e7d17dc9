"""What the offline compiler says about every schedule considered: registers, spills, shared memory, occupancy.

Needs no target repository: the kernels are compiled in a module of their own.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from agents.dev.analysis import derivation_of
from agents.dev.schedule_table import (
    NUM_WARPS,
    Compiled,
    Considered,
    ScheduleTable,
    compiled_rows,
    considered,
    problems,
)
from agents.dev.signature import axis_multiples
from agents.ports import Bench, OnProgress
from agents.profiles import KernelProfile
from app.dispatch import BenchError
from kernels.derivation import Derivation
from kernels.printer import call_order, kernel_names, print_module
from kernels.traced import TracedOp
from runners.protocol import CompilePayload, Job, KernelTarget, Report, Status
from runners.sizes import column_axis

WIDTHS = (4096, 16384)
DEADLINE_S = 120.0


async def compiled_schedules(
    traced: TracedOp,
    derivation: Derivation,
    bench: Bench,
    progress: OnProgress | None = None,
    *,
    widths: Sequence[int] = WIDTHS,
    warps: Sequence[int] = NUM_WARPS,
    others: bool = True,
    deadline_s: float = DEADLINE_S,
) -> ScheduleTable:
    """Compile every schedule considered for every architecture; the chosen one with other numbers of `warps` too.

    others: also schedules that are considered and not chosen. What could not be compiled is told in the table's note. Raises BenchError when no runner could be started.
    """
    table = ScheduleTable()
    notes: list[str] = []
    for one in considered(traced, derivation):
        if not (one.chosen or others):
            continue
        report = await _compiled(
            one, traced, bench, progress, widths, warps if one.chosen else (), deadline_s
        )
        table.rows += compiled_rows(one, report.verdicts, table.rows)
        note = _note(report, deadline_s)
        if note:
            notes.append(note if one.chosen else f"a schedule that is not chosen: {note}")
    table.note = "; ".join(notes)
    return table


async def _compiled(
    one: Considered,
    traced: TracedOp,
    bench: Bench,
    progress: OnProgress | None,
    widths: Sequence[int],
    warps: Sequence[int],
    deadline_s: float,
) -> Report:
    style, op = one.style, one.derivation.op
    multiples = axis_multiples(traced)
    multiple = multiples.get(column_axis(op) or "", 1)
    path = f"{style.op_name}_module.py"
    with _folder_with(path, print_module(one.derivation, style)) as folder:
        target = KernelTarget(
            op=op,
            module=path.removesuffix(".py"),
            function_class=style.function_class,
            kernels=kernel_names(one.derivation, style),
            call_order=call_order(one.derivation),
            path=path,
            multiples=multiples,
        )
        payload = CompilePayload(
            checkout=folder,
            target=target,
            n_cols=[-(-width // multiple) * multiple for width in widths],
            num_warps=list(warps),
        )
        nonce = secrets.token_hex(16)
        job = Job(id=f"schedules-{nonce[:12]}", nonce=nonce, deadline_s=deadline_s, payload=payload)
        return await bench.run(job, progress)


@contextmanager
def _folder_with(path: str, text: str) -> Iterator[str]:
    """A temporary folder with one file, that the sandbox can read: it may be another user."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        (Path(folder) / path).write_text(text, encoding="utf-8")
        yield folder


def _note(report: Report, deadline_s: float) -> str:
    if report.status is Status.timeout:
        return f"not done within {deadline_s:g} s"
    if report.status is not Status.completed:
        last = report.log_tail.strip().splitlines()[-1:] or [report.status.value]
        return f"the compile job ended as {report.status.value}: {last[0][:200]}"
    return problems(report.verdicts)


async def schedules_for_terminal(
    profile: KernelProfile, bench: Bench, progress: OnProgress | None = None
) -> Table | str:
    """The table of a profile's schedules, or the line that says why there is none."""
    try:
        return table_of(await compiled_schedules(*derivation_of(profile), bench, progress))
    except BenchError as error:
        return f"the schedules could not be compiled: {error}"


def table_of(found: ScheduleTable) -> Table:
    """For a terminal: a line a kernel, schedule, number of warps and width; an architecture a column."""
    caption = [f"not compiled: {found.note}"] if found.note else []
    caption += [found.spill_verdict()] if found.rows else []
    table = Table(
        title="compiled offline: registers · spilled · shared memory · occupancy",
        title_justify="left",
        caption=escape("\n".join(caption)),
        caption_justify="left",
    )
    for header in ("kernel", "schedule", "warps", "at", *found.archs):
        table.add_column(header, overflow="fold")
    for (kernel, schedule, warps, at), by_arch in found.lines().items():
        chosen = any(row.chosen for row in by_arch.values())
        cells = [_cell(by_arch.get(arch)) for arch in found.archs]
        table.add_row(escape(kernel), schedule, str(warps), escape(at), *cells, style="" if chosen else "dim")
    return table


def _cell(row: Compiled | None) -> str:
    if row is None:
        return "–"
    return f"{row.registers} · {row.spill_bytes} B · {row.shared_bytes / 1024:.1f} KiB · {row.occupancy:.0%}"
