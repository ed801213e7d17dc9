"""Rows wider than a block: sums over rows for each column get a kernel of their own, in tiles of columns. Pure.

A row that is reduced and written is read in blocks, and a program that loops over the blocks of a row can't keep a sum for
each column of all of them. Before: one kernel writes dx and dweight. After: one writes dx row by row, in blocks; another
sums dy * x * rstd over rows, a tile of columns a program, with the row's statistics as the forward has saved them.
"""

from __future__ import annotations

from kernels.passes.graph import Graph
from kernels.passes.stages import Stage, Target, plan_stages
from kernels.row_program import Reduce, RowProgram, Scan
from kernels.schedules import sums_columns, tiles_columns


def wide_stages(graph: Graph, targets: list[Target], stages: list[Stage]) -> list[Stage]:
    """The stages with column sums apart, where that lets every kernel read its rows in blocks; the given ones otherwise."""
    if not any(_needs_whole_rows(stage) for stage in stages):
        return stages
    columns = {name for s in stages for name in _column_sums(s.program)}
    rest = [t for t in targets if t.tensor.name not in columns]
    apart = plan_stages(graph, [t for t in targets if t.tensor.name in columns])
    plan = [*(plan_stages(graph, rest) if rest else []), *apart]
    return stages if any(_needs_whole_rows(stage) for stage in plan) else plan


def _needs_whole_rows(stage: Stage) -> bool:
    program = stage.program
    if stage.host or not sums_columns(program) or tiles_columns(program):
        return False
    return any(isinstance(n, Reduce | Scan) for n in program.nodes)


def _column_sums(program: RowProgram) -> set[str]:
    cols = set(program.cols)
    return {a.tensor for a in program.accumulates if set(program.tensor(a.tensor).axes) & cols}
