"""The looped row: one loop over the columns for each level of reductions, for rows wider than a block. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.expressions import ADD, Text
from kernels.row_program import SPLITS, Load, Map, Reduce, RowProgram, Scan, Store, operands

if TYPE_CHECKING:
    from kernels.kernel_statements import KernelStatements

INDENT = "    "
# The head of a loop, and where its block starts when that is not the head's own variable.
FORWARDS = ("for start in range(0, n_cols, BLOCK_SIZE):", "")
# Rows in flight together don't fit in the L2 cache, and what was read last is what a cache still holds. Not a range with
# a negative step: of its values Triton doesn't know that they are multiples of the block, and loads element by element.
BACKWARDS = (
    "for done in range(0, n_cols, BLOCK_SIZE):",
    "start = (n_cols - 1) // BLOCK_SIZE * BLOCK_SIZE - done",
)
# What becomes of a head whose next blocks are loaded ahead.
AHEAD = "range(0, n_cols, BLOCK_SIZE)", "tl.range(0, n_cols, BLOCK_SIZE, num_stages=NUM_STAGES)"


def looped_row(kernel: KernelStatements) -> list[str]:
    """One loop over the columns for each level of reductions; values are computed again in each, rows stay."""
    nodes = kernel.program.nodes
    levels, online = loop_levels(kernel.program)
    kernel.offsets.sizes["n_cols"] = None
    lines = ["row_idx = tl.program_id(0).to(tl.int64)", ""]
    wide_stores = [
        s for s in kernel.program.stores if set(kernel.program.tensor(s.tensor).axes) & kernel.cols
    ]
    again = reads_rows_again(kernel.program)
    ahead = loads_ahead(kernel.program, kernel.gradients == "written")
    backwards = False
    for level in range(max(levels, default=0) + 1):
        reduces = [i for i, n in enumerate(nodes) if isinstance(n, Reduce) and levels[i] == level]
        stores = [s for s in wide_stores if available(kernel.program, s.value, levels) == level]
        narrow = [
            i
            for i in range(len(nodes))
            if not kernel.axes[i] & kernel.cols and not isinstance(nodes[i], Reduce)
        ]
        lines += kernel.statements([i for i in narrow if levels[i] == level])
        if again:
            kernel.eviction = '"evict_first"' if stores else '"evict_last"'
            if level == 0:
                lines.append(
                    "# The row is read again below, from its end, which is still in the L2 cache then."
                )
        in_order = any(isinstance(n, Scan) for n in nodes) or any(
            nodes[i].fn not in ("sum", "max", "min")  # type: ignore[union-attr]
            for i in reduces
        )
        head, start = BACKWARDS if backwards and not in_order else FORWARDS
        if ahead and reduces and not stores:
            head = head.replace(*AHEAD)
            loaded = _wide_ancestors(kernel, [nodes[i].arg for i in reduces])  # type: ignore[union-attr]
            tensors = [node.tensor for i in loaded if isinstance(node := nodes[i], Load)]
            kernel.staged = max(kernel.staged, sorted(tensors), key=len)  # one loop at a time
        lines += column_loop(kernel, reduces, stores, online, (head, start))
        if again and (reduces or stores):
            backwards = not backwards
    narrow_stores = [s for s in kernel.program.stores if s not in wide_stores]
    final = [*kernel.stores(narrow_stores), *kernel.partial_stores()]
    return [*lines, *final] if final else lines[:-1]


def column_loop(
    kernel: KernelStatements,
    reduces: list[int],
    stores: list[Store],
    online: dict[int, int],
    loop: tuple[str, str],
) -> list[str]:
    """A loop over the blocks of a row that accumulates some reductions, a vector each, and what follows it, an empty line included.

    `loop`: its head, and the statement that sets `start`. `online`: sum -> its maximum. Nothing when there is nothing to do;
    gradients alone are made only where wanted.
    """
    if not reduces and not stores:
        return []
    lines = _loop(kernel, reduces, stores, online, loop)
    if not reduces and all(kernel.optional(s) for s in stores):
        lines = ["if HAS_GRADIENTS:", *(INDENT + line for line in lines)]
    return [*lines, ""]


def _loop(
    kernel: KernelStatements,
    reduces: list[int],
    stores: list[Store],
    online: dict[int, int],
    loop: tuple[str, str],
) -> list[str]:
    nodes = kernel.program.nodes
    before: list[str] = []
    inside: list[str] = []
    after: list[str] = []
    roots = [nodes[i].arg for i in reduces if i not in online]  # type: ignore[union-attr]
    for i, node in [(i, n) for i, n in enumerate(nodes) if i in reduces and isinstance(n, Reduce)]:
        name = kernel.text.names[i]
        argument = kernel.masked_argument(i, node)
        if i in online.values():
            continue  # kept together with its sum, below
        if i in online:
            largest = kernel.text.names[online[i]]
            value = kernel.masked_argument(online[i], nodes[online[i]])  # type: ignore[arg-type]
            kernel.text.constants.add("LOWEST")
            # One maximum a block: a maximum a lane would double the exponentials, and those are the time it takes.
            before.append(f"{largest} = tl.full((), LOWEST, dtype=tl.float32)")
            before.append(f"{name}_acc = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)")
            inside.append(f"{largest}_new = tl.maximum({largest}, tl.max({value}, axis=0))")
            power = kernel.text.power_of_two  # of what is below the largest so far
            rescaled = f"{name}_acc * {power(Text(f'{largest} - {largest}_new', ADD))}"
            inside.append(f"{name}_acc = {rescaled} + {power(Text(f'{value} - {largest}_new', ADD))}")
            inside.append(f"{largest} = {largest}_new")
            after.append(f"{name} = tl.sum({name}_acc, axis=0)")
            continue
        if node.fn == "sum":
            before.append(f"{name}_acc = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)")
            inside.append(f"{name}_acc += {argument}")
        else:
            sign = "-" if node.fn == "max" else ""
            before.append(f'{name}_acc = tl.full((BLOCK_SIZE,), {sign}float("inf"), dtype=tl.float32)')
            nan = "" if kernel.nan_is_seen_elsewhere(i) else ", propagate_nan=tl.PropagateNan.ALL"
            inside.append(f"{name}_acc = tl.{node.fn}imum({name}_acc, {argument}{nan})")
        after.append(f"{name} = {kernel.reduced(i, node, f'{name}_acc')}")
    head, start = loop
    needed = _wide_ancestors(kernel, roots + [s.value for s in stores])
    body = [
        *([start] if start else []),
        "col_offsets = start + tl.arange(0, BLOCK_SIZE)",
        "mask = col_offsets < n_cols",
        *kernel.statements(sorted(needed)),
        *inside,
        *(kernel.stores(stores) if reduces else kernel.store_lines(stores)),
    ]
    return [
        *before,
        head,
        *(INDENT + line for line in body),
        *after,
    ]


def reads_rows_again(program: RowProgram) -> bool:
    """Whether a loop that writes the row comes after one that reads it."""
    levels, _ = loop_levels(program)
    wide = [s for s in program.stores if set(program.tensor(s.tensor).axes) & set(program.cols)]
    return any(available(program, s.value, levels) > 0 for s in wide)


def loads_ahead(program: RowProgram, gradients: bool) -> bool:
    """Whether its loops may load the next blocks while one is reduced: where nothing is written a row but a gradient on demand.

    `gradients`: whether gradients are on demand.
    """
    wide = [s for s in program.stores if set(program.tensor(s.tensor).axes) & set(program.cols)]
    return all(gradients and program.tensor(s.tensor).kind == "gradient" for s in wide)


def available(program: RowProgram, node: int, levels: list[int]) -> int:
    """The first loop that can read a node."""
    return levels[node] + (1 if isinstance(program.nodes[node], Reduce) else 0)


def _wide_ancestors(kernel: KernelStatements, roots: list[int]) -> set[int]:
    """Values of the columns that the roots are made of: what a loop computes again."""
    found: set[int] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node in found or not kernel.axes[node] & kernel.cols:
            continue
        found.add(node)
        stack.extend(operands(kernel.program.nodes[node]))
    return found


def loop_levels(program: RowProgram) -> tuple[list[int], dict[int, int]]:
    """For each node the loop that computes it, and the sums that run online: sum of exp(x - max) -> max.

    Whatever needs a reduction comes one loop later. A sum of exponentials shares the loop of its own maximum.
    """
    levels: list[int] = []
    online: dict[int, int] = {}
    for index, node in enumerate(program.nodes):
        largest = own_maximum(program, node)
        if largest is not None and largest not in online.values():
            online[index] = largest
            levels.append(levels[largest])
            continue
        ready = [levels[o] + (1 if isinstance(program.nodes[o], Reduce) else 0) for o in operands(node)]
        levels.append(max(ready, default=0))
    return levels, online


def own_maximum(program: RowProgram, node: object) -> int | None:
    """The maximum m of `sum(exp(x - m))` when m is the maximum of that x."""
    if not isinstance(node, Reduce) or node.fn != "sum":
        return None
    inner = program.nodes[node.arg]
    if node.axes == (SPLITS,) and isinstance(inner, Map) and inner.fn == "mul":
        inner = program.nodes[inner.args[1]]  # the parts' sums, each times exp(its maximum - the row's)
    if not isinstance(inner, Map) or inner.fn != "exp":
        return None
    shifted = program.nodes[inner.args[0]]
    if not isinstance(shifted, Map) or shifted.fn != "sub":
        return None
    value, largest = shifted.args
    found = program.nodes[largest]
    return largest if isinstance(found, Reduce) and found.fn == "max" and found.arg == value else None
