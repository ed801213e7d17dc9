"""Values of a row that are needed after its reduction: read a second time where they would take more registers than there are. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kernels.row_program import Cast, Load, Map, Reduce
from kernels.schedules import many_reductions

if TYPE_CHECKING:
    from kernels.kernel_statements import KernelStatements

INDENT = "    "
READ_AGAIN_LOADS = 2  # rows that must be alive across a reduction before reading them again is offered


def first_read(kernel: KernelStatements) -> list[str]:
    """How long what READ_AGAIN reads twice should stay in the cache."""
    return ['first_read: tl.constexpr = "evict_last" if READ_AGAIN else ""'] if kernel.reads_again else []


def read_again(kernel: KernelStatements, lines: list[str], later: list[str]) -> list[str]:
    """The statements of a row, with what is needed after its last reduction read a second time where READ_AGAIN.

    Only where two or more loads of a full row would stay alive across that reduction, or one across many. `later`: the
    lines that follow.
    """
    by_name = {name: index for index, name in kernel.text.names.items()}
    found = [by_name.get(line.split(" = ", 1)[0]) for line in lines]
    nodes = kernel.program.nodes
    barriers = [at for at, i in enumerate(found) if i is not None and isinstance(nodes[i], Reduce)]
    if not barriers:
        return lines
    cut = barriers[-1] + 1
    full = {
        kernel.text.names[i]: at
        for at, i in enumerate(found[:cut])
        if i is not None and kernel.axes[i] & kernel.cols and kernel.axes[i] & kernel.rows
    }
    needed: set[str] = set()
    pending = [*lines[cut:], *later]
    while pending:
        text = pending.pop()
        for name, at in full.items():
            if name not in needed and re.search(rf"\b{re.escape(name)}\b", text):
                needed.add(name)
                pending.append(lines[at])
    order = sorted(needed, key=full.__getitem__)
    again = [(name, nodes[by_name[name]]) for name in order]
    loads = sum(isinstance(node, Load) for _, node in again)
    if loads < (1 if many_reductions(kernel.program) else READ_AGAIN_LOADS) or not all(
        isinstance(node, Load | Map | Cast) for _, node in again
    ):
        return lines
    kernel.reads_again = True
    block = ["# Read again, from the cache: kept across the sum, they take more registers than there are"]
    # Told that it is the last time, the compiler can't take the first for it: that one's registers are free by then.
    before, kernel.eviction = kernel.eviction, '"evict_first"'
    block += [f"{name} = {kernel.definition(by_name[name])}" for name, _ in again]
    kernel.eviction = "first_read"
    first = {
        full[name]: f"{name} = {kernel.definition(by_name[name])}"
        for name, node in again
        if isinstance(node, Load)
    }
    kernel.eviction = before
    kept = [first.get(at, line) for at, line in enumerate(lines[:cut])]
    return [*kept, "if READ_AGAIN:", *(INDENT + line for line in block), *lines[cut:]]
