"""The generated unit test: module and functional against the reference, and strided inputs. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agents.conventions import Conventions
from agents.dev.reference_in_test import RenamedReference
from agents.dev.signature import Signature, other_value
from agents.dev.skeletons import constructor_arguments, render, shared_blanks
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
# Behind a linear layer every row costs a whole vocabulary: small sizes, and more rows than one chunk of them has.
LINEAR_ROWS = ((2, 24, 64), (1, 1, 33), (3, 7, 96))
LINEAR_RANKED = ((48, 64), (7, 33), (33, 96))
# Of a profile that states none: the kernel rounds once to 8 bits, twice where the reference has a cast of its own.
TOLERANCES = {"float32": {"atol": 1e-5, "rtol": 1e-5}, "bfloat16": {"atol": 2e-2, "rtol": 2e-2}}


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
        **shared_blanks(profile, signature, conventions, reference),
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
        integer_output=signature.integer_output,
        other_constructor_arguments=constructor_arguments(signature, reference, other=True),
        parameter_targets=", ".join(f"{t.name}1" for t in signature.parameters)
        + ("," if len(signature.parameters) == 1 else ""),
        calls=_calls(signature, is_module=profile.op.kind == "module"),
    )


def _calls(signature: Signature, *, is_module: bool) -> dict[str, list[str]]:
    """Argument lists of the calls in a test: side 1 is the reference's, in its order, side 2 ours, in the kernel's."""
    theirs, ours = signature.tensors, signature.ordered_tensors
    their_inputs, our_inputs = [t for t in theirs if not t.learnable], signature.inputs
    others = [
        f"{scalar.name}={value}" for scalar in signature.scalars if (value := other_value(scalar)) is not None
    ]

    def call(tensors: Sequence[TensorSpec], side: int) -> list[str]:
        return [_value(tensor, side) for tensor in tensors]

    def strided(tensors: Sequence[TensorSpec], side: int) -> list[str]:
        wide = "[..., ::2]"
        return [
            _value(tensor, side) + (wide if signature.shape_code(tensor) == "shape" else "")
            for tensor in tensors
        ]

    return {
        "reference": call(theirs, 1),
        "reference_inputs": call(their_inputs, 1),
        "module": call(our_inputs, 2),
        "other_reference": [*call(theirs, 1), *([] if is_module else others)],
        "other_functional": [*call(ours, 2), *others],
        "strided_reference": strided(theirs, 1),
        "strided_reference_inputs": strided(their_inputs, 1),
        "strided_functional": strided(ours, 2),
    }


def _value(tensor: TensorSpec, side: int) -> str:
    return f"{tensor.name}{side}" if tensor.needs_grad and tensor.dtype == "float" else f"_{tensor.name}"


def _tolerance(profile: KernelProfile, dtype: str) -> dict[str, str]:
    values = {**TOLERANCES[dtype], **profile.tolerances.get(dtype, {})}
    return {name: f"{value:g}".replace("e-0", "e-") for name, value in values.items()}


def _shapes(rows: Sequence[tuple[int, ...]], signature: Signature, multiples: Mapping[str, int]) -> str:
    """`rows` for an op over the last axis of any tensor, else shapes of the rank that it names; sizes that the op accepts."""
    axes = signature.main.shape
    named = [axis for axis in axes if axis != "*"]
    if signature.logits:
        shapes = LINEAR_ROWS if axes[0] == "*" else LINEAR_RANKED
    else:
        shapes = rows if axes[0] == "*" and len(named) == 1 else RANKED[len(axes)][: len(rows)]
    fitting = []
    for shape in shapes:
        free = shape[: len(shape) - len(named)]
        sizes = zip(named, shape[len(free) :], strict=True)
        fitting.append(
            (*free, *(-(-size // multiples.get(axis, 1)) * multiples.get(axis, 1) for axis, size in sizes))
        )
    return repr(list(dict.fromkeys(fitting)))
