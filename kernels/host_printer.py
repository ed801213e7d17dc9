"""Print the host side of an op: the wrappers that allocate and launch, and the autograd Function. Pure."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from kernels.derivation import Derivation, Unsupported
from kernels.kernel_printer import KernelSource, size_name
from kernels.module_style import ModuleStyle
from kernels.op_spec import OpSpec, ScalarSpec
from kernels.passes.lower import ROWS
from kernels.passes.names import stem
from kernels.quantity import Quantity, number_text
from kernels.row_program import RowProgram, Tensor
from kernels.schedules import FLAT_BLOCK, FLAT_WARPS, TILE_BLOCK, TILE_WARPS

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
        return bool(tensor.dims) and tensor.dims[0] == (ROWS,) and any("*" in t.shape for t in self.op.tensors)

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
                    return f"{stem(tensor.name)}.shape[:{1 - len(tensor.dims)}].numel()" if len(tensor.dims) > 1 else f"{stem(tensor.name)}.numel()"
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


class WrapperPrinter:
    """Prints the wrapper of one kernel."""

    def __init__(
        self, derivation: Derivation, style: ModuleStyle, program: RowProgram, source: KernelSource, schedule: str, *, backward: bool
    ):
        self.derivation, self.style, self.program = derivation, style, program
        self.source, self.schedule, self.backward = source, schedule, backward
        written = {w.tensor for w in (*program.stores, *program.accumulates)}
        self.inputs = [t for t in program.tensors if t.name not in written and t.name in source.pointers]
        named = [n for n in source.pointers if n not in {t.name for t in program.tensors}]
        self.dtype_only = named  # tensors passed for their dtype alone
        self.given = self._given()
        axes = {a.name: a.size for a in program.axes}
        self.shapes = Shapes(derivation.op, self.inputs, axes)

    def _given(self) -> list[str]:
        """Tensor arguments of the wrapper: incoming gradients, then inputs in call order, then saved values."""
        inputs = [n for n in call_order(self.derivation) if n in {t.name for t in self.inputs} | set(self.dtype_only)]
        tangents = [t.name for t in self.inputs if t.kind == "tangent"]
        saved = [t.name for t in self.inputs if t.kind == "saved"]
        likes = [t.like for t in self.program.tensors if t.kind == "gradient" and t.like]
        inputs += [n for n in likes if n not in inputs and not self._like_of(n)]
        return [*tangents, *inputs, *saved]

    def _like_of(self, name: str) -> str | None:
        """A given tensor with the same dimensions, from which a gradient can be allocated, when `name` isn't given."""
        wanted = next((t for t in self.program.tensors if t.kind == "gradient" and t.like == name), None)
        if wanted is None or any(a.tensor == wanted.name for a in self.program.accumulates):
            return None
        for tensor in self.inputs:
            if tensor.kind == "tangent" and tensor.dims == wanted.dims:
                return tensor.name
        return None

    @property
    def scalars(self) -> list[ScalarSpec]:
        needed = set(self.source.scalars)
        for quantity in self.source.symbols.values():
            needed |= quantity.names
        for axis in self.program.axes:
            needed |= axis.size.names
        return [s for _, s in arguments(self.derivation) if s is not None and s.name in needed]

    def signature(self) -> str:
        names = [stem(n) for n in self.given] + [s.name for s in self.scalars]
        wrapper = self.style.backward_wrapper if self.backward else self.style.forward_wrapper
        return f"{wrapper}({', '.join(names)})"

    def print(self) -> str:
        lines: list[str] = []
        if self.style.utils_module is None:
            lines += [f"{stem(n)} = {stem(n)}.contiguous()" for n in self.given]
        lines += self._allocations()
        lines += self._launch()
        lines += self._results()
        return "\n".join([f"def {self.signature()}:", *(INDENT + line if line else "" for line in lines)])

    def written(self) -> list[Tensor]:
        order = {"output": 0, "gradient": 0, "saved": 1}
        names = {s.tensor for s in self.program.stores} | {a.tensor for a in self.program.accumulates}
        return sorted((t for t in self.program.tensors if t.name in names), key=lambda t: order.get(t.kind, 2))

    def _accumulated(self) -> set[str]:
        return {a.tensor for a in self.program.accumulates}

    def _main(self) -> Tensor:
        """The given tensor that spans the whole grid."""
        return max(self.inputs, key=lambda t: (len([a for a in t.axes]), t.kind == "input"))

    def _allocations(self) -> list[str]:
        lines: list[str] = []
        for tensor in self.written():
            if tensor.name not in self._accumulated():
                lines.append(f"{stem(tensor.name)} = {self._empty(tensor)}")
        return lines

    def _empty(self, tensor: Tensor) -> str:
        dtype = "torch.float32" if tensor.dtype == "float32" else None
        for other in self.inputs:
            if other.dims == tensor.dims and other.dtype == "float" and other.kind in ("input", "tangent"):
                same = tensor.like in (other.name, None) or (tensor.like and self._dtype_source(tensor.like) == other.name)
                wanted = dtype or (None if same else f"{stem(self._dtype_source(tensor.like or other.name))}.dtype")
                return f"torch.empty_like({stem(other.name)}{f', dtype={wanted}' if wanted else ''})"
        source = stem(self._main().name)
        wanted = dtype or f"{stem(self._dtype_source(tensor.like or self._main().name))}.dtype"
        return f"torch.empty({self._shape(tensor)}, dtype={wanted}, device={source}.device)"

    def _dtype_source(self, like: str) -> str:
        """The given tensor whose dtype `like` has: itself, or a stand-in of the same role."""
        return like if like in self.given else self._like_of(like) or self._main().name

    def _shape(self, tensor: Tensor) -> str:
        parts: list[str] = []
        for position, dim in enumerate(tensor.dims):
            if position == 0 and self.shapes.star(tensor):
                parts.append(self._leading())
            else:
                parts.append(self.shapes.text(self.shapes.size(dim)))
        if len(parts) == 1:
            return f"({parts[0]},)"
        return f"({', '.join(parts)})"

    def _leading(self) -> str:
        for tensor in self.inputs:
            if self.shapes.star(tensor):
                rest = len(tensor.dims) - 1
                return f"*{stem(tensor.name)}.shape[:-{rest}]" if rest else f"*{stem(tensor.name)}.shape"
        raise Unsupported("no given tensor shows the leading dimensions")

    # --- launch ---

    def _launch(self) -> list[str]:
        main = stem(self._main().name)
        rows, cols = Quantity(), Quantity()
        axes = {a.name: a.size for a in self.program.axes}
        for axis in self.program.rows:
            rows *= axes[axis]
        for axis in self.program.cols:
            cols *= axes[axis]
        lines: list[str] = []
        if self.schedule == "flat":
            lines += [f"n_elements = {main}.numel()"]
            empty, grid = "n_elements == 0", "triton.cdiv(n_elements, BLOCK_SIZE),"
            settings = [f"BLOCK_SIZE, num_warps = {FLAT_BLOCK}, {FLAT_WARPS}"]
        else:
            lines += [f"n_cols = {self.shapes.text(cols)}", f"n_rows = {self._rows(rows)}"]
            empty = "n_rows * n_cols == 0"
            if self.schedule == "tile":
                settings = [
                    f"BLOCK_SIZE = min(triton.next_power_of_2(n_cols), {TILE_BLOCK})",
                    f"BLOCK_ROWS = max(1, min({TILE_BLOCK} // BLOCK_SIZE, triton.next_power_of_2(n_rows)))",
                    f"num_warps = {TILE_WARPS}",
                ]
                grid = "triton.cdiv(n_rows, BLOCK_ROWS), triton.cdiv(n_cols, BLOCK_SIZE)"
            else:
                settings = ["BLOCK_SIZE, num_warps = calculate_settings(n_cols)"]
                grid = "n_rows,"
            if self.schedule == "row_block":
                settings += [
                    f"n_programs = min(get_sm_count({main}.device), n_rows)",
                    "rows_per_program = triton.cdiv(n_rows, n_programs)",
                ]
                grid = "n_programs,"
        for name in self.source.sizes:
            if name in ("n_elements", "n_rows", "n_cols", "rows_per_program"):
                continue
            axis = next(a for a in self.program.axes if size_name(a.name) == name)
            settings.insert(0, f"{name} = {self.shapes.text(axis.size)}")
        body: list[str] = []
        if self.schedule == "row_block":
            body += self._partials(main)
        kernel = self.style.backward_kernel if self.backward else self.style.forward_kernel
        call = [f"{kernel}[({grid})]("]
        for name in self.source.pointers:
            call.append(f"{INDENT}{'_' if name in self._accumulated() else ''}{stem(name)},")
        call += [f"{INDENT}{self._scalar(s)}," for s in self.source.scalars]
        call += [f"{INDENT}{self.shapes.number(q)}," for q in self.source.symbols.values()]
        call += [f"{INDENT}{s}," for s in self.source.sizes if s in ("n_elements", "n_rows", "rows_per_program")]
        call += [
            f"{INDENT}{s}={s}," for s in self.source.sizes if s not in ("n_elements", "n_rows", "rows_per_program")
        ]
        if self.schedule == "tile":
            call.append(f"{INDENT}BLOCK_ROWS=BLOCK_ROWS,")
        call += [f"{INDENT}BLOCK_SIZE=BLOCK_SIZE,", f"{INDENT}num_warps=num_warps,", ")"]
        if self.style.device_context:
            call = [f"with device_context({main}.device):", *(INDENT + line for line in call)]
        after = self._sums()
        if self.schedule == "row_block":
            # An empty sum is zero: nothing is launched, and the gradients are.
            zeros = [
                f"{stem(t.name)} = torch.zeros({self._shape(t)}, dtype={stem(self._dtype_source(t.like or main))}.dtype, device={main}.device)"
                for t in self.written()
                if t.name in self._accumulated()
            ]
            guard = [f"if {empty}:", *(INDENT + z for z in zeros), f"{INDENT}return {self._result_names()}"]
            return [*lines, *guard, *settings, *body, *call, *after]
        guarded = [*settings, *body, *call]
        return [*lines, f"if {empty}:", f"{INDENT}return {self._result_names()}", *guarded, *after]

    def _rows(self, rows: Quantity) -> str:
        for tensor in self.inputs:
            lead = 0
            axes: list[str] = []
            for dim in tensor.dims:
                if axes == list(self.program.rows):
                    break
                axes += list(dim)
                lead += 1
            if axes == list(self.program.rows):
                name = stem(tensor.name)
                if lead == len(tensor.dims):
                    return f"{name}.numel()"
                return f"{name}.shape[:{lead - len(tensor.dims)}].numel()"
        return self.shapes.text(rows)

    def _scalar(self, name: str) -> str:
        spec = next(s for s in self.derivation.op.scalars if s.name == name)
        return name if isinstance(spec.default, int) and not isinstance(spec.default, bool) else f"float({name})"

    def _partials(self, main: str) -> list[str]:
        lines = []
        for tensor in self.written():
            if tensor.name in self._accumulated():
                size = self.shapes.size(tensor.axes)
                shape = "(n_programs,)" if size.same(Quantity()) else f"(n_programs, {self._flat_size(tensor)})"
                lines.append(f"_{stem(tensor.name)} = torch.empty({shape}, dtype=torch.float32, device={main}.device)")
        return lines

    def _flat_size(self, tensor: Tensor) -> str:
        cols = list(self.program.cols)
        if list(tensor.axes) == cols:
            return "n_cols"
        return self.shapes.text(self.shapes.size(tensor.axes))

    def _sums(self) -> list[str]:
        lines = []
        for tensor in self.written():
            if tensor.name in self._accumulated():
                name = stem(tensor.name)
                view = f".view({self._shape(tensor).strip('()').rstrip(',')})" if len(tensor.dims) > 1 else ""
                dtype = stem(self._dtype_source(tensor.like or tensor.name))
                lines.append(f"{name} = _{name}.sum(dim=0){view}.to({dtype}.dtype)")
        return lines

    def _result_names(self) -> str:
        return ", ".join(stem(t.name) for t in self.written())

    def _results(self) -> list[str]:
        return [f"return {self._result_names()}"]


