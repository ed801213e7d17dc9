"""How a row program is laid on the GPU. Pure.

flat: one index over all elements, when every operand has the same layout. tile: rows by columns, element-wise with
broadcasts or packed halves. persistent_row: a program holds a row, for reductions. row_block: a program holds one row at
a time and walks over many, adding up column gradients. split_row: a program has a part of a row.
"""

from __future__ import annotations

from kernels.derivation import KernelSchedule
from kernels.looped_row import reads_rows_again
from kernels.passes.functions import FUNCTIONS
from kernels.passes.program import live_vectors
from kernels.row_program import (
    SPLITS,
    Cast,
    Gather,
    Index,
    Load,
    Map,
    Reduce,
    RowProgram,
    Scan,
    Uniform,
    operands,
)

# Elements a program handles, by measurement on an H200 (docs/performance.md): enough bytes in flight, no spills.
FLAT_BLOCK, FLAT_WARPS = 1024, 4
# One tensor read, or arithmetic alone: twice the bytes in flight a thread, which pays where a launch is short.
FLAT_LIGHT_WARPS = 2
# A sum costs a barrier: where a loss is summed, so many programs a multiprocessor walk over blocks and reduce once.
FLAT_SUM_BLOCK, FLAT_SUM_WARPS, FLAT_SUM_PROGRAMS = 1024, 4, 32
# A backward that finds its gradient written returns at once: the fewer programs start for that, the better.
FLAT_IDLE_BLOCK, FLAT_IDLE_WARPS = 8192, 8
TILE_BLOCK, TILE_WARPS = 1024, 4
# Rows of a tile: more bytes in flight where few vectors are alive.
TILE_ROWS, TILE_ROWS_MANY_VECTORS, TILE_FEW_VECTORS = 4, 2, 4
# A row that is reduced more than once: each reduction waits for all warps, so few of them.
FEW_WARPS, FEW_WARPS_COLUMNS = 8, 16384
# As many reductions of one row, and a row that four warps can hold: fewer still.
MANY_REDUCTIONS, FEWER_WARPS, FEWER_WARPS_COLUMNS = 3, 4, 4096
# From here on a row's values, kept across its reduction, don't fit the registers: they are read again.
READ_AGAIN_COLUMNS, READ_AGAIN_MANY_COLUMNS = 16384, 4096  # the second: of a row that is reduced many times
LOOP_BLOCK, LOOP_WARPS = 2048, 4
# Where a loop reads a row again to write it: few rows in flight, so that more of them are still in the L2 cache.
LOOP_AGAIN_BLOCK, LOOP_AGAIN_WARPS = 8192, 8
# Where nothing is written, the next blocks are loaded ahead, and a barrier a block is cheaper among few warps.
LOOP_READ_BLOCK, LOOP_READ_WARPS = 4096, 4
# Beyond so many columns the L2 cache loses the rows in flight: what a loop reads first is loaded ahead too, by more warps.
LOOP_AHEAD_COLUMNS, LOOP_AHEAD_WARPS = 32768, 16
# A row split over programs: so many programs a multiprocessor, and never more parts than one program reads at once.
SPLIT_BLOCK, SPLIT_WARPS, SPLIT_PROGRAMS, MOST_SPLITS = 2048, 4, 8, 1024
# Column sums without a reduction inside the row: tiles of columns, and this many programs a multiprocessor.
COLUMN_BLOCK, COLUMN_WARPS, COLUMN_PROGRAMS = 2048, 4, 4
# Rows that walk one after another leave memory idle: so many columns of them in flight a multiprocessor.
COLUMNS_IN_FLIGHT = 8192


def is_flat(program: RowProgram) -> bool:
    """Whether every tensor has the same axes in the same order, so that one flat index serves all."""
    parts = [_summed(program, a.value) for a in program.accumulates if not program.tensor(a.tensor).axes]
    if len(parts) != len(program.accumulates) or None in parts:
        return False
    partial = set(parts)
    if program.scatters or any(isinstance(n, Scan | Index | Gather) for n in program.nodes):
        return False
    everything = set(program.rows) | set(program.cols)
    axes = program.node_axes()
    for index, node in enumerate(program.nodes):
        if isinstance(node, Reduce) and (index not in partial or axes[node.arg] != everything):
            return False
    layouts = {t.axes for t in program.tensors if t.axes}
    if len(layouts) != 1 or any(program.axis(a).unroll for a in next(iter(layouts))):
        return False
    (layout,) = layouts
    if any(isinstance(n, Uniform) and n.axes != layout for n in program.nodes):
        return False
    return set(layout) == everything and all(not isinstance(n, Load) or not n.at for n in program.nodes)


def _summed(program: RowProgram, value: int) -> int | None:
    """The one sum that a program's part is made of, with numbers that are the same for every element."""
    axes = program.node_axes()
    sums: set[int] = set()
    stack = [value]
    while stack:
        index = stack.pop()
        node = program.nodes[index]
        if isinstance(node, Reduce):
            sums.add(index)
        elif (
            axes[index] & set(program.cols)
            or isinstance(node, Cast)
            or (isinstance(node, Load) and axes[index])
        ):
            return None
        else:
            stack.extend(operands(node))
    return sums.pop() if len(sums) == 1 else None


