"""The compile table of `liger-bot derive --compile`: registers, spills, shared memory and occupancy, with no target repository."""

from __future__ import annotations

import secrets
import tempfile
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from agents.dev.analysis import Analysis
from agents.dev.signature import axis_multiples
from agents.ports import Bench, OnProgress
from kernels.module_style import ModuleStyle
from kernels.printer import call_order, kernel_names
from runners.protocol import CompilePayload, Job, KernelTarget, Measurement, Verdict
from runners.sizes import column_axis

WIDTHS = (1024, 4096, 8192, 16384)
DEADLINE_S = 600.0


async def compile_table(found: Analysis, source: str, bench: Bench, progress: OnProgress) -> Table:
    """Compile the printed module `source` offline for every architecture; one row a kernel and width.

    A kernel that could not be compiled, or that no vendor's limits would launch, is told below the table.
    """
    style = ModuleStyle.standalone(found.derivation.op.name)
    multiples = axis_multiples(found.traced)
    multiple = multiples.get(column_axis(found.derivation.op) or "", 1)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{style.op_name}_module.py"
        (Path(folder) / path).write_text(source)
        target = KernelTarget(
            op=found.derivation.op,
            module=path.removesuffix(".py"),
            function_class=style.function_class,
            kernels=kernel_names(found.derivation, style),
            call_order=call_order(found.derivation),
            path=path,
            multiples=multiples,
        )
        widths = [-(-width // multiple) * multiple for width in WIDTHS]
        payload = CompilePayload(checkout=folder, target=target, n_cols=widths)
        job = Job(id="derive-compile", nonce=secrets.token_hex(16), deadline_s=DEADLINE_S, payload=payload)
        report = await bench.run(job, progress)
    return table_of(report.verdicts)


def table_of(verdicts: list[Verdict]) -> Table:
    """The measurements of a compile job, an architecture a column."""
    archs = list(dict.fromkeys(one.tags["arch"] for verdict in verdicts for one in verdict.measurements))
    cells: dict[tuple[str, str], dict[str, dict[str, Measurement]]] = {}
    for one in (one for verdict in verdicts for one in verdict.measurements):
        name = one.name.split(f" {one.tags['kernel']} ")[0]
        point = cells.setdefault((one.tags["kernel"], one.tags["shape"]), {})
        point.setdefault(one.tags["arch"], {})[name] = one
    table = Table(
        title="compiled offline: registers · spilled · shared memory · occupancy",
        title_justify="left",
        caption="\n".join(escape(f"{v.check}: {v.summary}") for v in verdicts),
        caption_justify="left",
    )
    for header in ("kernel", "at", *archs):
        table.add_column(header, overflow="fold")
    for (kernel, shape), by_arch in cells.items():
        table.add_row(escape(kernel), escape(shape), *(_cell(by_arch.get(arch, {})) for arch in archs))
    return table


def _cell(found: dict[str, Measurement]) -> str:
    if not found:
        return "not compiled"
    registers, spill = found["registers"].median, found["spill"].median
    shared, occupancy = found["shared memory"].median, found["theoretical occupancy"].median
    return f"{registers:.0f} · {spill:.0f} B · {shared / 1024:.1f} KiB · {occupancy:.0%}"
