"""The body of a kernel that has a part of a row: it reads what the parts gave before, and leaves what its own gives. Pure.

One program a part, whose blocks lie apart (the first of every n_splits, the second, …), so that no part is longer than
another by more than a block. The last kernel of a row that is reduced to numbers has no columns left: one program a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.looped_row import column_loop, loop_levels
from kernels.passes.names import stem
from kernels.row_program import SPLITS, Load, Reduce, RowProgram

if TYPE_CHECKING:
    from kernels.kernel_statements import KernelStatements

INDENT = "    "


def split_row(kernel: KernelStatements) -> list[str]:
    """Lines of the kernel after its docstring."""
    program = kernel.program
    nodes = program.nodes
    reduces = [i for i, n in enumerate(nodes) if isinstance(n, Reduce) and n.axes != (SPLITS,)]
    stores = [s for s in program.stores if set(program.tensor(s.tensor).axes) & kernel.cols]
    parts = [s for s in program.stores if SPLITS in program.tensor(s.tensor).axes]
    rest = [s for s in program.stores if s not in stores and s not in parts]
    numbers = [i for i in range(len(nodes)) if not kernel.axes[i] & kernel.cols and i not in reduces]
    lines = ["row_idx = tl.program_id(0).to(tl.int64)"]
    if has_columns(program):
        lines.append("split_idx = tl.program_id(1).to(tl.int64)")
        kernel.offsets.sizes[SPLITS] = kernel.offsets.sizes["n_cols"] = None
    if reads_parts(program):
        kernel.offsets.sizes[SPLITS] = None
        lines += ["split_offsets = tl.arange(0, BLOCK_SPLITS)", "split_mask = split_offsets < n_splits"]
    _, online = loop_levels(program)
    own = kernel.statements(numbers)
    lines += ["", *own]
    head = "for start in range(split_idx * BLOCK_SIZE, n_cols, n_splits * BLOCK_SIZE):"
    lines += column_loop(kernel, reduces, stores, online, (head, ""))
    left = [*(kernel.stores(rest) if rest else []), *kernel.partial_stores()]
    if left and has_columns(program):
        left = ["if split_idx == 0:", *(INDENT + line for line in left)]
    left = [*_part_stores(kernel, [(s.tensor, s.value) for s in parts]), *left]
    return [*lines, *left] if left else lines[:-1]


def has_columns(program: RowProgram) -> bool:
    """Whether there is work on columns, or only on what the parts have left."""
    cols = set(program.cols)
    return any(axes & cols for axes in program.node_axes()) or any(
        set(program.tensor(s.tensor).axes) & cols for s in program.stores
    )


def reads_parts(program: RowProgram) -> bool:
    """Whether it reads what the parts of its row have left."""
    return any(isinstance(n, Load) and SPLITS in program.tensor(n.tensor).axes for n in program.nodes)


def _part_stores(kernel: KernelStatements, stores: list[tuple[str, int]]) -> list[str]:
    lines: list[str] = []
    for name, value in stores:
        offset = kernel.offsets.offset(kernel.program.tensor(name), (), {SPLITS: "split_idx"})
        lines.append(f"tl.store({stem(name)}_ptr + {offset}, {kernel.text.write(value).text})")
    return lines
