"""Generated files around a kernel: module, functional, unit test and benchmark script, from Jinja2 skeletons. Pure.

The skeletons hold code's shape only; every expression of the mathematics comes from the reference or the printer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jinja2

from agents.conventions import Conventions
from agents.dev.reference_in_test import RenamedReference
from agents.dev.signature import Signature, other_value, width_name
from agents.profiles import KernelProfile
from kernels.op_spec import TensorSpec

# Few program instances (the interpreter pays for each), yet odd widths, one row, and widths of real models.
ROWS = ((2, 8, 4096), (4, 16, 2048), (1, 1, 1023), (3, 7, 256), (2, 8), (1, 4096))
FUNCTIONAL_ROWS = ((2, 8, 4096), (1, 1, 1023), (2, 8))
STRIDED_ROWS = ((4, 6, 256), (3, 127))
# For an op that names its axes, by rank. None is of size 1: a statistic over one element is singular.
RANKED = {
    1: ((4096,), (129,)),
    2: ((64, 512), (7, 129), (33, 256)),
    3: ((3, 8, 128), (2, 7, 33), (2, 32, 64)),
    4: ((2, 4, 8, 32), (3, 2, 5, 18), (2, 8, 2, 64)),
    5: ((2, 3, 4, 8, 16), (3, 2, 5, 7, 10)),
}
TOLERANCES = {"float32": {"atol": 1e-5, "rtol": 1e-5}, "bfloat16": {"atol": 1e-1, "rtol": 5e-2}}

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
        parameters=[{"name": tensor.name, "initial": _initial(tensor)} for tensor in signature.parameters],
        inputs=[tensor.name for tensor in signature.inputs],
        apply_arguments=[
            name if name in {tensor.name for tensor in signature.inputs} else f"self.{name}"
            for name in signature.order
        ],
    )


def functional_code(profile: KernelProfile, signature: Signature) -> str:
    """The function for transformers/functional.py."""
    parameters = [name for name in signature.order if not _is_scalar(signature, name)]
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


def unit_test_file(
    profile: KernelProfile,
    signature: Signature,
    conventions: Conventions,
    reference: RenamedReference,
    multiples: Mapping[str, int],
) -> str:
    """test/transformers/test_{op}.py: module and functional against the reference, and strided inputs.

    `multiples`: axis -> what its size must be a multiple of.
    """
    return render(
        "test.py.jinja",
        **_shared(profile, signature, conventions, reference),
        extra_info=conventions.allclose_extra_info,
        future_imports=reference.future,
        reference_imports=reference.imports,
        reference_code=reference.code,
        tolerances={dtype: _tolerance(profile, dtype) for dtype in TOLERANCES},
        shapes=_shapes(ROWS, signature, multiples),
        functional_shapes=_shapes(FUNCTIONAL_ROWS, signature, multiples),
        strided_shapes=_shapes(STRIDED_ROWS, signature, multiples),
        row_output=signature.row_output,
        same_dtype=signature.same_dtype,
        other_constructor_arguments=_constructor(signature, reference, other=True),
        parameter_targets=", ".join(f"{t.name}1" for t in signature.parameters)
        + ("," if len(signature.parameters) == 1 else ""),
        calls=_calls(signature, is_module=profile.op.kind == "module"),
    )


def benchmark_file(
    profile: KernelProfile, signature: Signature, conventions: Conventions, reference: RenamedReference
) -> str:
    """benchmark/scripts/benchmark_{op}.py in the checkout's generation of the benchmark API."""
    fixed = {name: value for name, value in profile.benchmark_fixed_config.items() if isinstance(value, int)}
    width_key = next(
        (key for key in ("vocab_size", "intermediate_size") if key in (*fixed, profile.benchmark_variable)),
        "hidden_size",
    )
    sweeps_width = profile.benchmark_variable in (
        "hidden_size",
        "vocab_size",
        "intermediate_size",
        "n_cols",
        "H",
        "V",
        "N",
    )
    fixed_value = next(iter(fixed.values()), 4096)
    return render(
        f"benchmark_{conventions.benchmark_api}.py.jinja",
        **_shared(profile, signature, conventions, reference),
        bytes_per_token_sweep=conventions.bytes_per_token_sweep,
        width_key=width_key,
        sweeps_width=sweeps_width,
        fixed_code=f'"{"BT" if sweeps_width else width_key}": {fixed_value}',
        x_name=width_key if sweeps_width else "BT",
        x_label=width_key.replace("_", " ") if sweeps_width else "total tokens",
        x_values=repr(list(profile.benchmark_x_values_suggestion)),
        layer_reference_arguments=[
            f"liger_layer.{name}" if signature.is_parameter(name) else name
            for name in _tensor_order(signature)
        ],
    )


