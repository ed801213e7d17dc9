"""How a row program is laid on the GPU. Pure.

flat: one index over all elements, when every operand has the same layout. tile: rows by columns, element-wise with
broadcasts or packed halves. persistent_row: a program holds a row, for reductions. row_block: a program holds one row at
a time and walks over many, adding up column gradients.
"""

from __future__ import annotations

from kernels.derivation import KernelSchedule
from kernels.passes.program import live_vectors
from kernels.row_program import Gather, Index, Load, Reduce, RowProgram, Scan, operands

# Elements a program handles, by measurement on an H200 (docs/performance.md): enough bytes in flight, no spills.
FLAT_BLOCK, FLAT_WARPS = 1024, 4
# A sum in every block costs a barrier: larger blocks where a loss is summed.
FLAT_SUM_BLOCK, FLAT_SUM_WARPS = 4096, 8
TILE_BLOCK, TILE_ROWS, TILE_WARPS = 1024, 2, 4
LOOP_BLOCK, LOOP_WARPS = 2048, 4
# Column sums without a reduction inside the row: tiles of columns, and this many programs a multiprocessor.
COLUMN_BLOCK, COLUMN_WARPS, COLUMN_PROGRAMS = 2048, 4, 4
# Rows that walk one after another leave memory idle: so many columns of them in flight a multiprocessor.
COLUMNS_IN_FLIGHT = 8192


def is_flat(program: RowProgram) -> bool:
    """Whether every tensor has the same axes in the same order, so that one flat index serves all."""
    partial = {a.value for a in program.accumulates if not program.tensor(a.tensor).axes}
    if len(partial) != len({a.value for a in program.accumulates}):
        return False
    if program.scatters or any(isinstance(n, Scan | Index | Gather) for n in program.nodes):
        return False
    everything = set(program.rows) | set(program.cols)
    axes = program.node_axes()
    for index, node in enumerate(program.nodes):
        if isinstance(node, Reduce) and (index not in partial or axes[node.arg] != everything):
            return False
    if any(
        a.value in partial and not isinstance(program.nodes[a.value], Reduce) for a in program.accumulates
    ):
        return False
    layouts = {t.axes for t in program.tensors if t.axes}
    if len(layouts) != 1 or any(program.axis(a).unroll for a in next(iter(layouts))):
        return False
    return set(next(iter(layouts))) == everything and all(
        not isinstance(n, Load) or not n.at for n in program.nodes
    )


def flat_block(program: RowProgram) -> tuple[int, int]:
    """(elements a program, warps) of a flat kernel."""
    return (FLAT_SUM_BLOCK, FLAT_SUM_WARPS) if program.accumulates else (FLAT_BLOCK, FLAT_WARPS)


def sums_columns(program: RowProgram) -> bool:
    """Whether a value a column is summed over rows."""
    cols = set(program.cols)
    return any(set(program.tensor(a.tensor).axes) & cols for a in program.accumulates)


def tiles_columns(program: RowProgram) -> bool:
    """Whether a row block's columns are independent of each other, so that each program can take a tile of them."""
    if not sums_columns(program) or any(isinstance(n, Scan | Gather) for n in program.nodes):
        return False
    partial = {
        a.value for a in program.accumulates if not set(program.tensor(a.tensor).axes) & set(program.cols)
    }
    reads = [o for n in program.nodes for o in operands(n)]
    return all(
        index in partial and index not in reads
        for index, n in enumerate(program.nodes)
        if isinstance(n, Reduce)
    )


def is_looped(program: RowProgram, *, wide_rows: bool = False) -> bool:
    """Whether a row is read in blocks: it is reduced to something small, or it is known to be too wide for one block."""
    if sums_columns(program) or any(isinstance(n, Scan) for n in program.nodes):
        return False
    reductions = [n for n in program.nodes if isinstance(n, Reduce)]
    if (
        not program.rows
        or not reductions
        or any(n.fn.startswith("arg") for n in reductions)
        or program.scatters
    ):
        return False
    writes_rows = any(set(program.tensor(s.tensor).axes) & set(program.cols) for s in program.stores)
    return wide_rows or not writes_rows


def choose_schedule(program: RowProgram, *, wide_rows: bool = False) -> KernelSchedule:
    """The schedule of one kernel, with its reason. `wide_rows`: rows don't fit one block."""
    vectors = live_vectors(program)
    if is_flat(program):
        return KernelSchedule(
            name="flat",
            why="element-wise and every operand has the same layout: rows don't matter, every load is a full vector",
            live_vectors=vectors,
            block_size=f"{flat_block(program)[0]} elements a program, whatever the width",
            num_warps=str(flat_block(program)[1]),
            grid="one program per block of elements",
        )
    if tiles_columns(program):
        return KernelSchedule(
            name="row_block",
            why="column gradients are summed over rows, and no row is reduced: a tile of columns a program, many rows each",
            live_vectors=vectors,
            block_size=f"{COLUMN_BLOCK} columns a program, whatever the width",
            num_warps=str(COLUMN_WARPS),
            grid=f"blocks of rows by tiles of columns, {COLUMN_PROGRAMS} programs a multiprocessor",
        )
    if sums_columns(program):
        return KernelSchedule(
            name="row_block",
            why="column gradients are summed over rows: each program keeps a partial sum in registers",
            live_vectors=vectors,
            block_size="calculate_settings(n_cols)",
            num_warps="calculate_settings(n_cols)",
            grid="a few programs a multiprocessor, each with a block of rows",
        )
    if is_looped(program, wide_rows=wide_rows):
        return KernelSchedule(
            name="looped_row",
            why="a row may be wider than one block (a vocabulary), and nothing as wide as it is kept: the row is read in blocks",
            live_vectors=vectors,
            block_size=f"at most {LOOP_BLOCK} columns at a time",
            num_warps=str(LOOP_WARPS),
            grid="one program per row",
        )
    if program.accumulates or any(isinstance(n, Reduce | Scan) for n in program.nodes):
        return KernelSchedule(
            name="persistent_row",
            why="a row is read once and stays in registers between its reductions",
            live_vectors=vectors,
            block_size="calculate_settings(n_cols)",
            num_warps="calculate_settings(n_cols)",
            grid="one program per row",
        )
    return KernelSchedule(
        name="tile",
        why="element-wise with broadcast or packed operands: a tile of rows and columns a program",
        live_vectors=vectors,
        block_size=f"{TILE_BLOCK} columns by {TILE_ROWS} rows a program: more rows where they are short",
        num_warps=str(TILE_WARPS),
        grid="one program per tile of rows and columns",
    )