def print_function(derivation: Derivation, style: ModuleStyle, forward: WrapperPrinter, backward: WrapperPrinter) -> str:
    """The autograd Function around the two wrappers."""
    args = arguments(derivation)
    parameters = [stem(n) if s is None else f"{n}={_default(s)}" for n, s in args]
    outputs = [stem(t.name) for t in forward.written() if t.kind == "output"]
    written = [stem(t.name) for t in forward.written()]
    saved_names = [stem(n) for n in backward.given if n not in {t.name for t in backward.inputs if t.kind == "tangent"}]
    tangents = [f"d{stem(t.name)}" if len(t.name) == 1 else f"d{t.name}" for t in forward.written() if t.kind == "output"]
    tangents = [stem(f"d{t.name}") for t in forward.written() if t.kind == "output"]
    scalars = [s.name for s in backward.scalars]
    gradients = {stem(t.name) for t in backward.written()}
    decorator = f"{INDENT}@ensure_contiguous" if style.utils_module else None
    lines = [f"class {style.function_class}(torch.autograd.Function):", f"{INDENT}@staticmethod"]
    lines += [decorator] if decorator else []
    lines += [f"{INDENT}def forward(ctx, {', '.join(parameters)}):"]
    body = [f"{', '.join(written)} = {forward.signature()}"]
    body.append(f"ctx.save_for_backward({', '.join(saved_names)})")
    body += [f"ctx.{s} = {s}" for s in scalars]
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
    call = backward.signature()
    for scalar in scalars:
        call = call.replace(f", {scalar}", f", ctx.{scalar}", 1)
    order = [stem(t.name) for t in backward.written()]
    body.append(f"{', '.join(order)} = {call}")
    returned = [
        (stem(f"d{n}") if stem(f"d{n}") in gradients else "None") if s is None else "None" for n, s in args
    ]
    body.append(f"return {', '.join(returned)}")
    lines += [INDENT * 2 + line for line in body]
    return "\n".join(lines)


def _default(scalar: ScalarSpec) -> str:
    return repr(scalar.default)
