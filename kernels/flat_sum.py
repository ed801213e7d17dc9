"""The body of a flat kernel that sums: each program walks over blocks of elements, and reduces once at the end. Pure.

A reduction in every block is a barrier in every block; so are as many parts to add up on the host.
"""

from __future__ import annotations

from kernels.kernel_statements import KernelStatements
from kernels.row_program import Reduce, operands

INDENT = "    "


def flat_sum(kernel: KernelStatements) -> list[str]:
    """Lines of the kernel after its docstring. Every reduction is a sum over all elements (`schedules.is_flat`)."""
    nodes = kernel.program.nodes
    reduces = {i: n for i, n in enumerate(nodes) if isinstance(n, Reduce)}
    everywhere = [i for i in range(len(nodes)) if i not in reduces]
    inside = [i for i in everywhere if kernel.axes[i] and not _beneath(kernel, i) & set(reduces)]
    before = [i for i in everywhere if not kernel.axes[i] and not _beneath(kernel, i) & set(reduces)]
    after = [i for i in everywhere if i not in inside and i not in before]
    kernel.offsets.sizes["n_elements"] = None
    first = kernel.statements(before)
    loop = [
        "offsets = start + tl.arange(0, BLOCK_SIZE)",
        "mask = offsets < n_elements",
        *kernel.statements(inside),
    ]
    for index, node in reduces.items():
        first.append(f"{kernel.text.names[index]}_acc = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)")
        loop.append(f"{kernel.text.names[index]}_acc += {kernel.masked_argument(index, node)}")
    loop += kernel.stores()
    return [
        *first,
        "for start in range(tl.program_id(0).to(tl.int64) * BLOCK_SIZE, n_elements, tl.num_programs(0) * BLOCK_SIZE):",
        *(INDENT + line for line in loop),
        "",
        *(f"{kernel.text.names[i]} = tl.sum({kernel.text.names[i]}_acc, axis=0)" for i in reduces),
        *kernel.statements(after),
        *kernel.partial_stores(),
    ]


def _beneath(kernel: KernelStatements, index: int) -> set[int]:
    """The nodes that a node is made of."""
    found: set[int] = set()
    stack = list(operands(kernel.program.nodes[index]))
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack.extend(operands(kernel.program.nodes[node]))
    return found
