"""Axis sizes as host code, read from the shapes of the tensors that a wrapper is given. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.derivation import Unsupported
from kernels.op_spec import OpSpec
from kernels.passes.lower import ROWS
from kernels.passes.names import stem
from kernels.quantity import Quantity, number_text
from kernels.row_program import Tensor


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
