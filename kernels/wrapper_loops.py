"""How the wrapper launches a looped row: its block, its warps, and what it loads ahead. Pure."""

from __future__ import annotations

from kernels.kernel_printer import KernelSource
from kernels.looped_row import reads_rows_again
from kernels.row_program import RowProgram
from kernels.schedules import (
    LOOP_AGAIN_BLOCK,
    LOOP_AGAIN_WARPS,
    LOOP_AHEAD_COLUMNS,
    LOOP_AHEAD_WARPS,
    LOOP_BLOCK,
    LOOP_READ_BLOCK,
    LOOP_READ_WARPS,
    LOOP_WARPS,
)


def loop_settings(program: RowProgram, source: KernelSource) -> list[str]:
    """The statements that set BLOCK_SIZE and num_warps."""
    again = reads_rows_again(program)
    if again and source.takes_stages:  # then the row is written only where a gradient is wanted
        warps = f"{LOOP_AHEAD_WARPS} if n_cols > {LOOP_AHEAD_COLUMNS} else {LOOP_AGAIN_WARPS}"
        writing, reading = f"({LOOP_AGAIN_BLOCK}, {warps})", f"({LOOP_READ_BLOCK}, {LOOP_READ_WARPS})"
        return [
            f"BLOCK_SIZE, num_warps = {writing} if has_gradients else {reading}",
            "BLOCK_SIZE = min(triton.next_power_of_2(n_cols), BLOCK_SIZE)",
        ]
    block, warps = (
        (LOOP_READ_BLOCK, LOOP_READ_WARPS)
        if source.takes_stages
        else (LOOP_AGAIN_BLOCK, LOOP_AGAIN_WARPS)
        if again
        else (LOOP_BLOCK, LOOP_WARPS)
    )
    return [f"BLOCK_SIZE, num_warps = min(triton.next_power_of_2(n_cols), {block}), {warps}"]


def loop_stages(program: RowProgram, stages: str) -> str:
    """NUM_STAGES, given how many stages fit: one where the rows in flight stay in the L2 cache until they are read again."""
    if not reads_rows_again(program):
        return stages
    return f"1 if has_gradients and n_cols <= {LOOP_AHEAD_COLUMNS} else {stages}"
