"""How a derived op is called: its inputs, learnable parameters and scalars in order, and code that makes test values. Pure."""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from agents.profiles import KernelProfile
from kernels.derivation import Operand
from kernels.op_spec import ScalarSpec, TensorSpec
from kernels.traced import TracedOp
from runners.sizes import label_axis, logits_axis

# A vocabulary is wider than a hidden size, and both are small in a test.
LOGITS_A_COLUMN = 4
_MULTIPLE = re.compile(r"(\d+)\s*\*\s*(\w+)")


@dataclass(frozen=True)
class Signature:
    """The arguments of Function.apply in order, and what each is."""

    order: tuple[str, ...]
    tensors: tuple[TensorSpec, ...]
    scalars: tuple[ScalarSpec, ...]
    outputs: int = 1
    row_output: bool = False
    same_dtype: bool = False
    integer_output: bool = False
    logits: str | None = None  # the axis that a linear layer of the op makes
    labels: str | None = None  # the axis that integers index

    @classmethod
    def of(cls, profile: KernelProfile, order: Sequence[str], outputs: Sequence[Operand]) -> Signature:
        """A scalar that Function.apply doesn't take is built into the kernel: nothing generated offers it.

        Raises ValueError when the kernel takes an argument that the op doesn't name, or lacks one of its tensors, or a name
        is not an identifier.
        """
        op = profile.op
        tensors = {spec.name for spec in op.tensors}
        known = tensors | {spec.name for spec in op.scalars}
        if not tensors <= set(order) <= known:
            raise ValueError(
                f"the kernel takes {', '.join(order)} but the op names {', '.join(sorted(known))}"
            )
        for name in (
            *order,
            profile.operation_name,
            profile.functional_name,
            profile.module_class_name,
            profile.function_class_name,
        ):
            check_identifier(name)
        return cls(
            order=tuple(order),
            tensors=op.tensors,
            scalars=tuple(scalar for scalar in op.scalars if scalar.name in order),
            outputs=len(outputs),
            row_output=any(operand.role != "full" for operand in outputs),
            integer_output=any(operand.dtype in ("int64", "bool") for operand in outputs),
            same_dtype=all(operand.dtype == "same as input" for operand in outputs),
            logits=logits_axis(op),
            labels=label_axis(op),
        )

    @property
    def ordered_tensors(self) -> tuple[TensorSpec, ...]:
        """The tensors in the order of Function.apply."""
        named = {tensor.name: tensor for tensor in self.tensors}
        return tuple(named[name] for name in self.order if name in named)

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Tensors that the caller passes, in call order."""
        return tuple(tensor for tensor in self.ordered_tensors if not tensor.learnable)

    @property
    def parameters(self) -> tuple[TensorSpec, ...]:
        """Tensors that the module owns, in call order."""
        return tuple(tensor for tensor in self.ordered_tensors if tensor.learnable)

    @property
    def main(self) -> TensorSpec:
        """The input with the most axes: its shape is the shape that tests and benchmarks vary."""
        return max(self.inputs or self.tensors, key=lambda tensor: len(tensor.shape))

    @property
    def widths(self) -> tuple[str, ...]:
        """Sizes that the module must be told to make its parameters, e.g. ("hidden_size",)."""
        names = [
            width_name(axis) for tensor in self.parameters for axis in tensor.shape if not axis.isdigit()
        ]
        return tuple(dict.fromkeys(name for name in names if name))

    def size(self, axis: str) -> str:
        """Code for the size of an axis, in terms of a tuple `shape` that is the main tensor's."""
        if axis.isdigit():
            return axis
        if multiple := _MULTIPLE.fullmatch(axis):
            return f"{multiple[1]} * {self.size(multiple[2])}"
        named = [name for name in self.main.shape if name != "*"]
        if axis in named:
            return f"shape[{named.index(axis) - len(named)}]"
        return f"{LOGITS_A_COLUMN} * shape[-1]" if axis == self.logits else "shape[-1]"

    def is_projection(self, tensor: TensorSpec) -> bool:
        """Whether a linear layer of the op has this weight: its values are scaled so that logits are of the size of inputs."""
        return self.logits is not None and len(tensor.shape) == 2 and tensor.shape[0] == self.logits

    def shape_code(self, tensor: TensorSpec) -> str:
        """Code for a tensor's shape, e.g. "shape", "shape[-1]", "shape[:-1]"."""
        if tensor.shape == self.main.shape:
            return "shape"
        if tensor.shape and tensor.shape[0] == "*":
            rows = (
                f"shape[:-{len(self.main.shape) - 1}]"
                if self.main.shape[0] == "*" and len(self.main.shape) > 1
                else "shape"
            )
            rest = [self.size(axis) for axis in tensor.shape[1:]]
            return f"(*{rows}, {', '.join(rest)})" if rest else rows
        sizes = [self.size(axis) for axis in tensor.shape]
        return sizes[0] if len(sizes) == 1 else f"({', '.join(sizes)})"

    def value_code(self, tensor: TensorSpec, *, doubled: bool = False) -> str:
        """Code that makes a random value of a tensor on `device` in `dtype`; `doubled`: its last axis twice as long."""
        shape = self.shape_code(tensor)
        if doubled:
            shape = "(*shape[:-1], 2 * shape[-1])" if shape == "shape" else shape
        if tensor.dtype == "bool":
            return f"torch.rand({shape}, device=device) > 0.5"
        if tensor.dtype == "int64":
            high = self.size(self.logits) if self.logits and self.labels == self.logits else "shape[-1]"
            return f"torch.randint(0, {high}, {shape if shape.startswith(('shape[:', '(')) or shape == 'shape' else f'({shape},)'}, device=device)"
        value = f"torch.randn({shape}, device=device, dtype=dtype)"
        if self.is_projection(tensor):
            return f"{value} / {self.size(tensor.shape[-1])} ** 0.5"
        around = {"ones": "1 + 0.1 * ", "zeros": "0.1 * ", "half": "0.5 + 0.1 * "}
        # a weight stays near where it starts: one near zero that is divided by makes even float32 inaccurate
        return f"{around.get(tensor.init or '', '')}{value}" if tensor.learnable else value


def axis_multiples(traced: TracedOp) -> dict[str, int]:
    """Axis -> what its size must be a multiple of: halves of a packed tensor, groups of a group norm."""
    groups = {scalar.name: scalar.default for scalar in traced.op.scalars if isinstance(scalar.default, int)}
    multiples = dict(traced.axes)
    for axis, scalar in traced.tied.items():
        multiples[axis] = math.lcm(multiples.get(axis, 1), int(groups.get(scalar, 1)) or 1)
    return multiples


def width_name(axis: str) -> str:
    """The module's name for an axis: Liger's modules call the last one hidden_size."""
    if axis == "*":
        return ""
    return "hidden_size" if axis == "n_cols" else axis


def check_identifier(name: str) -> str:
    """The name, when it is a plain ASCII Python identifier. Raises ValueError otherwise."""
    if not (name.isascii() and name.isidentifier()) or keyword.iskeyword(name):
        raise ValueError(f"{name!r} can't be used as a Python name")
    return name


def other_value(scalar: ScalarSpec) -> str | None:
    """A value that differs from the default, still valid where the default is: a quarter less; None when there is no safe one."""
    if scalar.constexpr or isinstance(scalar.default, bool | str | int):
        return None
    return repr(0.75 * scalar.default) if scalar.default else "0.125"
