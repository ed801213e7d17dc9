"""Print one row program as a @triton.jit kernel. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from kernels.flat_sum import flat_sum
from kernels.kernel_offsets import parenthesised
from kernels.kernel_statements import Gradients, KernelStatements
from kernels.looped_row import looped_row
from kernels.passes.names import stem
from kernels.passes.program import group_axes
from kernels.quantity import Quantity
from kernels.read_again import first_read, read_again
from kernels.row_program import SPLITS, Load, Reduce, RowProgram, Tensor
from kernels.split_row import has_columns, reads_parts, split_row

INDENT = "    "
RUNTIME_SIZES = ("n_elements", "n_rows", "rows_per_program", "rows_per_group", "programs_per_group", SPLITS)


@dataclass
class KernelSource:
    """A printed kernel and what its launch must pass, in order."""

    text: str
    pointers: list[str]  # tensors
    symbols: dict[str, Quantity]  # run-time numbers that the host computes
    scalars: list[str]
    sizes: list[str]  # run-time integers: "n_elements", "n_rows", sizes of row axes
    constant_sizes: list[str]  # tl.constexpr: "n_cols", sizes of column axes
    axis_sizes: dict[str, str] = field(default_factory=dict)  # name of a size -> its axis
    helpers: set[str] = field(default_factory=set)
    constants: set[str] = field(default_factory=set)
    gradients: Gradients | None = None  # takes HAS_GRADIENTS
    reads_again: bool = False  # takes READ_AGAIN
    blocks: list[str] = field(default_factory=list)  # tl.constexpr: the block sizes that it takes
    takes_stages: bool = False  # takes NUM_STAGES
    staged: list[str] = field(default_factory=list)  # tensors whose rows or blocks are loaded ahead


class KernelPrinter(KernelStatements):
    """Prints a row program under a schedule: flat, tile, persistent_row, looped_row, split_row or row_block."""

    def __init__(
        self,
        program: RowProgram,
        schedule: str,
        name: str,
        doc: list[str],
        integers: frozenset[str],
        gradients: Gradients | None = None,
    ):
        super().__init__(program, schedule, gradients)
        self.name, self.doc = name, doc
        self.integers = integers  # scalars that stay integers

    def print(self) -> KernelSource:
        body = {
            "flat": lambda: flat_sum(self) if self.program.accumulates else self._flat(),
            "tile": self._tile,
            "persistent_row": self._persistent_row,
            "row_block": self._row_block,
            "looped_row": lambda: looped_row(self),
            "split_row": lambda: split_row(self),
        }[self.schedule]()
        scalars = [s for s in self.program.scalars if self._mentions(body, s)]
        if self.offsets.strided:
            body = [
                line + ".to(tl.int64)" if line.startswith("col_offsets = tl.arange") else line
                for line in body
            ]
            body = [
                line.replace("= tl.program_id(1) *", "= tl.program_id(1).to(tl.int64) *") for line in body
            ]
        # tl.cast takes a Python float too, as torch.compile hands it when it looks for what a kernel writes to
        pinned = [
            f"{s} = tl.cast({s}, tl.float32)" for s in (*scalars, *self.symbols) if s not in self.integers
        ]
        body = [*self._return_early(), *pinned, *body]
        # Sizes of row axes change from call to call (a sequence length): as constants each would compile anew.
        changing = [s for s, axis in self.offsets.axis_sizes.items() if axis not in self.cols]
        sizes = [s for s in (*RUNTIME_SIZES, *changing) if s in self.offsets.sizes]
        constants = [s for s in self.offsets.sizes if s not in sizes]
        takes_stages = any("NUM_STAGES" in line for line in body)
        lines = ["@triton.jit", f"def {self.name}("]
        lines += [f"{INDENT}{stem(t)}_ptr," for t in self.pointers]
        lines += [f"{INDENT}{s}," for s in (*scalars, *self.symbols, *sizes)]
        lines += [f"{INDENT}{s}: tl.constexpr," for s in constants]
        lines += [f"{INDENT}HAS_GRADIENTS: tl.constexpr,"] if self.gradients else []
        lines += [f"{INDENT}READ_AGAIN: tl.constexpr,"] if self.reads_again else []
        lines += [f"{INDENT}NUM_STAGES: tl.constexpr,"] if takes_stages else []
        lines += [f"{INDENT}{s}: tl.constexpr," for s in self._blocks()]
        lines.append("):")
        lines += [INDENT + line if line else "" for line in ['"""', *self.doc, '"""', *body]]
        return KernelSource(
            text="\n".join(lines),
            pointers=self.pointers,
            symbols=self.symbols,
            scalars=scalars,
            sizes=sizes,
            constant_sizes=constants,
            axis_sizes=self.offsets.axis_sizes,
            helpers=self.text.helpers,
            constants=self.text.constants,
            gradients=self.gradients,
            reads_again=self.reads_again,
            blocks=self._blocks(),
            takes_stages=takes_stages,
            staged=self.staged,
        )

    def _return_early(self) -> list[str]:
        if self.gradients != "found":
            return []
        tangent = next(t.name for t in self.program.tensors if t.kind == "tangent")
        return [
            "# The forward has written the gradient for an incoming gradient of 1.",
            "if HAS_GRADIENTS:",
            f"{INDENT}if tl.load({stem(tangent)}_ptr).to(tl.float32) == 1.0:",
            f"{INDENT * 2}return",
            "",
        ]

    def _blocks(self) -> list[str]:
        if self.schedule == "split_row":
            wanted = {"BLOCK_SPLITS": reads_parts(self.program), "BLOCK_SIZE": has_columns(self.program)}
            return [name for name, needed in wanted.items() if needed]
        return ["BLOCK_ROWS", "BLOCK_SIZE"] if self.two_d else ["BLOCK_SIZE"]

    @staticmethod
    def _mentions(lines: list[str], name: str) -> bool:
        return any(re.search(rf"\b{re.escape(name)}\b", line) for line in lines)

    def _flat(self) -> list[str]:
        self.offsets.sizes["n_elements"] = None
        return [
            "offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)",
            "mask = offsets < n_elements",
            "",
            *self.statements(range(len(self.program.nodes))),
            *self.stores(),
        ]

    def _tile(self) -> list[str]:
        body = [*self.statements(range(len(self.program.nodes))), *self.stores()]
        self.offsets.sizes["n_rows"] = self.offsets.sizes["n_cols"] = None
        return [
            "row_idx = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]",
            "col_offsets = tl.program_id(1) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)[None, :]",
            "row_mask = row_idx < n_rows",
            "col_mask = col_offsets < n_cols",
            "mask = row_mask & col_mask",
            "",
            *body,
        ]

    def _persistent_row(self) -> list[str]:
        own = self.statements(range(len(self.program.nodes)))
        final = [*self.stores(), *self.partial_stores()]
        body = [*read_again(self, own, final), *final]
        self.offsets.sizes["n_cols"] = None
        return [
            "row_idx = tl.program_id(0).to(tl.int64)",
            "col_offsets = tl.arange(0, BLOCK_SIZE)",
            "mask = col_offsets < n_cols",
            *first_read(self),
            "",
            *body,
        ]

    def _row_block(self) -> list[str]:
        nodes = range(len(self.program.nodes))
        before = [i for i in nodes if not self.axes[i] & self.rows]
        inside = [i for i in nodes if self.axes[i] & self.rows]
        hoisted = self.statements(before)
        own = self.statements(inside)
        looped = self.stores()
        self.staged = [
            n.tensor
            for i, n in enumerate(self.program.nodes)
            if isinstance(n, Load) and self.axes[i] & self.rows and self.axes[i] & self.cols
        ]
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
        looped = [*(own if self.tiled else read_again(self, own, looped)), *looped]
        self.offsets.sizes["rows_per_program"] = self.offsets.sizes["n_cols"] = None
        if group_axes(self.program):
            self.offsets.sizes["rows_per_group"] = self.offsets.sizes["programs_per_group"] = None
            bounds = [
                "group_start = (tl.program_id(0) // programs_per_group).to(tl.int64) * rows_per_group",
                "row_start = group_start + tl.program_id(0) % programs_per_group * rows_per_program",
                "row_end = tl.minimum(row_start + rows_per_program, group_start + rows_per_group)",
            ]
        else:
            self.offsets.sizes["n_rows"] = None
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
            *first_read(self),
            "",
            *hoisted,
            *accumulators,
            "for row_idx in tl.range(row_start, row_end, num_stages=NUM_STAGES):",
            *(INDENT + line for line in looped),
            "",
            *final,
        ]

    def _partial_offset(self, tensor: Tensor, at: tuple[tuple[str, int], ...]) -> str:
        """Where a program's partial sum goes: row `program_id` of a (programs, size) buffer."""
        kept = tensor.model_copy(
            update={"dims": tuple(tuple(a for a in dim if a not in self.rows) for dim in tensor.dims)}
        )
        own = self.offsets.offset(kept, at)
        size = self.offsets.product(kept.axes)
        if size == "1":
            return (
                "tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)"
                if self.tiled
                else "tl.program_id(0)"
            )
        start = f"tl.program_id(0).to(tl.int64) * {parenthesised(size)}"
        return start if own == "0" else f"{start} + {own}"
