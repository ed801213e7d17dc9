"""`liger-bot derive`: an op's decisions and kernels on the terminal, with no target repository."""

from __future__ import annotations

import re
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.syntax import Syntax
from rich.table import Table

from agents.dev.analysis import AnalysisFault, analyze
from agents.dev.inputs import OpInput, classify
from agents.dev.refused import Refused
from agents.ports import Bench
from app import terminal
from app.derive_compile import compiled_schedules, table_of
from app.usage import EXIT_FAILED, UsageMistake
from kernels.derivation import Derivation
from kernels.module_style import ModuleStyle
from kernels.printer import print_module

WIDTHS = (1024, 4096, 8192, 16384)
_FILE = re.compile(r"(?P<path>.+\.py):(?P<entry>[A-Za-z_]\w*)")


async def print_derivation(
    op: str,
    bench: Bench,
    *,
    kernels_only: bool,
    console: Console,
    wide_rows: bool = False,
    split_rows: bool = False,
    compiled: bool = False,
) -> int:
    """Trace, derive and print; returns the exit code. Raises UsageMistake when a file can't be read."""
    request = _classify(op)
    if isinstance(request, OpInput) and request.op is None:
        request = Refused(
            reason=f"{op[:80]!r} is a link or free text; derive takes a name, a formula, a dotted path or FILE.py:FUNC."
        )
    if isinstance(request, Refused):
        terminal.show_refused(console, request)
        return EXIT_FAILED
    assert request.op is not None  # noqa: S101 - ruled out above
    with terminal.working(Console(stderr=True), "tracing the reference") as live:
        try:
            found = await analyze(
                request.op,
                bench,
                request.dotted_path,
                live.progress,
                wide_rows=wide_rows,
                split_rows=split_rows,
            )
        except AnalysisFault as fault:
            console.print(f"our fault, not yours: {fault}", style="red", highlight=False)
            return EXIT_FAILED
    if isinstance(found, Refused):
        terminal.show_refused(console, found)
        return EXIT_FAILED
    if not kernels_only:
        _show(console, found.derivation)
    source = print_module(found.derivation, ModuleStyle.standalone(found.derivation.op.name))
    if compiled and not kernels_only:
        with terminal.working(Console(stderr=True), "compiling the kernels") as live:
            compiled_table = await compiled_schedules(
                found.traced, found.derivation, bench, live.progress, widths=WIDTHS, deadline_s=600.0
            )
        console.print(table_of(compiled_table))
    if console.is_terminal and not kernels_only:
        console.print(Syntax(source, "python", theme="ansi_dark", word_wrap=False))
    else:
        console.file.write(source)
    return 0


def _classify(op: str) -> OpInput | Refused:
    match = _FILE.fullmatch(op)
    if match is None:
        return classify(op)
    path = Path(match["path"])
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageMistake(f"can't read {path}: {error}") from None
    return classify(match["entry"], source)


def _show(console: Console, derivation: Derivation) -> None:
    table = Table(title=derivation.op.name, show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    traffic = derivation.traffic
    rows = [
        ("computes", derivation.forward_formula),
        *[(f"d{name}", formula) for name, formula in derivation.gradient_formulas.items()],
        ("tier", str(derivation.tier)),
        (
            "kept for the backward",
            "; ".join(f"{one.name} ({one.why})" for one in derivation.saved) or "nothing",
        ),
        ("recomputed", ", ".join(derivation.recomputed) or "nothing"),
        ("in fp32", ", ".join(derivation.precision_sensitive) or "nothing needs it"),
        (
            "full tensors moved",
            f"forward {traffic.forward_tensors} (eager {traffic.eager_forward_tensors}), backward {traffic.backward_tensors} (eager {traffic.eager_backward_tensors})",
        ),
        (
            "forward",
            f"{derivation.forward_schedule.name}: {derivation.forward_schedule.grid}; {derivation.forward_schedule.why}",
        ),
        (
            "backward",
            f"{derivation.backward_schedule.name}: {derivation.backward_schedule.grid}; {derivation.backward_schedule.why}",
        ),
        ("rules", "\n".join(f"{one.rule}: {one.note}" for one in derivation.rules)),
        ("to know", "\n".join(derivation.warnings) or "nothing"),
    ]
    for name, value in rows:
        table.add_row(escape(name), escape(value))
    console.print(table)
