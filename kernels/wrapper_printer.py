"""Print a wrapper: it allocates, launches the kernels of one direction, and adds up their partial sums. Pure."""

from __future__ import annotations

import math

from kernels.passes.names import stem
from kernels.passes.program import group_axes
from kernels.quantity import Quantity
from kernels.row_program import SPLITS, Gather, Index, RowProgram
from kernels.schedules import (
    COLUMN_BLOCK,
    COLUMN_PROGRAMS,
    COLUMN_WARPS,
    COLUMNS_IN_FLIGHT,
    FEW_WARPS,
    FEW_WARPS_COLUMNS,
    FEWER_WARPS,
    FEWER_WARPS_COLUMNS,
    FLAT_SUM_PROGRAMS,
    READ_AGAIN_COLUMNS,
    READ_AGAIN_MANY_COLUMNS,
    SPLIT_BLOCK,
    SPLIT_WARPS,
    TILE_BLOCK,
    TILE_WARPS,
    few_warps,
    flat_block,
    many_reductions,
    tile_rows,
    tiles_columns,
)
from kernels.wrapper_host_steps import WrapperHostSteps
from kernels.wrapper_loops import loop_settings, loop_stages
from kernels.wrapper_sums import WrapperSums
from kernels.wrapper_tensors import PrintedStep

INDENT = "    "


