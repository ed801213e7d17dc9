"""The host steps of a wrapper: small results computed with torch between and after the launches. Pure."""

from __future__ import annotations

from kernels.derivation import Unsupported
from kernels.expressions import ATOM, Text
from kernels.host_text import HostText
from kernels.passes.lower import ROWS
from kernels.passes.names import stem
from kernels.quantity import Quantity
from kernels.wrapper_tensors import PrintedStep, WrapperTensors


class WrapperHostSteps(WrapperTensors):
    """Prints what a wrapper computes itself."""

    known: dict[str, str]  # a size's text -> the variable that has it

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
            result = self.to_result(tensor)
            if result and not self.backward and tensor.kind == "output":
                # Cast to the dtype that it has, a tensor is itself, and torch.compile gives the gradient of a result that
                # is one of the forward's own intermediates to that one (torch 2.11: a zero gradient, silently).
                lines.append(
                    "# a copy: torch.compile loses the gradient of a result that is an intermediate too"
                )
                result = f"{result.removesuffix(')')}, copy=True)"
            if wanted and (len(wanted) != len(tensor.dims) or (mixed and self.shapes.star(tensor))):
                result = f".view({self.shape(tensor)})" + result
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