def _shared(
    profile: KernelProfile, signature: Signature, conventions: Conventions, reference: RenamedReference
) -> dict[str, Any]:
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
        "constructor_arguments": _constructor(signature, reference),
        "module_widths": [_width_code(signature, name) for name in signature.widths],
        "inputs": [_tensor_context(signature, tensor) for tensor in signature.inputs],
        "input_names": [tensor.name for tensor in signature.inputs],
        "parameters": [_tensor_context(signature, tensor) for tensor in signature.parameters],
        "tensors": [_tensor_context(signature, tensor) for tensor in _tensors_in_order(signature)],
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


def _calls(signature: Signature, *, is_module: bool) -> dict[str, list[str]]:
    """Argument lists of the calls in a test: side 1 is the reference's, side 2 ours."""
    inputs = {tensor.name for tensor in signature.inputs}

    def call(names: Sequence[str], side: int, wrap: Callable[[str], str] = str) -> list[str]:
        return [wrap(_value(signature, name, side)) for name in names]

    def strided(names: Sequence[str], side: int) -> list[str]:
        return [
            _value(signature, name, side)
            + ("[..., ::2]" if signature.shape_code(_spec(signature, name)) == "shape" else "")
            for name in names
        ]

    order = _tensor_order(signature)
    input_order = [name for name in order if name in inputs]
    others = [
        f"{scalar.name}={value}" for scalar in signature.scalars if (value := other_value(scalar)) is not None
    ]
    return {
        "reference": call(order, 1),
        "reference_inputs": call(input_order, 1),
        "module": call(input_order, 2),
        "other_reference": [*call(order, 1), *([] if is_module else others)],
        "other_functional": [*call(order, 2), *others],
        "strided_reference": strided(order, 1),
        "strided_reference_inputs": strided(input_order, 1),
        "strided_functional": strided(order, 2),
    }


def _value(signature: Signature, name: str, side: int) -> str:
    tensor = _spec(signature, name)
    return f"{name}{side}" if tensor.needs_grad and tensor.dtype == "float" else f"_{name}"


def _spec(signature: Signature, name: str) -> TensorSpec:
    return next(tensor for tensor in signature.tensors if tensor.name == name)


def _tensor_order(signature: Signature) -> list[str]:
    return [name for name in signature.order if not _is_scalar(signature, name)]


def _tensors_in_order(signature: Signature) -> list[TensorSpec]:
    return [_spec(signature, name) for name in _tensor_order(signature)]


def _is_scalar(signature: Signature, name: str) -> bool:
    return any(scalar.name == name for scalar in signature.scalars)


def _constructor(signature: Signature, reference: RenamedReference, *, other: bool = False) -> list[str]:
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


def _initial(tensor: TensorSpec) -> str:
    sizes = [axis if axis.isdigit() else width_name(axis) for axis in tensor.shape]
    shape = sizes[0] if len(sizes) == 1 else f"({', '.join(sizes)})"
    if tensor.init == "half":
        return f"torch.full(({', '.join(sizes)}{',' if len(sizes) == 1 else ''}), 0.5)"
    return f"torch.{tensor.init or 'ones'}({shape})"


def _tolerance(profile: KernelProfile, dtype: str) -> dict[str, float]:
    return {**TOLERANCES[dtype], **profile.tolerances.get(dtype, {})}


def _shapes(rows: Sequence[tuple[int, ...]], signature: Signature, multiples: Mapping[str, int]) -> str:
    """`rows` for an op over the last axis of any tensor, else shapes of the rank that it names; sizes that the op accepts."""
    axes = signature.main.shape
    named = [axis for axis in axes if axis != "*"]
    shapes = rows if axes[0] == "*" and len(named) == 1 else RANKED[len(axes)][: len(rows)]
    fitting = []
    for shape in shapes:
        free = shape[: len(shape) - len(named)]
        sizes = zip(named, shape[len(free) :], strict=True)
        fitting.append(
            (*free, *(-(-size // multiples.get(axis, 1)) * multiples.get(axis, 1) for axis, size in sizes))
        )
    return repr(list(dict.fromkeys(fitting)))


def docstring_text(text: str) -> str:
    """Text that can stand in a one-line docstring: no quotes or backslashes that would end it, no line breaks."""
    return " ".join(text.replace("\\", "\\\\").replace('"', "'").split())


def literal(value: float | bool | str) -> str:
    """Code for a scalar's value; infinities and NaN have no literal of their own."""
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)
