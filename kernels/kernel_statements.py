"""The statements of a kernel: which values get a name, and how loads, reductions and stores are written. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kernels.expressions import ATOM, KernelText, count_uses
from kernels.kernel_offsets import Offsets
from kernels.looped_row import own_maximum
from kernels.passes.names import stem, value_names
from kernels.passes.padding import choose_padding
from kernels.quantity import Quantity
from kernels.row_program import (
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
    operands,
)
from kernels.schedules import tiles_columns

INLINE_WIDTH = 64


class KernelStatements:
    """The statements of a row program under a schedule."""

    def __init__(self, program: RowProgram, schedule: str):
        self.program, self.schedule = program, schedule
        self.axes = program.node_axes()
        self.rows, self.cols = set(program.rows), set(program.cols)
        self.two_d = schedule == "tile"
        self.tiled = schedule == "row_block" and tiles_columns(program)
        self.offsets = Offsets(program, flat=schedule == "flat")
        self.symbols: dict[str, Quantity] = {}
        self.pointers = self._pointers()
        self.symbol_texts = {
            n.quantity: self._symbol(n.quantity) for n in program.nodes if isinstance(n, Symbol)
        }
        self.taken = {f"{stem(t)}_ptr" for t in self.pointers} | set(program.scalars) | set(self.symbols)
        self.values = value_names(program, self.taken)
        self.padding = choose_padding(program)
        self.text = KernelText(
            program,
            {},
            self.symbol_texts,
            reduce_axis="axis=1, keep_dims=True" if self.two_d else "axis=0",
        )
        self._choose_statements()

    # --- arguments ---

    def _pointers(self) -> list[str]:
        """Tensors written, then tensors read, then those only named for their dtype."""
        program = self.program
        written = [w.tensor for w in (*program.stores, *program.accumulates, *program.scatters)]
        read = [n.tensor for n in self.program.nodes if isinstance(n, Load | Gather)]
        named = [n.like for n in self.program.nodes if isinstance(n, Cast)]
        return list(dict.fromkeys([*written, *read, *named]))

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
                isinstance(node, Load | Gather | Reduce | Scan)
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
            line = f"{self.text.names[index]} = {self._definition(index)}"
            if not isinstance(node, Load):
                lines.append(line)
                if isinstance(node, Reduce | Scan):
                    segment = len(lines)
                return
            wide = bool(self.axes[index] & self.cols)
            lines.insert(segment if wide else narrow, line)
            segment += 1
            narrow += 0 if wide else 1

        def loads_of(index: int) -> list[int]:
            found: list[int] = []
            stack = list(reversed(operands(self.program.nodes[index])))
            while stack:
                node = stack.pop()
                if isinstance(self.program.nodes[node], Load):
                    found.append(node)
                elif node not in self.text.names:
                    stack.extend(reversed(operands(self.program.nodes[node])))
            return found

        for index in nodes:
            if index in self.text.names and not isinstance(self.program.nodes[index], Load):
                for load in loads_of(index):
                    write(load)
                write(index)
        for index in nodes:  # what only stores read
            write(index)
        return lines

    def _definition(self, index: int) -> str:
        node = self.program.nodes[index]
        if isinstance(node, Load):
            return self._load(index, node)
        if isinstance(node, Gather):
            return self._gather(node)
        if isinstance(node, Reduce | Scan):
            return self._reduce(index, node)
        return self.text.write(index, definition=True).text

    def _load(self, index: int, node: Load) -> str:
        tensor = self.program.tensor(node.tensor)
        pointer = f"{stem(node.tensor)}_ptr"
        offset = self.offsets.offset(tensor, node.at)
        address = pointer if offset == "0" else f"{pointer} + {offset}"
        mask = self.mask(self.axes[index])
        fill = self.padding.fill.get(index, 0.0)
        other = "0.0" if fill == 0 else '-float("inf")' if fill < 0 else 'float("inf")'
        if tensor.dtype in ("int64", "bool"):
            other = "0"
        text = f"tl.load({address}, mask={mask}, other={other})" if mask else f"tl.load({address})"
        return text if tensor.dtype in ("int64", "bool") else f"{text}.to(tl.float32)"

    def _gather(self, node: Gather) -> str:
        """An indirect load. An index outside the axis (an ignored label) reads nothing and gives 0."""
        tensor = self.program.tensor(node.tensor)
        at = self.text.write(node.index).text
        axis = self.program.axis(node.axis)
        size = self.offsets.product((axis.name,))
        own = (self.axes[node.index] | (frozenset(tensor.axes) - {node.axis})) - {a for a, _ in node.at}
        inside = f"({at} >= 0) & ({at} < {size})"
        mask = self.mask(own)
        address = f"{stem(node.tensor)}_ptr + {self.offsets.offset(tensor, node.at, {node.axis: at})}"
        condition = f"{mask} & {inside}" if mask else inside
        text = f"tl.load({address}, mask={condition}, other=0.0)"
        return text if tensor.dtype in ("int64", "bool") else f"{text}.to(tl.float32)"

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
            return f"tl.{node.fn}({argument}, axis=0)"
        return f"tl.{node.fn}({argument}, {self.text.reduce_axis})"

    def nan_is_seen_elsewhere(self, index: int) -> bool:
        """Whether a NaN that tl.max drops still reaches the result: through the sum of exp(x - max)."""
        return any(own_maximum(self.program, node) == index for node in self.program.nodes)

    def stores(self, stores: Sequence[Store] | None = None) -> list[str]:
        lines: list[str] = []
        for store in self.program.stores if stores is None else stores:
            tensor = self.program.tensor(store.tensor)
            offset = self.offsets.offset(tensor, store.at)
            address = f"{stem(store.tensor)}_ptr" + ("" if offset == "0" else f" + {offset}")
            mask = self.mask(frozenset(tensor.axes))
            value = self._stored(store.value, tensor)
            lines.append(f"tl.store({address}, {value}{', mask=' + mask if mask else ''})")
        for scatter in self.program.scatters if stores is None else ():
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
        _ = ATOM
        return text.text

    def partial_stores(self) -> list[str]:
        """Scalars that each program adds a part to: one element of the buffer a program."""
        return [
            f"tl.store({stem(a.tensor)}_ptr + tl.program_id(0), {self.text.write(a.value).text})"
            for a in self.program.accumulates
        ]
