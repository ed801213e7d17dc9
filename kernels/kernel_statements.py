"""The statements of a kernel: which values get a name, and how loads, reductions and stores are written. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from kernels.exponentials import powers_of_two
from kernels.expressions import ATOM, KernelText, count_uses
from kernels.kernel_offsets import Offsets
from kernels.loads import gather, load, uniform
from kernels.looped_row import own_maximum
from kernels.passes.names import stem, value_names
from kernels.passes.padding import choose_padding, parts_fill
from kernels.quantity import Quantity
from kernels.row_program import (
    SPLITS,
    Cast,
    Const,
    Gather,
    Index,
    Load,
    Reduce,
    RowProgram,
    Scan,
    Store,
    Symbol,
    Tensor,
    Uniform,
    operands,
)
from kernels.schedules import tiles_columns

INDENT = "    "
INLINE_WIDTH = 64
# What HAS_GRADIENTS decides: whether a forward writes the gradients, or whether a backward finds them written.
Gradients = Literal["written", "found"]


class KernelStatements:
    """The statements of a row program under a schedule."""

    def __init__(self, program: RowProgram, schedule: str, gradients: Gradients | None = None):
        self.program, self.schedule = program, schedule
        self.gradients: Gradients | None = gradients
        self.axes = program.node_axes()
        self.rows, self.cols = set(program.rows), set(program.cols)
        self.two_d = schedule == "tile"
        self.tiled = schedule == "row_block" and tiles_columns(program)
        self.offsets = Offsets(program, flat=schedule == "flat")
        self.symbols: dict[str, Quantity] = {}
        self.pointers = self._pointers()
        self.reads_again = False
        self.staged: list[str] = []  # tensors of which the next rows or blocks are loaded ahead
        self.symbol_texts = {
            n.quantity: self._symbol(n.quantity) for n in program.nodes if isinstance(n, Symbol)
        }
        self.taken = {f"{stem(t)}_ptr" for t in self.pointers} | set(program.scalars) | set(self.symbols)
        self.values = value_names(program, self.taken)
        self.padding = choose_padding(program)
        self.padding.fill.update(parts_fill(program))
        self.eviction: str | None = None  # as text; of what is read and written a block at a time
        self.text = KernelText(
            program,
            {},
            self.symbol_texts,
            reduce_axis="axis=1, keep_dims=True" if self.two_d else "axis=0",
            powers_of_two=powers_of_two(program),
        )
        self._choose_statements()

    # --- arguments ---

    def _pointers(self) -> list[str]:
        """Tensors written, then tensors read, then those only named for their dtype."""
        program = self.program
        written = [w.tensor for w in (*program.stores, *program.accumulates, *program.scatters)]
        read = [n.tensor for n in self.program.nodes if isinstance(n, Load | Gather)]
        named = [n.like for n in self.program.nodes if isinstance(n, Cast)]
        # A gradient that the forward has written was for an incoming gradient of 1: every kernel asks for that.
        asked = [t.name for t in program.tensors if t.kind == "tangent"] if self.gradients == "found" else []
        return list(dict.fromkeys([*written, *read, *named, *asked]))

    def _symbol(self, quantity: Quantity) -> str:
        """How the kernel writes a quantity: sizes and scalars are arguments; products with powers come from the host."""
        sizes = {"n_cols": self.program.cols, "n_rows": self.program.rows}
        if self.schedule == "flat":
            sizes = {"n_elements": (*self.program.rows, *self.program.cols)}
        for name, axes in sizes.items():
            size = Quantity()
            for axis in axes:
                size *= self.program.axis(axis).size
            if axes and quantity.same(size):
                self.offsets.sizes[name] = None
                return name
        if quantity.names <= set(self.program.scalars) and all(
            f.power in (1.0, -1.0) for f in quantity.factors
        ):
            return quantity.text()
        words = (
            quantity.text()
            .replace("**-", "_to_minus_")
            .replace("**", "_to_")
            .replace("/", "_by_")
            .replace("-", "_minus_")
        )
        name = "_".join(part for part in "".join(c if c.isalnum() else "_" for c in words).split("_") if part)
        name = name if name[:1].isalpha() and name not in self.program.scalars else f"factor_{name}"
        if name in ("n_rows", "n_cols") and self.schedule != "flat":
            name = f"{name}_total"
        self.symbols[name] = quantity
        return name

    # --- statements ---

    def _choose_statements(self) -> None:
        """Loads, reductions and values used twice are statements; short single uses are written in place."""
        counts = count_uses(self.program)
        for index, node in enumerate(self.program.nodes):
            if isinstance(node, Const | Symbol | Index):
                continue
            if isinstance(node, Reduce) and self.tiled:
                continue  # summed up in a vector, and reduced once at the end
            if (
                isinstance(node, Load | Gather | Uniform | Reduce | Scan)
                or counts[index] > 1
                or len(self.text.write(index).text) > INLINE_WIDTH
                or self._changes_place(index)
            ):
                self.text.names[index] = self.values[index]
        self.text.names = value_names(self.program, self.taken, set(self.text.names))
        self.text.helpers.clear()
        self.text.constants.clear()

    def _changes_place(self, index: int) -> bool:
        """A value of the column that only values of rows read: computed once, before the loop over rows."""
        if self.schedule != "row_block" or self.axes[index] & self.rows or not self.axes[index]:
            return False
        readers = [i for i, n in enumerate(self.program.nodes) if index in operands(n)]
        return any(self.axes[r] & self.rows for r in readers)

    # --- loads, reductions, stores ---

    def mask(self, axes: frozenset[str]) -> str:
        """The mask of an access that varies over these axes; "" when it needs none."""
        row, col = bool(axes & self.rows), bool(axes & self.cols)
        if SPLITS in axes:
            return "split_mask"
        if self.schedule == "flat":
            return "mask" if axes else ""
        if self.two_d:
            return "mask" if row and col else "row_mask" if row else "col_mask" if col else ""
        return "mask" if col else ""

    def statements(self, nodes: range | list[int]) -> list[str]:
        """Statements in order. A wide load waits until the reduction before its first use: what lies idle across a
        barrier is registers lost. Values of the row are loaded at once: after a barrier their latency would show."""
        allowed = set(nodes)
        lines: list[str] = []
        written: set[int] = set()
        narrow = segment = 0  # where the next load of the row, and the next wide load, goes

        def write(index: int) -> None:
            nonlocal narrow, segment
            if index in written or index not in allowed:
                return
            written.add(index)
            if index not in self.text.names:
                return
            node = self.program.nodes[index]
            line = f"{self.text.names[index]} = {self.definition(index)}"
            if not isinstance(node, Load):
                lines.append(line)
                if isinstance(node, Reduce | Scan):
                    segment = len(lines)
                return
            wide = bool(self.axes[index] & self.cols)
            lines.insert(segment if wide else narrow, line)
            segment += 1
            narrow += 0 if wide else 1

        def read_by(index: int) -> list[int]:
            """The loads and named values that a definition mentions."""
            found: list[int] = []
            stack = list(reversed(operands(self.program.nodes[index])))
            while stack:
                node = stack.pop()
                if isinstance(self.program.nodes[node], Load) or node in self.text.names:
                    found.append(node)
                else:
                    stack.extend(reversed(operands(self.program.nodes[node])))
            return found

        def define(index: int) -> None:
            if index in written or index not in self.text.names or index not in allowed:
                return
            read = read_by(index)
            for node in read:
                if not isinstance(self.program.nodes[node], Load):
                    define(node)
            for node in read:
                if isinstance(self.program.nodes[node], Load):
                    write(node)
            write(index)

        # Reductions first, with what they need: what is made between two of them would be kept across the second.
        for index in nodes:
            if isinstance(self.program.nodes[index], Reduce | Scan):
                define(index)
        for index in nodes:
            if not isinstance(self.program.nodes[index], Load):
                define(index)
        for index in nodes:  # what only stores read
            write(index)
        return lines

    def definition(self, index: int) -> str:
        node = self.program.nodes[index]
        if isinstance(node, Load):
            return load(self, index, node)
        if isinstance(node, Gather):
            return gather(self, node)
        if isinstance(node, Uniform):
            return uniform(self, node)
        if isinstance(node, Reduce | Scan):
            return self._reduce(index, node)
        return self.text.write(index, definition=True).text

    def eviction_policy(self, axes: frozenset[str]) -> str:
        return f", eviction_policy={self.eviction}" if self.eviction and axes & self.cols else ""

    def masked_argument(self, index: int, node: Reduce | Scan) -> str:
        argument = self.text.write(node.arg).text
        if index in self.padding.masked:
            identity = {"sum": "0.0", "prod": "1.0", "max": '-float("inf")', "min": 'float("inf")'}
            argument = f"tl.where(mask, {argument}, {identity[node.fn.removeprefix('arg')]})"
        return argument

    def _reduce(self, index: int, node: Reduce | Scan) -> str:
        argument = self.masked_argument(index, node)
        if isinstance(node, Scan):
            reverse = ", reverse=True" if node.reverse else ""
            axis = "axis=1" if self.two_d else "axis=0"
            return f"tl.cum{node.fn}({argument}, {axis}{reverse})"
        return self.reduced(index, node, argument)

    def reduced(self, index: int, node: Reduce, argument: str) -> str:
        if node.fn in ("max", "min") and not self.nan_is_seen_elsewhere(index):
            helper = "larger" if node.fn == "max" else "smaller"
            self.text.helpers.add(helper)
            return f"tl.reduce({argument}, 0, {helper})"
        if node.fn.startswith("arg"):
            # tl.argmax skips NaN; torch's is where the first NaN is, because it counts as the largest (or smallest).
            infinite = 'float("inf")' if node.fn == "argmax" else '-float("inf")'
            return f"tl.{node.fn}(tl.where({argument} == {argument}, {argument}, {infinite}), axis=0)"
        return f"tl.{node.fn}({argument}, {self.text.reduce_axis})"

    def nan_is_seen_elsewhere(self, index: int) -> bool:
        """Whether a NaN that tl.max drops still reaches the result: through the sum of exp(x - max)."""
        return any(own_maximum(self.program, node) == index for node in self.program.nodes)

    def optional(self, store: Store) -> bool:
        """Whether the store is made only where HAS_GRADIENTS: a gradient in the forward."""
        return self.gradients == "written" and self.program.tensor(store.tensor).kind == "gradient"

    def stores(self, stores: Sequence[Store] | None = None) -> list[str]:
        chosen = self.program.stores if stores is None else stores
        optional = self.store_lines([s for s in chosen if self.optional(s)])
        lines = self.store_lines([s for s in chosen if not self.optional(s)])
        lines += ["if HAS_GRADIENTS:", *(INDENT + line for line in optional)] if optional else []
        return lines + (self._scatter_lines() if stores is None else [])

    def store_lines(self, stores: Sequence[Store]) -> list[str]:
        lines: list[str] = []
        for store in stores:
            tensor = self.program.tensor(store.tensor)
            offset = self.offsets.offset(tensor, store.at)
            address = f"{stem(store.tensor)}_ptr" + ("" if offset == "0" else f" + {offset}")
            mask = self.mask(frozenset(tensor.axes))
            value = self._stored(store.value, tensor)
            eviction = self.eviction_policy(frozenset(tensor.axes))
            lines.append(f"tl.store({address}, {value}{', mask=' + mask if mask else ''}{eviction})")
        return lines

    def _scatter_lines(self) -> list[str]:
        lines: list[str] = []
        for scatter in self.program.scatters:
            tensor = self.program.tensor(scatter.tensor)
            offset = self.offsets.offset(tensor, (), {scatter.axis: self.text.write(scatter.index).at(ATOM)})
            index = self.text.write(scatter.index).text
            mask = self.mask(self.axes[scatter.value] | self.axes[scatter.index])
            mask = f"{mask} & ({index} >= 0) & ({index} < {self.offsets.product((scatter.axis,))})"
            value = self.text.write(scatter.value).text
            lines.append(f"tl.atomic_add({stem(scatter.tensor)}_ptr + {offset}, {value}, mask={mask})")
        return lines

    def _stored(self, value: int, tensor: Tensor) -> str:
        """A value that varies over less than its tensor is broadcast first."""
        text = self.text.write(value)
        block = set(tensor.axes) & (self.cols if self.schedule != "flat" else self.cols | self.rows)
        missing = block and not self.axes[value] & block
        node = self.program.nodes[value]
        if isinstance(node, Const | Symbol) and missing:
            shape = "BLOCK_ROWS, BLOCK_SIZE" if self.two_d else "BLOCK_SIZE,"
            number = text.text if isinstance(node, Symbol) else repr(float(node.value))
            return (
                f"tl.full(({shape}), {number}, tl.float32)"
                if math.isfinite(getattr(node, "value", 0))
                else text.text
            )
        return text.text

    def partial_stores(self) -> list[str]:
        """Scalars that each program adds a part to: one element of the buffer a program."""
        return [
            f"tl.store({stem(a.tensor)}_ptr + tl.program_id(0), {self.text.write(a.value).text})"
            for a in self.program.accumulates
        ]
