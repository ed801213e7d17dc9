"""The tensors of a wrapper: what it is given, what it allocates, in which shape and dtype, what it returns. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.call_signature import arguments, call_order
from kernels.derivation import Derivation, Unsupported
from kernels.host_shapes import Shapes
from kernels.kernel_printer import KernelSource
from kernels.module_style import ModuleStyle
from kernels.op_spec import ScalarSpec
from kernels.passes.lower import ROWS
from kernels.passes.names import stem
from kernels.quantity import Quantity
from kernels.row_program import RowProgram, Tensor


@dataclass(frozen=True)
class PrintedStep:
    """One step of a wrapper: a kernel with its source, or a host step (source None)."""

    program: RowProgram
    schedule: str
    kernel: str
    source: KernelSource | None

    @property
    def printed(self) -> KernelSource:
        """The kernel's source. Raises TypeError for a host step."""
        if self.source is None:
            raise TypeError("a host step has no kernel")
        return self.source


class WrapperTensors:
    """Arguments, allocations and results of one direction's wrapper."""

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
        self.known: dict[str, str] = {}  # sizes that a variable holds already
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
        return self._signed(prefix, [stem(n) for n in self.optional_gradients()])

    def definition(self) -> str:
        """The signature as it is defined: a backward may be called without the forward's gradients."""
        return self._signed("", [f"{stem(n)}=None" for n in self.optional_gradients()])

    def _signed(self, prefix: str, gradients: list[str]) -> str:
        names = [stem(n) for n in self.given] + [prefix + s.name for s in self.scalars]
        if gradients:
            names += gradients if self.backward else ["has_gradients"]
        wrapper = self.style.backward_wrapper if self.backward else self.style.forward_wrapper
        return f"{wrapper}({', '.join(names)})"

    def optional_gradients(self) -> list[str]:
        """Gradients that the forward has written, or not."""
        if not self.derivation.gradient_in_forward:
            return []
        return [t.name for t in self.results() if t.kind == "gradient"]

    def results(self) -> list[Tensor]:
        """What the wrapper returns: outputs or gradients, then saved values."""
        order = {"output": 0, "gradient": 1, "saved": 2}
        found = [self.tensors[n] for n in self.produced if self.tensors[n].kind in order]
        rank = {f"d{n}": i for i, n in enumerate(call_order(self.derivation))}
        # Results are called y, or y0, y1, … as the reference returns them; kernels may write them in another order.
        rank |= {
            t.name: int(f"0{t.name.removeprefix('out').removeprefix('y')}")
            for t in found
            if t.kind == "output"
        }
        return sorted(found, key=lambda t: (order[t.kind], rank.get(t.name, 0)))

    # --- allocations ---

    def main(self, program: RowProgram) -> Tensor:
        """The tensor that spans most of the grid, from what is given if possible."""
        given = {t.name for t in self.shapes.tensors}
        own = [t for t in program.tensors if t.name in given]
        if all(len(t.axes) < max(len(o.axes) for o in program.tensors) for t in own):
            # The kernel reads nothing of its grid's size (the gradient of a mean): another given tensor shows it.
            own = self.shapes.tensors
        return max(own, key=lambda t: (len(t.axes), t.kind == "input"))

    def empty(self, tensor: Tensor, program: RowProgram) -> str:
        dtype = f"torch.{tensor.dtype}" if tensor.dtype != "float" else None
        for other in self.shapes.tensors:
            if other.dims == tensor.dims and other.dtype == "float" and other.kind in ("input", "tangent"):
                source = self.dtype_source(tensor.like, program)
                wanted = dtype or (None if source == other.name else f"{stem(source)}.dtype")
                return f"torch.empty_like({stem(other.name)}{f', dtype={wanted}' if wanted else ''})"
        wanted = dtype or f"{stem(self.dtype_source(tensor.like, program))}.dtype"
        return f"torch.empty({self.shape(tensor)}, dtype={wanted}, device={stem(self.main(program).name)}.device)"

    def dtype_source(self, like: str | None, program: RowProgram) -> str:
        """The given tensor whose dtype `like` has: itself, or a stand-in of the same role."""
        if like in self.given:
            return like  # type: ignore[return-value]
        floats = [t for t in self.inputs if t.dtype == "float"]
        return (like and self._stand_in(like)) or (floats[0].name if floats else self.main(program).name)

    def shape(self, tensor: Tensor) -> str:
        parts: list[str] = []
        for position, dim in enumerate(tensor.dims):
            if position == 0 and self.shapes.star(tensor) and tensor.kind != "partial":
                parts.append(self.leading())
            else:
                parts.append(self.size(self.shapes.size(dim)))
        if len(parts) == 1:
            return parts[0].removeprefix("*") if parts[0].startswith("*") else f"({parts[0]},)"
        return f"({', '.join(parts)})"

    def size(self, quantity: Quantity) -> str:
        """A size: a variable that is already there, or read from a shape."""
        return self.known.get(quantity.text()) or self.shapes.text(quantity)

    def leading(self) -> str:
        for tensor in self.shapes.tensors:
            if self.shapes.star(tensor):
                rest = len(tensor.dims) - 1
                return f"*{stem(tensor.name)}.shape[:-{rest}]" if rest else f"*{stem(tensor.name)}.shape"
        raise Unsupported("no given tensor shows the leading dimensions")

    def result_dtype(self, tensor: Tensor) -> str:
        if tensor.kind == "partial" or tensor.dtype == "float32":
            return "torch.float32"
        return f"{stem(self.dtype_source(tensor.like, self.steps[0].program))}.dtype"

    def to_result(self, tensor: Tensor) -> str:
        dtype = self.result_dtype(tensor)
        return "" if dtype == "torch.float32" else f".to({dtype})"
