"""Print one row program as a @triton.jit kernel. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from kernels.expressions import ATOM, KernelText, count_uses
from kernels.passes.names import stem, value_names
from kernels.passes.padding import choose_padding
from kernels.passes.program import group_axes
from kernels.quantity import Quantity
from kernels.row_program import (
    Cast,
    Const,
    Gather,
    Index,
    Load,
    Map,
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
INDENT = "    "
RUNTIME_SIZES = ("n_elements", "n_rows", "rows_per_program", "rows_per_group", "programs_per_group")


@dataclass
class KernelSource:
    """A printed kernel and what its launch must pass, in order."""

    text: str
    pointers: list[str]  # tensors
    symbols: dict[str, Quantity]  # run-time numbers that the host computes
    scalars: list[str]
    sizes: list[str]  # "n_elements", "n_rows", "n_cols", names of axis sizes
    axis_sizes: dict[str, str] = field(default_factory=dict)  # name of a size -> its axis
    helpers: set[str] = field(default_factory=set)
    constants: set[str] = field(default_factory=set)


class KernelPrinter:
    """Prints a row program under a schedule: flat, tile, persistent_row or row_block."""

    def __init__(
        self, program: RowProgram, schedule: str, name: str, doc: list[str], integers: frozenset[str]
    ):
        self.program, self.schedule, self.name, self.doc = program, schedule, name, doc
        self.integers = integers  # scalars that stay integers
        self.axes = program.node_axes()
        self.rows, self.cols = set(program.rows), set(program.cols)
        self.two_d = schedule == "tile"
        self.tiled = schedule == "row_block" and tiles_columns(program)
        self.sizes: dict[str, None] = {}
        self.axis_sizes: dict[str, str] = {}
        self.strided = False  # columns are not neighbours in memory: their offsets need 64 bits
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
                self.sizes[name] = None
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
            if isinstance(node, Load | Gather | Reduce | Scan) or counts[index] > 1 or len(self.text.write(index).text) > INLINE_WIDTH or self._changes_place(index):
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

    # --- offsets ---

    def _offset(
        self, tensor: Tensor, at: tuple[tuple[str, int], ...], given: dict[str, str] | None = None
    ) -> str:
        """The element offset of a tensor inside this kernel, as text. `given`: axes whose coordinate is a value."""
        if self.schedule == "flat":
            return "offsets" if tensor.axes else "0"
        given = given or {}
        fixed = dict(at)
        axes = list(tensor.axes)
        terms: list[str] = []
        position = 0
        while position < len(axes):
            axis = axes[position]
            if axis in given:
                terms.append(_times(given[axis], self._stride(axes[position + 1 :])))
                position += 1
                continue
            if self.program.axis(axis).unroll:
                stride = self._stride(axes[position + 1 :])
                which = fixed.get(axis, 0)
                if which:
                    terms.append(stride if which == 1 and stride != "1" else _times(str(which), stride))
                position += 1
                continue
            order = self.program.rows if axis in self.rows else self.program.cols
            start = order.index(axis)
            length = 1
            while (
                position + length < len(axes)
                and start + length < len(order)
                and axes[position + length] == order[start + length]
                and axes[position + length] not in given
            ):
                length += 1
            index = self._run_index(order, start, length, "row_idx" if axis in self.rows else "col_offsets")
            stride = self._stride(axes[position + length :])
            if axis in self.cols and (stride != "1" or index != "col_offsets"):
                self.strided = True
            terms.append(_times(index, stride))
            position += length
        return " + ".join(terms) or "0"

    def _run_index(self, order: tuple[str, ...], start: int, length: int, whole: str) -> str:
        """The coordinate on a run of consecutive axes, taken out of the flat index over all of them."""
        text = whole
        inner = order[start + length :]
        if inner:
            text = f"{text} // {_parenthesised(self._product(inner))}"
        if start:
            text = f"{'(' + text + ')' if inner else text} % {_parenthesised(self._product(order[start : start + length]))}"
        return f"({text})" if text != whole else text

    def _stride(self, axes: list[str]) -> str:
        return self._product(tuple(axes))

    def _product(self, axes: tuple[str, ...]) -> str:
        """The number of elements on some axes, as text; registers the sizes it needs."""
        number = 1
        names: list[str] = []
        rest = list(axes)
        cols = list(self.program.cols)
        while rest:
            if cols and rest[: len(cols)] == cols:
                self.sizes["n_cols"] = None
                names.append("n_cols")
                rest = rest[len(cols) :]
                continue
            axis = self.program.axis(rest.pop(0))
            if axis.unroll:
                number *= axis.unroll
            else:
                names.append(self._size_name(axis.name))
        if number != 1:
            names.insert(0, str(number))
        return " * ".join(names) or "1"

    def _size_name(self, axis: str) -> str:
        """The argument that holds an axis size. n_cols and n_rows are the block's and the grid's, whatever their axes."""
        if self.program.rows == (axis,):
            name = "n_rows"
        else:
            name = axis if axis.startswith("n_") else f"n_{axis}"
            name = f"{name}_axis" if name in ("n_cols", "n_rows") else name
            self.axis_sizes[name] = axis
        self.sizes[name] = None
        return name

    # --- printing ---

    def print(self) -> KernelSource:
        body = {
            "flat": self._flat,
            "tile": self._tile,
            "persistent_row": self._persistent_row,
            "row_block": self._row_block,
            "looped_row": self._looped_row,
        }[self.schedule]()
        scalars = [s for s in self.program.scalars if self._mentions(body, s)]
        if self.strided:
            body = [
                line + ".to(tl.int64)" if line.startswith("col_offsets = tl.arange") else line
                for line in body
            ]
            body = [
                line.replace("= tl.program_id(1) *", "= tl.program_id(1).to(tl.int64) *") for line in body
            ]
        pinned = [f"{s} = {s}.to(tl.float32)" for s in (*scalars, *self.symbols) if s not in self.integers]
        body = pinned + body
        sizes = [s for s in RUNTIME_SIZES if s in self.sizes]
        constants = [s for s in self.sizes if s not in sizes]
        lines = ["@triton.jit", f"def {self.name}("]
        lines += [f"{INDENT}{stem(t)}_ptr," for t in self.pointers]
        lines += [f"{INDENT}{s}," for s in (*scalars, *self.symbols, *sizes)]
        lines += [f"{INDENT}{s}: tl.constexpr," for s in constants]
        lines += [f"{INDENT}{s}: tl.constexpr," for s in self._blocks()]
        lines.append("):")
        lines += [INDENT + line if line else "" for line in ['"""', *self.doc, '"""', *body]]
        return KernelSource(
            text="\n".join(lines),
            pointers=self.pointers,
            symbols=self.symbols,
            scalars=scalars,
            sizes=[*sizes, *constants],
            axis_sizes=self.axis_sizes,
            helpers=self.text.helpers,
            constants=self.text.constants,
        )

    def _blocks(self) -> list[str]:
        return ["BLOCK_ROWS", "BLOCK_SIZE"] if self.two_d else ["BLOCK_SIZE"]

    @staticmethod
    def _mentions(lines: list[str], name: str) -> bool:
        import re

        return any(re.search(rf"\b{re.escape(name)}\b", line) for line in lines)

    def _flat(self) -> list[str]:
        self.sizes["n_elements"] = None
        return [
            "offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)",
            "mask = offsets < n_elements",
            "",
            *self._statements(range(len(self.program.nodes))),
            *self._stores(),
            *self._partial_stores(),
        ]

    def _tile(self) -> list[str]:
        body = [*self._statements(range(len(self.program.nodes))), *self._stores()]
        self.sizes["n_rows"] = self.sizes["n_cols"] = None
        return [
            "row_idx = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]",
            "col_offsets = tl.program_id(1) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)[None, :]",
            "row_mask = row_idx < n_rows",
            "col_mask = col_offsets < n_cols",
            "mask = row_mask & col_mask",
            "",
            *body,
        ]

    def _partial_stores(self) -> list[str]:
        """Scalars that each program adds a part to: one element of the buffer a program."""
        return [
            f"tl.store({stem(a.tensor)}_ptr + tl.program_id(0), {self.text.write(a.value).text})"
            for a in self.program.accumulates
        ]

    def _persistent_row(self) -> list[str]:
        body = [*self._statements(range(len(self.program.nodes))), *self._stores(), *self._partial_stores()]
        self.sizes["n_cols"] = None
        return [
            "row_idx = tl.program_id(0).to(tl.int64)",
            "col_offsets = tl.arange(0, BLOCK_SIZE)",
            "mask = col_offsets < n_cols",
            "",
            *body,
        ]

    def _looped_row(self) -> list[str]:
        """One loop over the columns for each level of reductions; values are computed again in each, rows stay."""
        nodes = self.program.nodes
        levels, online = loop_levels(self.program)
        self.sizes["n_cols"] = None
        lines = ["row_idx = tl.program_id(0).to(tl.int64)", ""]
        wide_stores = [s for s in self.program.stores if set(self.program.tensor(s.tensor).axes) & self.cols]
        for level in range(max(levels, default=0) + 1):
            reduces = [i for i, n in enumerate(nodes) if isinstance(n, Reduce) and levels[i] == level]
            stores = [s for s in wide_stores if self._available(s.value, levels) == level]
            narrow = [
                i
                for i in range(len(nodes))
                if not self.axes[i] & self.cols and not isinstance(nodes[i], Reduce)
            ]
            lines += self._statements([i for i in narrow if levels[i] == level])
            if reduces or stores:
                lines += [*self._column_loop(reduces, stores, online), ""]
        narrow_stores = [s for s in self.program.stores if s not in wide_stores]
        return [*lines, *self._stores(narrow_stores), *self._partial_stores()]

    def _column_loop(self, reduces: list[int], stores: list[Store], online: dict[int, int]) -> list[str]:
        """A loop that accumulates some reductions, a vector each, and what follows it. `online`: sum -> its maximum."""
        nodes = self.program.nodes
        before: list[str] = []
        inside: list[str] = []
        after: list[str] = []
        roots = [nodes[i].arg for i in reduces if i not in online]  # type: ignore[union-attr]
        for i in reduces:
            node = nodes[i]
            assert isinstance(node, Reduce)
            name = self.text.names[i]
            argument = self._masked_argument(i, node)
            if i in online.values():
                continue  # kept together with its sum, below
            if i in online:
                largest = self.text.names[online[i]]
                value = self._masked_argument(online[i], nodes[online[i]])  # type: ignore[arg-type]
                self.text.constants.add("LOWEST")
                before.append(f"{largest}_acc = tl.full((BLOCK_SIZE,), LOWEST, dtype=tl.float32)")
                before.append(f"{name}_acc = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)")
                inside.append(f"{largest}_new = tl.maximum({largest}_acc, {value})")
                rescaled = f"{name}_acc * tl.exp({largest}_acc - {largest}_new)"
                inside.append(f"{name}_acc = {rescaled} + tl.exp({value} - {largest}_new)")
                inside.append(f"{largest}_acc = {largest}_new")
                after.append(f"{largest} = tl.max({largest}_acc, axis=0)")
                after.append(f"{name} = tl.sum({name}_acc * tl.exp({largest}_acc - {largest}), axis=0)")
                continue
            if node.fn == "sum":
                before.append(f"{name}_acc = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)")
                inside.append(f"{name}_acc += {argument}")
            else:
                sign = "-" if node.fn == "max" else ""
                before.append(f'{name}_acc = tl.full((BLOCK_SIZE,), {sign}float("inf"), dtype=tl.float32)')
                nan = "" if self._nan_is_seen_elsewhere(i) else ", propagate_nan=tl.PropagateNan.ALL"
                inside.append(f"{name}_acc = tl.{node.fn}imum({name}_acc, {argument}{nan})")
            after.append(f"{name} = {self._reduced(i, node, f'{name}_acc')}")
        needed = self._wide_ancestors(roots + [s.value for s in stores])
        body = [
            "col_offsets = start + tl.arange(0, BLOCK_SIZE)",
            "mask = col_offsets < n_cols",
            *self._statements(sorted(needed)),
            *inside,
            *self._stores(stores),
        ]
        return [
            *before,
            "for start in range(0, n_cols, BLOCK_SIZE):",
            *(INDENT + line for line in body),
            *after,
        ]

    def _available(self, node: int, levels: list[int]) -> int:
        return levels[node] + (1 if isinstance(self.program.nodes[node], Reduce) else 0)

    def _wide_ancestors(self, roots: list[int]) -> set[int]:
        """Values of the columns that the roots are made of: what a loop computes again."""
        found: set[int] = set()
        stack = list(roots)
        while stack:
            node = stack.pop()
            if node in found or not self.axes[node] & self.cols:
                continue
            found.add(node)
            stack.extend(operands(self.program.nodes[node]))
        return found

    def _row_block(self) -> list[str]:
        nodes = range(len(self.program.nodes))
        before = [i for i in nodes if not self.axes[i] & self.rows]
        inside = [i for i in nodes if self.axes[i] & self.rows]
        hoisted = self._statements(before)
        looped = [*self._statements(inside), *self._stores()]
        accumulators: list[str] = []
        final: list[str] = []
        for write in self.program.accumulates:
            tensor = self.program.tensor(write.tensor)
            suffix = "".join(f"_{c}" for _, c in write.at)
            name = f"{write.tensor}{suffix}_acc"
            vector = bool(set(tensor.axes) & self.cols)
            value, total = self.text.write(write.value).text, name
            node = self.program.nodes[write.value]
            if self.tiled and isinstance(node, Reduce):
                # One reduction at the end instead of one a row.
                value = self.text.write(node.arg).text
                masked = f"tl.where(mask, {name}, 0.0)" if write.value in self.padding.masked else name
                total = f"tl.sum({masked}, axis=0)"
            block = vector or (self.tiled and isinstance(node, Reduce))
            accumulators.append(
                f"{name} = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)" if block else f"{name} = 0.0"
            )
            looped.append(f"{name} += {value}")
            target = f"{stem(write.tensor)}_ptr + {self._partial_offset(tensor, write.at)}"
            final.append(f"tl.store({target}, {total}{', mask=mask' if vector else ''})")
        self.sizes["rows_per_program"] = self.sizes["n_cols"] = None
        if group_axes(self.program):
            self.sizes["rows_per_group"] = self.sizes["programs_per_group"] = None
            bounds = [
                "group_start = (tl.program_id(0) // programs_per_group).to(tl.int64) * rows_per_group",
                "row_start = group_start + tl.program_id(0) % programs_per_group * rows_per_program",
                "row_end = tl.minimum(row_start + rows_per_program, group_start + rows_per_group)",
            ]
        else:
            self.sizes["n_rows"] = None
            bounds = [
                "row_start = tl.program_id(0).to(tl.int64) * rows_per_program",
                "row_end = tl.minimum(row_start + rows_per_program, n_rows)",
            ]
        return [
            *bounds,
            "col_offsets = "
            + (
                "tl.program_id(1) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)"
                if self.tiled
                else "tl.arange(0, BLOCK_SIZE)"
            ),
            "mask = col_offsets < n_cols",
            "",
            *hoisted,
            *accumulators,
            "for row_idx in range(row_start, row_end):",
            *(INDENT + line for line in looped),
            "",
            *final,
        ]

    def _partial_offset(self, tensor: Tensor, at: tuple[tuple[str, int], ...]) -> str:
        """Where a program's partial sum goes: row `program_id` of a (programs, size) buffer."""
        kept = tensor.model_copy(
            update={"dims": tuple(tuple(a for a in dim if a not in self.rows) for dim in tensor.dims)}
        )
        own = self._offset(kept, at)
        size = self._product(kept.axes)
        if size == "1":
            return (
                "tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)"
                if self.tiled
                else "tl.program_id(0)"
            )
        start = f"tl.program_id(0).to(tl.int64) * {_parenthesised(size)}"
        return start if own == "0" else f"{start} + {own}"

    def _mask(self, axes: frozenset[str]) -> str:
        """The mask of an access that varies over these axes; "" when it needs none."""
        row, col = bool(axes & self.rows), bool(axes & self.cols)
        if self.schedule == "flat":
            return "mask" if axes else ""
        if self.two_d:
            return "mask" if row and col else "row_mask" if row else "col_mask" if col else ""
        return "mask" if col else ""

    def _statements(self, nodes: range | list[int]) -> list[str]:
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
        offset = self._offset(tensor, node.at)
        address = pointer if offset == "0" else f"{pointer} + {offset}"
        mask = self._mask(self.axes[index])
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
        size = self._product((axis.name,))
        own = (self.axes[node.index] | (frozenset(tensor.axes) - {node.axis})) - {a for a, _ in node.at}
        inside = f"({at} >= 0) & ({at} < {size})"
        mask = self._mask(own)
        address = f"{stem(node.tensor)}_ptr + {self._offset(tensor, node.at, {node.axis: at})}"
        condition = f"{mask} & {inside}" if mask else inside
        text = f"tl.load({address}, mask={condition}, other=0.0)"
        return text if tensor.dtype in ("int64", "bool") else f"{text}.to(tl.float32)"

    def _masked_argument(self, index: int, node: Reduce | Scan) -> str:
        argument = self.text.write(node.arg).text
        if index in self.padding.masked:
            identity = {"sum": "0.0", "prod": "1.0", "max": '-float("inf")', "min": 'float("inf")'}
            argument = f"tl.where(mask, {argument}, {identity[node.fn.removeprefix('arg')]})"
        return argument

    def _reduce(self, index: int, node: Reduce | Scan) -> str:
        argument = self._masked_argument(index, node)
        if isinstance(node, Scan):
            reverse = ", reverse=True" if node.reverse else ""
            axis = "axis=1" if self.two_d else "axis=0"
            return f"tl.cum{node.fn}({argument}, {axis}{reverse})"
        return self._reduced(index, node, argument)

    def _reduced(self, index: int, node: Reduce, argument: str) -> str:
        if node.fn in ("max", "min") and not self._nan_is_seen_elsewhere(index):
            helper = "larger" if node.fn == "max" else "smaller"
            self.text.helpers.add(helper)
            return f"tl.reduce({argument}, 0, {helper})"
        if node.fn.startswith("arg"):
            return f"tl.{node.fn}({argument}, axis=0)"
        return f"tl.{node.fn}({argument}, {self.text.reduce_axis})"

    def _nan_is_seen_elsewhere(self, index: int) -> bool:
        """Whether a NaN that tl.max drops still reaches the result: through the sum of exp(x - max)."""
        return any(_own_maximum(self.program, node) == index for node in self.program.nodes)

    def _stores(self, stores: Sequence[Store] | None = None) -> list[str]:
        lines: list[str] = []
        for store in self.program.stores if stores is None else stores:
            tensor = self.program.tensor(store.tensor)
            offset = self._offset(tensor, store.at)
            address = f"{stem(store.tensor)}_ptr" + ("" if offset == "0" else f" + {offset}")
            mask = self._mask(frozenset(tensor.axes))
            value = self._stored(store.value, tensor)
            lines.append(f"tl.store({address}, {value}{', mask=' + mask if mask else ''})")
        for scatter in self.program.scatters if stores is None else ():
            tensor = self.program.tensor(scatter.tensor)
            offset = self._offset(tensor, (), {scatter.axis: self.text.write(scatter.index).at(ATOM)})
            index = self.text.write(scatter.index).text
            mask = self._mask(self.axes[scatter.value] | self.axes[scatter.index])
            mask = f"{mask} & ({index} >= 0) & ({index} < {self._product((scatter.axis,))})"
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