def flat_block(program: RowProgram, *, idle: bool = False) -> tuple[int, int]:
    """(elements a program, warps) of a flat kernel. `idle`: as a rule it finds nothing to do."""
    if idle:
        return FLAT_IDLE_BLOCK, FLAT_IDLE_WARPS
    if program.accumulates:
        return FLAT_SUM_BLOCK, FLAT_SUM_WARPS
    loads = sum(isinstance(n, Load) for n in program.nodes)
    light = loads == 1 or not any(
        isinstance(n, Map) and FUNCTIONS[n.fn].transcendental for n in program.nodes
    )
    return FLAT_BLOCK, FLAT_LIGHT_WARPS if light else FLAT_WARPS


def tile_rows(program: RowProgram) -> int:
    """Rows a program of a tile whose columns fill a block."""
    return TILE_ROWS if live_vectors(program) <= TILE_FEW_VECTORS else TILE_ROWS_MANY_VECTORS


def many_reductions(program: RowProgram) -> bool:
    """Whether a row is reduced so often that the waiting costs more than the reading."""
    return sum(isinstance(n, Reduce) for n in program.nodes) >= MANY_REDUCTIONS


def few_warps(program: RowProgram) -> bool:
    """Whether one load of the row goes through reductions that wait for each other, or it is reduced many times."""
    if many_reductions(program):
        return True
    axes = program.node_axes()
    cols = set(program.cols)
    rows = set(program.rows)
    wide = [
        n for i, n in enumerate(program.nodes) if isinstance(n, Load) and axes[i] >= cols and axes[i] & rows
    ]
    above: set[int] = set()  # nodes that depend on a reduction
    chained = False
    for index, node in enumerate(program.nodes):
        depends = any(o in above for o in operands(node))
        chained |= depends and isinstance(node, Reduce)
        if depends or isinstance(node, Reduce):
            above.add(index)
    return chained and len(wide) == 1


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
    return wide_rows or not writes_rows(program)


def writes_rows(program: RowProgram) -> bool:
    """Whether it writes something as wide as a row."""
    return any(set(program.tensor(s.tensor).axes) & set(program.cols) for s in program.stores)


def idle_schedule(program: RowProgram, schedule: KernelSchedule, *, wide: bool) -> KernelSchedule:
    """The schedule of a kernel that as a rule finds nothing to do: with fewer programs. `wide`: its rows are long."""
    if wide and schedule.name in ("tile", "flat") and program.rows:
        return _looped_row(
            program, "as a rule it finds nothing to do, and few programs find that out soonest"
        )
    if schedule.name != "flat":
        return schedule
    block, warps = flat_block(program, idle=True)
    return schedule.model_copy(
        update={"block_size": f"{block} elements a program, whatever the width", "num_warps": str(warps)}
    )


def _looped_row(program: RowProgram, why: str) -> KernelSchedule:
    block, warps = LOOP_BLOCK, str(LOOP_WARPS)
    if reads_rows_again(program):
        block, warps = (
            LOOP_AGAIN_BLOCK,
            f"{LOOP_AGAIN_WARPS}; {LOOP_AHEAD_WARPS} where blocks are loaded ahead",
        )
    elif not writes_rows(program):
        block, warps = LOOP_READ_BLOCK, str(LOOP_READ_WARPS)
    return KernelSchedule(
        name="looped_row",
        why=why,
        live_vectors=live_vectors(program),
        block_size=f"at most {block} columns at a time",
        num_warps=warps,
        grid="one program per row",
    )


def is_split(program: RowProgram) -> bool:
    """Whether a row is split over programs (kernels/passes/split_rows.py)."""
    return any(a.name == SPLITS for a in program.axes)


def _split_row(program: RowProgram) -> KernelSchedule:
    wide = any(axes & set(program.cols) for axes in program.node_axes())
    return KernelSchedule(
        name="split_row",
        why="few rows of very many columns: a row is split over programs, so that every multiprocessor has work",
        live_vectors=live_vectors(program),
        block_size=f"at most {SPLIT_BLOCK} columns at a time" if wide else "the parts of a row",
        num_warps=str(SPLIT_WARPS),
        grid=f"rows by parts of a row, {SPLIT_PROGRAMS} programs a multiprocessor"
        if wide
        else "one program per row",
    )


def choose_schedule(program: RowProgram, *, wide_rows: bool = False) -> KernelSchedule:
    """The schedule of one kernel, with its reason. `wide_rows`: rows don't fit one block."""
    vectors = live_vectors(program)
    if is_split(program):
        return _split_row(program)
    if is_flat(program):
        return KernelSchedule(
            name="flat",
            why="element-wise and every operand has the same layout: rows don't matter, every load is a full vector",
            live_vectors=vectors,
            block_size=f"{flat_block(program)[0]} elements a program, whatever the width",
            num_warps=str(flat_block(program)[1]),
            grid=(
                f"at most {FLAT_SUM_PROGRAMS} programs a multiprocessor, each walks over blocks and reduces once"
                if program.accumulates
                else "one program per block of elements"
            ),
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
        kept = "" if writes_rows(program) else ", and nothing as wide as it is kept"
        return _looped_row(
            program, f"a row may be wider than one block (a vocabulary){kept}: the row is read in blocks"
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
        block_size=f"{TILE_BLOCK} columns by {tile_rows(program)} rows a program: more rows where they are short",
        num_warps=str(TILE_WARPS),
        grid="one program per tile of rows and columns",
    )
