"""Which kernel of the checkout a reviewer should compare with. Pure."""

from __future__ import annotations

from agents.conventions.record import Conventions, ExistingOp
from kernels.derivation import Derivation

# Most alike first; the first that the checkout has is taken.
_LOSSES = ("cross_entropy", "kl_div", "jsd", "tvd")
_SOFTMAXES = ("softmax", "sparsemax", "cross_entropy")
_NORMS = ("rms_norm", "layer_norm", "group_norm", "poly_norm")
_ROPES = ("rope", "llama4_rope", "qwen2vl_mrope")
_GATED = ("swiglu", "geglu", "relu_squared")
_PLAIN = ("relu_squared", "swiglu", "geglu", "dyt")
_SCALED = ("dyt", "rms_norm", "layer_norm", "swiglu")


def closest_existing(derivation: Derivation, conventions: Conventions) -> tuple[ExistingOp | None, str]:
    """(the closest op of the checkout, why); None when it has no kernel at all."""
    order, why = _preference(derivation)
    for name in order:
        existing = conventions.existing(name)
        if existing is not None:
            return existing, why
    return (
        conventions.existing_ops[0] if conventions.existing_ops else None
    ), "the checkout has no kernel of this shape"


def _preference(derivation: Derivation) -> tuple[tuple[str, ...], str]:
    op = derivation.op
    full = [operand for operand in derivation.inputs if operand.role == "full"]
    columns = [operand for operand in derivation.inputs if operand.role == "column"]
    words = f"{op.name} {op.summary}".lower()
    if (
        any(tensor.dtype == "int64" for tensor in op.tensors)
        or "loss" in words
        or all(o.role != "full" for o in derivation.outputs)
    ):
        return _LOSSES, "one value per row out of a full row in"
    if "rope" in words:
        return _ROPES, "rotates pairs of columns"
    if derivation.tier > 1 and "softmax" in words:
        return _SOFTMAXES, "normalises a row by a sum of exponentials"
    if derivation.tier > 1:
        return _NORMS, "scales a row by a statistic of it"
    if columns:
        return _SCALED, "element-wise with vectors, one value per column"
    if len(full) > 1:
        return _GATED, f"element-wise with {len(full)} full inputs"
    return _PLAIN, "element-wise with one full input"
