"""Print the host side of an op: the wrappers that allocate and launch, and the autograd Function. Pure."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from kernels.derivation import Derivation, Unsupported
from kernels.expressions import ATOM, Text
from kernels.host_text import HostText
from kernels.kernel_printer import RUNTIME_SIZES, KernelSource
from kernels.module_style import ModuleStyle
from kernels.op_spec import OpSpec, ScalarSpec
from kernels.passes.lower import ROWS
from kernels.passes.names import stem
from kernels.passes.program import group_axes
from kernels.quantity import Quantity, number_text
from kernels.row_program import RowProgram, Tensor
from kernels.schedules import (
    COLUMN_BLOCK,
    COLUMN_PROGRAMS,
    COLUMN_WARPS,
    COLUMNS_IN_FLIGHT,
    LOOP_BLOCK,
    LOOP_WARPS,
    TILE_BLOCK,
    TILE_ROWS,
    TILE_WARPS,
    flat_block,
    tiles_columns,
)

INDENT = "    "


def call_order(derivation: Derivation) -> list[str]:
    """Names of the Function's apply arguments: the reference's own parameters, in its order, then module parameters."""
    return [name for name, _ in arguments(derivation)]


def arguments(derivation: Derivation) -> list[tuple[str, ScalarSpec | None]]:
    """Apply arguments in order: (name, None) for a tensor, (name, scalar) for a scalar that isn't built in."""
    op = derivation.op
    tensors = {t.name for t in op.tensors}
    fixed = {w.split(" is fixed at ")[0] for w in derivation.warnings if " is fixed at " in w}
    scalars = {s.name: s for s in op.scalars if s.name not in fixed}
    order = [n for n in _parameter_names(op) if n in tensors or n in scalars]
    order += [t.name for t in op.tensors if t.name not in order]
    order += [s for s in scalars if s not in order]
    # Parameters with defaults must come last in the printed signature.
    return [(n, None) for n in order if n in tensors] + [(n, scalars[n]) for n in order if n in scalars]