def loop_levels(program: RowProgram) -> tuple[list[int], dict[int, int]]:
    """For each node the loop that computes it, and the sums that run online: sum of exp(x - max) -> max.

    Whatever needs a reduction comes one loop later. A sum of exponentials shares the loop of its own maximum.
    """
    levels: list[int] = []
    online: dict[int, int] = {}
    for index, node in enumerate(program.nodes):
        largest = _own_maximum(program, node)
        if largest is not None and largest not in online.values():
            online[index] = largest
            levels.append(levels[largest])
            continue
        ready = [levels[o] + (1 if isinstance(program.nodes[o], Reduce) else 0) for o in operands(node)]
        levels.append(max(ready, default=0))
    return levels, online


def _own_maximum(program: RowProgram, node: object) -> int | None:
    """The maximum m of `sum(exp(x - m))` when m is the maximum of that x."""
    if not isinstance(node, Reduce) or node.fn != "sum":
        return None
    inner = program.nodes[node.arg]
    if not isinstance(inner, Map) or inner.fn != "exp":
        return None
    shifted = program.nodes[inner.args[0]]
    if not isinstance(shifted, Map) or shifted.fn != "sub":
        return None
    value, largest = shifted.args
    found = program.nodes[largest]
    return largest if isinstance(found, Reduce) and found.fn == "max" and found.arg == value else None


def _times(one: str, other: str) -> str:
    if other == "1":
        return one
    if one == "1":
        return other
    return f"{one} * {_parenthesised(other)}"


def _parenthesised(text: str) -> str:
    return f"({text})" if " " in text else text
