"""Generated files around a kernel, from Jinja2 skeletons: the module and the functional, and what all of them share. Pure.

The skeletons hold code's shape only; every expression of the mathematics comes from the reference or the printer.
"""

from __future__ import annotations

import math
from typing import Any

import jinja2

from agents.conventions import Conventions
from agents.dev.reference_in_test import RenamedReference
from agents.dev.signature import Signature, other_value, width_name
from agents.profiles import KernelProfile
from kernels.op_spec import TensorSpec

_skeletons = jinja2.Environment(
    loader=jinja2.PackageLoader("agents.dev", "templates"),
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    autoescape=False,  # noqa: S701 - the output is Python and Markdown, not HTML
)


def render(template: str, **context: Any) -> str:
    """One skeleton with its blanks filled in. A blank without a value is an error."""
    return _skeletons.get_template(template).render(**context)


def module_file(profile: KernelProfile, signature: Signature, conventions: Conventions) -> str:
    """transformers/{op}.py: the nn.Module."""
    widths = list(signature.widths)
    scalars = [scalar.name for scalar in signature.scalars]
    init = [*widths, *(f"{scalar.name}={literal(scalar.default)}" for scalar in signature.scalars)]
    return render(
        "module.py.jinja",
        function_import=function_import(profile, conventions),
        function_class=profile.function_class_name,
        module_class=profile.module_class_name,
        summary=docstring_text(profile.op.summary or profile.forward_computation),
        init_parameters=init,
        attributes=[*widths, *scalars],
        parameters=[
            {"name": tensor.name, "initial": _initial(tensor, scaled=signature.is_projection(tensor))}
            for tensor in signature.parameters
        ],
        inputs=[tensor.name for tensor in signature.inputs],
        apply_arguments=[
            name if name in {tensor.name for tensor in signature.inputs} else f"self.{name}"
            for name in signature.order
        ],
    )


def functional_code(profile: KernelProfile, signature: Signature) -> str:
    """The function for transformers/functional.py."""
    parameters = [tensor.name for tensor in signature.ordered_tensors]
    parameters += [
        f"{scalar.name}: {type(scalar.default).__name__} = {literal(scalar.default)}"
        for scalar in signature.scalars
    ]
    call = f"{profile.function_class_name}.apply({', '.join(signature.order)})"
    return f"def {profile.functional_name}({', '.join(parameters)}):\n    return {call}\n"


def function_import(profile: KernelProfile, conventions: Conventions) -> str:
    """The module that wrappers import the Function class from."""
    package = f"{conventions.package}.ops"
    return package if conventions.ops_import == "package" else f"{package}.{profile.operation_name}"


def shared_blanks(
    profile: KernelProfile, signature: Signature, conventions: Conventions, reference: RenamedReference
) -> dict[str, Any]:
    """The blanks that a test and a benchmark script have in common."""
    providers = [
        name
        for name in ("liger", "torch", "torch_compile")
        if name in {"liger", "torch", *profile.benchmark_providers}
    ]
    return {
        "package": conventions.package,
        "infer_device_module": conventions.infer_device_module,
        "op_name": profile.operation_name,
        "functional": profile.functional_name,
        "module_class": profile.module_class_name,
        "reference": reference.entry,
        "is_module": profile.op.kind == "module",
        "constructor_arguments": constructor_arguments(signature, reference),
        "module_widths": [_width_code(signature, name) for name in signature.widths],
        "inputs": [_tensor_context(signature, tensor) for tensor in signature.inputs],
        "input_names": [tensor.name for tensor in signature.inputs],
        "parameters": [_tensor_context(signature, tensor) for tensor in signature.parameters],
        "tensors": [_tensor_context(signature, tensor) for tensor in signature.ordered_tensors],
        "main": signature.main.name,
        "n_outputs": signature.outputs,
        "providers": providers,
        "providers_code": "[" + ", ".join(f'"{name}"' for name in providers) + "]",
    }


def _tensor_context(signature: Signature, tensor: TensorSpec) -> dict[str, Any]:
    return {
        "name": tensor.name,
        "grad": tensor.needs_grad and tensor.dtype == "float",
        "summed": len(tensor.shape) < len(signature.main.shape),
        "value": signature.value_code(tensor),
        "wide_value": signature.value_code(tensor, doubled=True),
    }


def constructor_arguments(
    signature: Signature, reference: RenamedReference, *, other: bool = False
) -> list[str]:
    """Arguments that make a reference module: sizes for what has no default; with `other`, other scalars too."""
    sizes = ["shape[-1]" for _ in reference.required]
    if not other:
        return sizes
    return [
        *sizes,
        *(
            f"{s.name}={value}"
            for s in signature.scalars
            if s.name in reference.accepted and (value := other_value(s))
        ),
    ]


def _width_code(signature: Signature, name: str) -> str:
    axes = [axis for tensor in signature.parameters for axis in tensor.shape if width_name(axis) == name]
    return f"{name}={signature.size(axes[0])}"


def _initial(tensor: TensorSpec, *, scaled: bool = False) -> str:
    sizes = [axis if axis.isdigit() else width_name(axis) for axis in tensor.shape]
    shape = sizes[0] if len(sizes) == 1 else f"({', '.join(sizes)})"
    if tensor.init == "half":
        return f"torch.full(({', '.join(sizes)}{',' if len(sizes) == 1 else ''}), 0.5)"
    value = f"torch.{tensor.init or 'ones'}({shape})"
    return f"{value} / {sizes[-1]} ** 0.5" if scaled and tensor.init == "randn" else value


def docstring_text(text: str) -> str:
    """Text that can stand in a one-line docstring: no quotes or backslashes that would end it, no line breaks."""
    return " ".join(text.replace("\\", "\\\\").replace('"', "'").split())


def literal(value: float | bool | str) -> str:
    """Code for a scalar's value; infinities and NaN have no literal of their own."""
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)