def _parameter_names(op: OpSpec) -> list[str]:
    """Parameter names of the reference, read from its source without executing it."""
    try:
        tree = ast.parse(op.source)
    except SyntaxError:
        return []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == op.entry:
            return [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        if isinstance(node, ast.ClassDef) and node.name == op.entry:
            for item in node.body:
                if isinstance(item, ast.FunctionDef) and item.name == "forward":
                    return [a.arg for a in item.args.args if a.arg != "self"]
    return []


@dataclass
class Shapes:
    """Where a wrapper reads axis sizes: the shapes of the tensors that it is given."""

    op: OpSpec
    tensors: list[Tensor]
    axes: dict[str, Quantity]

    def star(self, tensor: Tensor) -> bool:
        """Whether the tensor's first dimension stands for any number of leading dimensions."""
        return (
            bool(tensor.dims) and tensor.dims[0] == (ROWS,) and any("*" in t.shape for t in self.op.tensors)
        )

    def size(self, dim: tuple[str, ...]) -> Quantity:
        total = Quantity()
        for axis in dim:
            total *= self.axes[axis]
        return total

    def text(self, quantity: Quantity) -> str:
        """A size as host code. Raises Unsupported when no given tensor shows it."""
        if quantity.is_number:
            return number_text(quantity.coef)
        for tensor in self.tensors:
            for position, dim in enumerate(tensor.dims):
                if position == 0 and self.star(tensor):
                    continue
                if self.size(dim).same(quantity):
                    return f"{stem(tensor.name)}.shape[{position - len(tensor.dims)}]"
        for tensor in self.tensors:
            for position, dim in enumerate(tensor.dims):
                if position == 0 and self.star(tensor):
                    continue
                ratio = self.size(dim) / quantity
                if ratio.is_number and ratio.coef == int(ratio.coef):
                    return f"{stem(tensor.name)}.shape[{position - len(tensor.dims)}] // {int(ratio.coef)}"
                if ratio.is_number and (1 / ratio.coef) == int(1 / ratio.coef):
                    return f"{stem(tensor.name)}.shape[{position - len(tensor.dims)}] * {int(1 / ratio.coef)}"
        if quantity.same(Quantity.of(ROWS)):
            for tensor in self.tensors:
                if self.star(tensor):
                    return (
                        f"{stem(tensor.name)}.shape[:{1 - len(tensor.dims)}].numel()"
                        if len(tensor.dims) > 1
                        else f"{stem(tensor.name)}.numel()"
                    )
        return self._product(quantity)

    def _product(self, quantity: Quantity) -> str:
        scalars = {s.name for s in self.op.scalars}
        top: list[str] = []
        bottom: list[str] = []
        if quantity.coef != 1:
            top.append(number_text(quantity.coef))
        for factor in quantity.factors:
            atom = factor.atom
            if atom.name in scalars:
                text = Quantity(factors=(factor.model_copy(update={"power": 1.0}),)).text()
            elif len(quantity.factors) == 1 and factor.power == 1.0 and quantity.coef == 1:
                raise Unsupported(f"the size {quantity.text()} can't be read from a tensor's shape")
            else:
                text = self.text(Quantity.of(atom.name))
            if abs(factor.power) != 1.0:
                text = f"({text}) ** {number_text(abs(factor.power))}"
            (top if factor.power > 0 else bottom).append(f"({text})" if " " in text else text)
        text = " * ".join(top) or "1"
        whole = all(f.power == int(f.power) for f in quantity.factors)
        for divisor in bottom:
            text = f"{text} {'//' if whole else '/'} {divisor}"
        return text

    def number(self, quantity: Quantity) -> str:
        """A quantity as a host float, e.g. a factor n_rows * n_cols."""
        parts: list[str] = []
        for factor in quantity.factors:
            if factor.atom.name in {s.name for s in self.op.scalars}:
                base = Quantity(factors=(factor.model_copy(update={"power": 1.0}),)).text()
            else:
                base = self.text(Quantity.of(factor.atom.name))
            base = f"({base})" if " " in base else base
            parts.append(base if factor.power == 1 else f"{base} ** {number_text(factor.power)}")
        if quantity.coef != 1 or not parts:
            parts.insert(0, number_text(quantity.coef))
        return f"float({' * '.join(parts)})"


@dataclass(frozen=True)
class PrintedStep:
    """One step of a wrapper: a kernel with its source, or a host step (source None)."""

    program: RowProgram
    schedule: str
    kernel: str
    source: KernelSource | None


class WrapperPrinter:
    """Prints the wrapper of one direction: allocations, launches, and the host steps between them."""

    def __init__(
        self, derivation: Derivation, style: ModuleStyle, steps: list[PrintedStep], *, backward: bool
    ):
        self.derivation, self.style, self.steps, self.backward = derivation, style, steps, backward
        self.tensors: dict[str, Tensor] = {}
        produced: list[str] = []
        inputs: dict[str, Tensor] = {}
        named: list[str] = []
        for step in steps:
            program = step.program
            writes = (*program.stores, *program.accumulates, *program.scatters)
            written = list(dict.fromkeys(w.tensor for w in writes))
            for tensor in step.program.tensors:
                self.tensors.setdefault(tensor.name, tensor)
                if tensor.name not in written and tensor.name not in produced:
                    inputs.setdefault(tensor.name, tensor)
            pointers = step.source.pointers if step.source else []
            named += [
                n for n in pointers if n not in {t.name for t in step.program.tensors} and n not in named
            ]
            produced += [n for n in written if n not in produced]
        self.inputs = list(inputs.values())
        self.dtype_only = [n for n in named if n not in inputs]
        self.produced = produced
        self.axes: dict[str, Quantity] = {a.name: a.size for s in steps for a in s.program.axes}
        self.given = self._given()
        # An input that is given for its shape and dtype alone shows sizes too.
        bare = [self._bare(n) for n in self.given if n not in {t.name for t in self.inputs}]
        self.shapes = Shapes(derivation.op, [*self.inputs, *bare], self.axes)

    def _given(self) -> list[str]:
        """Tensor arguments: incoming gradients, then inputs in call order, then saved values."""
        loaded = {t.name for t in self.inputs} | set(self.dtype_only)
        inputs = [n for n in call_order(self.derivation) if n in loaded]
        tangents = [t.name for t in self.inputs if t.kind == "tangent"]
        saved = [t.name for t in self.inputs if t.kind == "saved"]
        likes = [t.like for t in self.tensors.values() if t.kind == "gradient" and t.like]
        inputs += [n for n in dict.fromkeys(likes) if n not in inputs and not self._stand_in(n)]
        return [*tangents, *inputs, *saved]

    def _bare(self, name: str) -> Tensor:
        spec = next(t for t in self.derivation.op.tensors if t.name == name)
        axes = [ROWS if a == "*" else a for a in spec.shape]
        for axis in axes:
            self.axes.setdefault(axis, Quantity.of(axis))
        return Tensor(name=name, dims=tuple((a,) for a in axes), dtype=spec.dtype, kind="input")

    def _stand_in(self, name: str) -> str | None:
        """A given incoming gradient with the same dimensions as the gradient of `name`, when `name` isn't given."""
        wanted = next((t for t in self.tensors.values() if t.kind == "gradient" and t.like == name), None)
        if wanted is None or any(a.tensor == wanted.name for s in self.steps for a in s.program.accumulates):
            return None
        return next((t.name for t in self.inputs if t.kind == "tangent" and t.dims == wanted.dims), None)

    @property
    def scalars(self) -> list[ScalarSpec]:
        needed: set[str] = set()
        for step in self.steps:
            needed |= set(step.program.scalars)
            if step.source:
                for quantity in step.source.symbols.values():
                    needed |= quantity.names
        for size in self.axes.values():
            needed |= size.names
        return [s for _, s in arguments(self.derivation) if s is not None and s.name in needed]

    def signature(self, prefix: str = "") -> str:
        """The call, with scalars read from `prefix` (a ctx)."""
        names = [stem(n) for n in self.given] + [prefix + s.name for s in self.scalars]
        wrapper = self.style.backward_wrapper if self.backward else self.style.forward_wrapper
        return f"{wrapper}({', '.join(names)})"

    def results(self) -> list[Tensor]:
        """What the wrapper returns: outputs or gradients, then saved values."""
        order = {"output": 0, "gradient": 0, "saved": 1}
        found = [self.tensors[n] for n in self.produced if self.tensors[n].kind in order]
        names = [n for n in call_order(self.derivation)]
        rank = {f"d{n}": i for i, n in enumerate(names)}
        return sorted(found, key=lambda t: (order[t.kind], rank.get(t.name, 0)))

    def print(self) -> str:
        lines: list[str] = []
        if self.style.utils_module is None:
            lines += [f"{stem(n)} = {stem(n)}.contiguous()" for n in self.given]
        self.known: dict[str, str] = {}
        for step in self.steps:
            lines += self._kernel_step(step) if step.source else self._host_step(step)
        lines.append(f"return {self._result_names()}")
        return "\n".join([f"def {self.signature()}:", *(INDENT + line if line else "" for line in lines)])

    def _result_names(self) -> str:
        return ", ".join(stem(t.name) for t in self.results())

    # --- allocations ---

    def _main(self, program: RowProgram) -> Tensor:
        """The tensor that spans most of the grid, from what is given if possible."""
        own = [
            t for t in program.tensors if t.name in {i.name for i in self.shapes.tensors}
        ] or self.shapes.tensors
        return max(own, key=lambda t: (len(t.axes), t.kind == "input"))

    def _empty(self, tensor: Tensor, program: RowProgram) -> str:
        dtype = f"torch.{tensor.dtype}" if tensor.dtype != "float" else None
        for other in self.shapes.tensors:
            if other.dims == tensor.dims and other.dtype == "float" and other.kind in ("input", "tangent"):
                source = self._dtype_source(tensor.like, program)
                wanted = dtype or (None if source == other.name else f"{stem(source)}.dtype")
                return f"torch.empty_like({stem(other.name)}{f', dtype={wanted}' if wanted else ''})"
        wanted = dtype or f"{stem(self._dtype_source(tensor.like, program))}.dtype"
        return f"torch.empty({self._shape(tensor)}, dtype={wanted}, device={stem(self._main(program).name)}.device)"

    def _dtype_source(self, like: str | None, program: RowProgram) -> str:
        """The given tensor whose dtype `like` has: itself, or a stand-in of the same role."""
        if like in self.given:
            return like  # type: ignore[return-value]
        floats = [t for t in self.inputs if t.dtype == "float"]
        return (like and self._stand_in(like)) or (floats[0].name if floats else self._main(program).name)

    def _shape(self, tensor: Tensor) -> str:
        parts: list[str] = []
        for position, dim in enumerate(tensor.dims):
            if position == 0 and self.shapes.star(tensor) and tensor.kind != "partial":
                parts.append(self._leading())
            else:
                parts.append(self._size(self.shapes.size(dim)))
        if len(parts) == 1:
            return parts[0].removeprefix("*") if parts[0].startswith("*") else f"({parts[0]},)"
        return f"({', '.join(parts)})"

    def _size(self, quantity: Quantity) -> str:
        """A size: a variable that is already there, or read from a shape."""
        return self.known.get(quantity.text()) or self.shapes.text(quantity)

    def _leading(self) -> str:
        for tensor in self.shapes.tensors:
            if self.shapes.star(tensor):
                rest = len(tensor.dims) - 1
                return f"*{stem(tensor.name)}.shape[:-{rest}]" if rest else f"*{stem(tensor.name)}.shape"
        raise Unsupported("no given tensor shows the leading dimensions")

    # --- launches ---

    def _kernel_step(self, step: PrintedStep) -> list[str]:
        program, source = step.program, step.source
        assert source is not None
        main = stem(self._main(program).name)
        accumulated = list(dict.fromkeys(a.tensor for a in program.accumulates))
        scattered = list(dict.fromkeys(s.tensor for s in program.scatters))
        lines: list[str] = []
        if step.schedule == "flat":
            lines.append(f"n_elements = {main}.numel()")
            count, grid = "n_elements", "triton.cdiv(n_elements, BLOCK_SIZE),"
            settings = ["BLOCK_SIZE, num_warps = {}, {}".format(*flat_block(program))]
            programs = "triton.cdiv(n_elements, BLOCK_SIZE)"
        else:
            lines += self._grid_sizes(program)
            count, grid, programs = "n_rows * n_cols", "n_rows,", "n_rows"
            settings = ["BLOCK_SIZE, num_warps = calculate_settings(n_cols)"]
            if step.schedule == "looped_row":
                settings = [
                    f"BLOCK_SIZE, num_warps = min(triton.next_power_of_2(n_cols), {LOOP_BLOCK}), {LOOP_WARPS}"
                ]
            if step.schedule == "tile":
                settings = [
                    f"BLOCK_SIZE = min(triton.next_power_of_2(n_cols), {TILE_BLOCK})",
                    f"BLOCK_ROWS = min({TILE_BLOCK * TILE_ROWS} // BLOCK_SIZE, triton.next_power_of_2(n_rows))",
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
                    lines.append(f"n_groups = {self._size(total)}")
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
        allocations = [
            f"{stem(n)} = {self._empty(self.tensors[n], program)}"
            for n in dict.fromkeys(s.tensor for s in program.stores)
        ]
        allocations += [
            f"_{stem(n)} = torch.zeros({self._shape(self.tensors[n])}, dtype=torch.float32, device={main}.device)"
            for n in scattered
        ]
        rounded = [f"{stem(n)} = _{stem(n)}{self._to_result(self.tensors[n])}" for n in scattered]
        for name, axis in source.axis_sizes.items():
            settings.insert(0, f"{name} = {self._size(self.axes[axis])}")
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

    @staticmethod
    def _ordered(allocations: list[str], lines: list[str]) -> list[str]:
        """Results are allocated first, unless their shapes need the sizes."""
        early = [a for a in allocations if "n_rows" not in a and "n_cols" not in a]
        return [*early, *lines, *(a for a in allocations if a not in early)]

    def _zeros(self, accumulated: list[str], main: str) -> list[str]:
        return [
            f"{stem(n)} = torch.zeros({self._shape(self.tensors[n])}, dtype={self._result_dtype(self.tensors[n])}, device={main}.device)"
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
        source = step.source
        assert source is not None
        accumulated = {w.tensor for w in (*step.program.accumulates, *step.program.scatters)}
        call = [f"{step.kernel}[({grid})]("]
        call += [f"{INDENT}{'_' if n in accumulated else ''}{stem(n)}," for n in source.pointers]
        call += [f"{INDENT}{self._scalar(s)}," for s in source.scalars]
        call += [f"{INDENT}{self.shapes.number(q)}," for q in source.symbols.values()]
        call += [f"{INDENT}{s}," for s in source.sizes if s in RUNTIME_SIZES]
        call += [f"{INDENT}{s}={s}," for s in source.sizes if s not in RUNTIME_SIZES]
        if step.schedule == "tile":
            call.append(f"{INDENT}BLOCK_ROWS=BLOCK_ROWS,")
        call += [f"{INDENT}BLOCK_SIZE=BLOCK_SIZE,", f"{INDENT}num_warps=num_warps,", ")"]
        if self.style.device_context:
            call = [f"with device_context({main}.device):", *(INDENT + line for line in call)]
        return call

    def _scalar(self, name: str) -> str:
        spec = next(s for s in self.derivation.op.scalars if s.name == name)
        return (
            name if isinstance(spec.default, int) and not isinstance(spec.default, bool) else f"float({name})"
        )

    def _partials(
        self, step: PrintedStep, accumulated: list[str], main: str, programs: str
    ) -> tuple[list[str], list[str]]:
        """Buffers of one part a program, and the sums over them."""
        buffers, sums = [], []
        groups = group_axes(step.program)
        for name in accumulated:
            tensor = self.tensors[name]
            own = tuple(a for a in tensor.axes if a not in step.program.rows)
            size = self.shapes.size(own)
            scalar = size.same(Quantity())
            parts = (
                f"{programs} * n_tiles"
                if step.schedule == "row_block" and tiles_columns(step.program)
                else programs
            )
            shape = f"({parts},)" if scalar else f"({programs}, {self._size(size)})"
            buffers.append(f"_{stem(name)} = torch.empty({shape}, dtype=torch.float32, device={main}.device)")
            text = f"_{stem(name)}"
            if groups and set(tensor.axes) & set(step.program.rows):
                text += f".view(n_groups, programs_per_group, {self._size(size)}).sum(dim=1)"
            else:
                text += ".sum(dim=0)" if not scalar else ".sum()"
            if len(tensor.dims) > 1 or (len(tensor.dims) == 1 and self.shapes.star(tensor)):
                text += f".view({self._shape(tensor)})"
            sums.append(f"{stem(name)} = {text}{self._to_result(tensor)}")
        return buffers, sums

    def _result_dtype(self, tensor: Tensor) -> str:
        if tensor.kind == "partial" or tensor.dtype == "float32":
            return "torch.float32"
        return f"{stem(self._dtype_source(tensor.like, self.steps[0].program))}.dtype"

    def _to_result(self, tensor: Tensor) -> str:
        dtype = self._result_dtype(tensor)
        return "" if dtype == "torch.float32" else f".to({dtype})"

    # --- host steps ---

    def _host_step(self, step: PrintedStep) -> list[str]:
        program = step.program
        star = {stem(t.name) for t in program.tensors if self.shapes.star(t) and t.kind != "partial"}
        mixed = any(ROWS in t.axes and t.kind == "partial" for t in program.tensors)
        writer = HostText(program, self._host_number, frozenset(star if mixed else ()))
        lines: list[str] = []
        for store in sorted(program.stores, key=lambda s: s.value):
            tensor = self.tensors[store.tensor]
            text, axes = writer.write(store.value)
            wanted = tensor.axes
            written = text.text
            if axes and set(axes) != set(wanted):
                raise Unsupported(f"a small result with axes {axes} where {wanted} are wanted")
            if axes != wanted and axes:
                text = Text(f"{text.at(ATOM)}.permute({', '.join(str(axes.index(a)) for a in wanted)})", ATOM)
                written = text.text
            result = self._to_result(tensor)
            if wanted and (len(wanted) != len(tensor.dims) or (mixed and self.shapes.star(tensor))):
                result = f".view({self._shape(tensor)})" + result
            lines.append(f"{stem(store.tensor)} = {text.at(ATOM) if result else written}{result}")
            if not result:
                writer.named[store.value] = (stem(store.tensor), axes)
        return lines

    def _host_number(self, quantity: Quantity) -> str:
        if quantity.text() in self.known:
            return self.known[quantity.text()]
        if quantity.names <= {s.name for s in self.derivation.op.scalars}:
            return quantity.text()
        text = self.shapes.number(quantity).removeprefix("float(").removesuffix(")")
        return f"({text})" if " " in text else text


def print_function(
    derivation: Derivation, style: ModuleStyle, forward: WrapperPrinter, backward: WrapperPrinter
) -> str:
    """The autograd Function around the two wrappers."""
    args = arguments(derivation)
    parameters = [stem(n) if s is None else f"{n}={_default(s)}" for n, s in args]
    outputs = [stem(t.name) for t in forward.results() if t.kind == "output"]
    written = [stem(t.name) for t in forward.results()]
    results = [t for t in forward.results() if t.kind == "output"]
    whole = [stem(t.name) for t in results if t.dtype in ("int64", "bool")]
    tangents = [f"_d{t.name}" if t.dtype in ("int64", "bool") else stem(f"d{t.name}") for t in results]
    given_tangents = {t.name for t in backward.inputs if t.kind == "tangent"}
    saved_names = [stem(n) for n in backward.given if n not in given_tangents]
    scalars = [s.name for s in backward.scalars]
    gradients = {stem(t.name) for t in backward.results()}
    decorator = f"{INDENT}@ensure_contiguous" if style.utils_module else None
    lines = [f"class {style.function_class}(torch.autograd.Function):", f"{INDENT}@staticmethod"]
    lines += [decorator] if decorator else []
    lines += [f"{INDENT}def forward(ctx, {', '.join(parameters)}):"]
    body = [f"{', '.join(written)} = {forward.signature()}"]
    body.append(f"ctx.save_for_backward({', '.join(saved_names)})")
    body += [f"ctx.{s} = {s}" for s in scalars]
    body += [f"ctx.mark_non_differentiable({', '.join(whole)})"] if whole else []
    body.append(f"return {', '.join(outputs)}")
    lines += [INDENT * 2 + line for line in body]
    lines += ["", f"{INDENT}@staticmethod"]
    lines += [decorator] if decorator else []
    lines += [f"{INDENT}def backward(ctx, {', '.join(tangents)}):"]
    body = []
    if saved_names:
        body.append(f"{', '.join(saved_names)}{',' if len(saved_names) == 1 else ''} = ctx.saved_tensors")
        if len(saved_names) == 1:
            body[-1] = f"({saved_names[0]},) = ctx.saved_tensors"
    order = [stem(t.name) for t in backward.results()]
    body.append(f"{', '.join(order)} = {backward.signature('ctx.')}")
    returned = [
        (stem(f"d{n}") if stem(f"d{n}") in gradients else "None") if s is None else "None" for n, s in args
    ]
    body.append(f"return {', '.join(returned)}")
    lines += [INDENT * 2 + line for line in body]
    return "\n".join(lines)


def _default(scalar: ScalarSpec) -> str:
    return repr(scalar.default)
