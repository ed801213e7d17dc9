"""How a row program is laid on the GPU. Pure.

flat: one index over all elements, when every operand has the same layout. tile: rows by columns, element-wise with
broadcasts or packed halves. persistent_row: a program holds a row, for reductions. row_block: a program holds one row at
a time and walks over many, adding up column gradients.
"""

from __future__ import annotations

from kernels.derivation import KernelSchedule
from kernels.passes.program import live_vectors
from kernels.row_program import Index, Load, Reduce, RowProgram, Scan, Symbol

# Elements a program handles, by measurement on an H200 (docs/performance.md): enough bytes in flight, no spills.
FLAT_BLOCK, FLAT_WARPS = 4096, 8
TILE_BLOCK, TILE_WARPS = 4096, 8


def is_flat(program: RowProgram) -> bool:
    """Whether every tensor has the same axes in the same order, so that one flat index serves all."""
    if program.accumulates or any(isinstance(n, Reduce | Scan | Index) for n in program.nodes):
        return False
    layouts = {t.axes for t in program.tensors if t.axes}
    if len(layouts) != 1 or any(program.axis(a).unroll for a in next(iter(layouts))):
        return False
    # A value written to a full tensor but varying over less would need its own index: it has none, so it must be full
    # or a scalar. Loads of 0-d tensors are scalars.
    return all(not isinstance(n, Load) or not n.at for n in program.nodes)


def choose_schedule(program: RowProgram) -> KernelSchedule:
    """The schedule of one kernel, with its reason."""
    vectors = live_vectors(program)
    if is_flat(program):
        return KernelSchedule(
            name="flat",
            why="element-wise and every operand has the same layout: rows don't matter, every load is a full vector",
            live_vectors=vectors,
            block_size=f"{FLAT_BLOCK} elements a program, whatever the width",
            num_warps=str(FLAT_WARPS),
            grid="one program per block of elements",
        )
    if program.accumulates:
        return KernelSchedule(
            name="row_block",
            why="column gradients are summed over rows: each program keeps a partial sum in registers",
            live_vectors=vectors,
            block_size="calculate_settings(n_cols)",
            num_warps="calculate_settings(n_cols)",
            grid="one program per multiprocessor, each with a block of rows",
        )
    if any(isinstance(n, Reduce | Scan) for n in program.nodes):
        return KernelSchedule(
            name="persistent_row",
            why="a row is read once and stays in registers between its reductions",
            live_vectors=vectors,
            block_size="calculate_settings(n_cols)",
            num_warps="calculate_settings(n_cols)",
            grid="one program per row",
        )
    _ = Symbol
    return KernelSchedule(
        name="tile",
        why="element-wise with broadcast or packed operands: a tile of rows and columns a program",
        live_vectors=vectors,
        block_size=f"{TILE_BLOCK} elements a program: several rows where rows are short",
        num_warps=str(TILE_WARPS),
        grid="one program per tile of rows and columns",
    )