class WrapperPrinter(WrapperSums, WrapperHostSteps):
    """Prints the wrapper of one direction: allocations, launches, and the host steps between them."""

    def print(self) -> str:
        lines: list[str] = []
        if self.style.utils_module is None:
            lines += [f"{stem(n)} = {stem(n)}.contiguous()" for n in self.given]
        lines += [] if self.backward else self._divisible()
        self.known = {}
        self.split_sizes: list[str] = []
        for step in self.steps:
            lines += self._kernel_step(step) if step.source else self._host_step(step)
        lines.append(f"return {self._result_names()}")
        return "\n".join([f"def {self.definition()}:", *(INDENT + line if line else "" for line in lines)])

    def _divisible(self) -> list[str]:
        """What a size must be a multiple of, where the kernel takes parts of equal size: else a part would be cut off."""
        parts: dict[str, int] = {}
        for size in self.axes.values():
            share = 1 / size.coef if size.coef else 1
            if len(size.factors) == 1 and size.factors[0].power == 1 and share > 1 and share == int(share):
                name = size.factors[0].atom.name
                parts[name] = math.lcm(parts.get(name, 1), int(share))
        lines: list[str] = []
        for name, multiple in parts.items():
            text = self.shapes.text(Quantity.of(name))
            lines.append(f"if {text} % {multiple}:")
            lines.append(
                f'{INDENT}raise ValueError(f"{name} must be a multiple of {multiple}, and is {{{text}}}")'
            )
        return lines

    def _result_names(self) -> str:
        return ", ".join(stem(t.name) for t in self.results())

    # --- launches ---

    def _kernel_step(self, step: PrintedStep) -> list[str]:
        program, source = step.program, step.printed
        if step.schedule == "split_row":
            return self._split_step(step)
        main = stem(self.main(program).name)
        accumulated = list(dict.fromkeys(a.tensor for a in program.accumulates))
        scattered = list(dict.fromkeys(s.tensor for s in program.scatters))
        lines: list[str] = []
        if step.schedule == "flat":
            lines.append(f"n_elements = {main}.numel()")
            self.known = {self.shapes.size((*program.rows, *program.cols)).text(): "n_elements"}
            count, grid = "n_elements", "triton.cdiv(n_elements, BLOCK_SIZE),"
            idle = self.backward and self.derivation.gradient_in_forward
            settings = ["BLOCK_SIZE, num_warps = {}, {}".format(*flat_block(program, idle=idle))]
            if accumulated:
                most = f"{FLAT_SUM_PROGRAMS} * get_sm_count({main}.device)"
                settings.append(f"n_programs = min(triton.cdiv(n_elements, BLOCK_SIZE), {most})")
                grid = "n_programs,"
            programs = "n_programs"
        else:
            lines += self._grid_sizes(program)
            count, grid, programs = "n_rows * n_cols", "n_rows,", "n_rows"
            settings = ["BLOCK_SIZE, num_warps = calculate_settings(n_cols)"]
            if step.schedule == "persistent_row" and few_warps(program):
                most = f"{FEW_WARPS}"
                if many_reductions(program):
                    most = f"{FEWER_WARPS} if BLOCK_SIZE <= {FEWER_WARPS_COLUMNS} else {FEW_WARPS}"
                settings += [
                    f"if BLOCK_SIZE <= {FEW_WARPS_COLUMNS}:",
                    f"{INDENT}num_warps = min(num_warps, {most})  # each reduction of a row waits for all of them",
                ]
            if step.schedule == "looped_row":
                settings = loop_settings(program, source)
            if step.schedule == "tile":
                settings = [
                    f"BLOCK_SIZE = min(triton.next_power_of_2(n_cols), {TILE_BLOCK})",
                    f"BLOCK_ROWS = min({TILE_BLOCK * tile_rows(program)} // BLOCK_SIZE, triton.next_power_of_2(n_rows))",
                    f"num_warps = {TILE_WARPS}",
                ]
                grid = "triton.cdiv(n_rows, BLOCK_ROWS), triton.cdiv(n_cols, BLOCK_SIZE)"
            elif step.schedule == "row_block":
                groups = group_axes(program)
                tiled = tiles_columns(program)
                if tiled:
                    settings = []
                    lines.append(
                        f"BLOCK_SIZE, num_warps = min(triton.next_power_of_2(max(n_cols, 1)), {COLUMN_BLOCK}), {COLUMN_WARPS}"
                    )
                    lines.append("n_tiles = triton.cdiv(n_cols, BLOCK_SIZE)")
                wanted = f"max(1, {COLUMNS_IN_FLIGHT} // max(n_cols, 1)) * get_sm_count({main}.device)"
                if tiled:
                    wanted = f"triton.cdiv({COLUMN_PROGRAMS} * get_sm_count({main}.device), n_tiles)"
                grid, programs = "n_programs,", "n_programs"
                if groups:
                    total = self.shapes.size(groups)
                    lines.append(f"n_groups = {self.size(total)}")
                    settings += [
                        "rows_per_group = n_rows // n_groups",
                        f"programs_per_group = max(1, min(triton.cdiv({wanted}, n_groups), rows_per_group))",
                        "rows_per_program = triton.cdiv(rows_per_group, programs_per_group)",
                    ]
                    lines.append("programs_per_group = 1")
                    programs = "n_programs"
                    settings.append("n_programs = n_groups * programs_per_group")
                else:
                    lines.append(f"n_programs = min({wanted}, n_rows)")
                    settings.append("rows_per_program = triton.cdiv(n_rows, n_programs)")
                if tiled:
                    grid = "n_programs, n_tiles"
        if self._written_without_columns(step):
            count, settings = "n_rows", [x.replace("(n_cols)", "(max(n_cols, 1))") for x in settings]
        allocations = self._allocations(program)
        allocations += [
            f"_{stem(n)} = torch.zeros({self.shape(self.tensors[n])}, dtype=torch.float32, device={main}.device)"
            for n in scattered
        ]
        rounded = [f"{stem(n)} = _{stem(n)}{self.to_result(self.tensors[n])}" for n in scattered]
        for name, axis in source.axis_sizes.items():
            settings.insert(0, f"{name} = {self.size(self.axes[axis])}")
        call = self._call(step, grid, main)
        if not accumulated:
            if len(self.steps) == 1 and not scattered:
                guard = [f"if {count} == 0:", f"{INDENT}return {self._result_names()}"]
                return [*allocations[:0], *self._ordered(allocations, lines), *guard, *settings, *call]
            return [
                *lines,
                *allocations,
                f"if {count} > 0:",
                *(INDENT + x for x in (*settings, *call)),
                *rounded,
            ]
        buffers, sums = self._partials(step, accumulated, main, programs)
        if step.schedule == "row_block" and group_axes(program):
            # The number of programs decides the buffer: settings come first.
            body = [*lines[:-1], *allocations]
            zero = [
                f"if {count} == 0:",
                *(INDENT + x for x in self._zeros(accumulated, main)),
                f"{INDENT}return {self._result_names()}",
            ]
            return [*body, *zero, *settings, *buffers, *call, *sums]
        if step.schedule == "flat":
            settings, lines = [], [*lines, *settings]
        return [
            *lines,
            *allocations,
            *buffers,
            f"if {count} > 0:",
            *(INDENT + x for x in (*settings, *call)),
            *sums,
        ]

    def _written_without_columns(self, step: PrintedStep) -> bool:
        """Whether rows of no columns have a value too, as the sum of nothing: what the kernel writes is as long as there are rows."""
        program = step.program
        if step.schedule not in ("persistent_row", "looped_row") or any(
            isinstance(n, Index | Gather) for n in program.nodes
        ):
            return False
        results = [self.tensors[s.tensor] for s in program.stores]
        return any(t.kind in ("output", "gradient") and not set(t.axes) & set(program.cols) for t in results)

    def _split_step(self, step: PrintedStep) -> list[str]:
        """A launch over parts of rows. The sizes are those of the kernel before it, when that had parts too."""
        program = step.program
        main = stem(self.main(program).name)
        columns = "BLOCK_SIZE" in step.printed.blocks
        lines = self._grid_sizes(program)
        if lines != self.split_sizes:
            self.split_sizes = lines
            lines = [
                *lines,
                f"BLOCK_SIZE, num_warps = min(triton.next_power_of_2(max(n_cols, 1)), {SPLIT_BLOCK}), {SPLIT_WARPS}",
                f"n_splits = split_count(n_rows, n_cols, BLOCK_SIZE, {main}.device)",
            ]
        else:
            lines = []
        self.known[SPLITS] = SPLITS
        accumulated = list(dict.fromkeys(a.tensor for a in program.accumulates))
        buffers, sums = self._partials(step, accumulated, main, "n_rows")
        settings = [
            f"{name} = {self.size(self.axes[axis])}" for name, axis in step.printed.axis_sizes.items()
        ]
        call = self._call(step, "n_rows, n_splits" if columns else "n_rows,", main)
        return [
            *lines,
            *self._allocations(program),
            *buffers,
            "if n_rows * n_cols > 0:",
            *(INDENT + line for line in (*settings, *call)),
            *sums,
        ]

    def _allocations(self, program: RowProgram) -> list[str]:
        """What the kernel stores; a gradient in the forward only where wanted, in the backward where not yet there."""
        plain = {
            n: f"{stem(n)} = {self.empty(self.tensors[n], program)}"
            for n in dict.fromkeys(s.tensor for s in program.stores)
        }
        wanted = self.optional_gradients()
        optional = [n for n in wanted if n in plain]
        lines = [text for n, text in plain.items() if n not in optional]
        if not self.backward:
            return lines + [f"{plain[n]} if has_gradients else None" for n in optional]
        if wanted and program is self.steps[0].program:
            lines.append(f"has_gradients = {stem(wanted[0])} is not None")
        if optional:
            lines += ["if not has_gradients:", *(INDENT + plain[n] for n in optional)]
        return lines

    @staticmethod
    def _ordered(allocations: list[str], lines: list[str]) -> list[str]:
        """Results are allocated first, unless their shapes need the sizes."""
        early = [a for a in allocations if "n_rows" not in a and "n_cols" not in a]
        return [*early, *lines, *(a for a in allocations if a not in early)]

    def _zeros(self, accumulated: list[str], main: str) -> list[str]:
        return [
            f"{stem(n)} = torch.zeros({self.shape(self.tensors[n])}, dtype={self.result_dtype(self.tensors[n])}, device={main}.device)"
            for n in accumulated
        ]

    def _grid_sizes(self, program: RowProgram) -> list[str]:
        rows, cols = self.shapes.size(program.rows), self.shapes.size(program.cols)
        # Shapes are read afresh: a variable of an earlier kernel may mean another size.
        self.known = {}
        lines = [f"n_cols = {self.shapes.text(cols)}", f"n_rows = {self._rows(program, rows)}"]
        self.known = {rows.text(): "n_rows", cols.text(): "n_cols"}
        return lines

    def _rows(self, program: RowProgram, rows: Quantity) -> str:
        if not program.rows:
            return "1"
        for tensor in self.shapes.tensors:
            lead = 0
            axes: list[str] = []
            for dim in tensor.dims:
                if axes == list(program.rows):
                    break
                axes += list(dim)
                lead += 1
            if axes == list(program.rows):
                name = stem(tensor.name)
                if lead == len(tensor.dims):
                    return f"{name}.numel()"
                return f"{name}.shape[:{lead - len(tensor.dims)}].numel()"
        return self.shapes.text(rows)

    def _call(self, step: PrintedStep, grid: str, main: str) -> list[str]:
        source = step.printed
        accumulated = {w.tensor for w in (*step.program.accumulates, *step.program.scatters)}
        call = [f"{step.kernel}[({grid})]("]
        call += [f"{INDENT}{'_' if n in accumulated else ''}{stem(n)}," for n in source.pointers]
        call += [f"{INDENT}{self._scalar(s)}," for s in source.scalars]
        call += [f"{INDENT}{self.shapes.number(q)}," for q in source.symbols.values()]
        call += [f"{INDENT}{s}," for s in source.sizes]
        call += [f"{INDENT}{s}={s}," for s in source.constant_sizes]
        if step.schedule == "tile":
            call.append(f"{INDENT}BLOCK_ROWS=BLOCK_ROWS,")
        if source.gradients:
            call.append(f"{INDENT}HAS_GRADIENTS=has_gradients,")
        if source.reads_again:
            call.append(f"{INDENT}READ_AGAIN=BLOCK_SIZE >= {self._again(step.program)},")
        if source.takes_stages:
            call.append(f"{INDENT}NUM_STAGES={self._stages(step)},")
        if "BLOCK_SPLITS" in source.blocks:
            call.append(f"{INDENT}BLOCK_SPLITS=triton.next_power_of_2(n_splits),")
        call += [f"{INDENT}BLOCK_SIZE=BLOCK_SIZE,"] if "BLOCK_SIZE" in source.blocks else []
        call += [f"{INDENT}num_warps=num_warps,", ")"]
        if self.style.device_context:
            call = [f"with device_context({main}.device):", *(INDENT + line for line in call)]
        return call

    @staticmethod
    def _again(program: RowProgram) -> int:
        """From how many columns on a row is read twice."""
        return READ_AGAIN_MANY_COLUMNS if many_reductions(program) else READ_AGAIN_COLUMNS

    def _stages(self, step: PrintedStep) -> str:
        """How many rows or blocks are under way at once: as many as fit, and one where they are read twice instead."""
        source = step.printed
        sizes = ", ".join(["BLOCK_SIZE", *(f"{stem(n)}.element_size()" for n in source.staged)])
        stages = f"pipeline_stages({sizes})"
        if step.schedule == "looped_row":
            return loop_stages(step.program, stages)
        return (
            f"1 if BLOCK_SIZE >= {self._again(step.program)} else {stages}" if source.reads_again else stages
        )

    def _scalar(self, name: str) -> str:
        spec = next(s for s in self.derivation.op.scalars if s.name == name)
        return (
            name if isinstance(spec.default, int) and not isinstance(spec.default, bool) else f"float({name})"
        )
