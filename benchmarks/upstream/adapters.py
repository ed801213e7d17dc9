"""One adapter an op: the target's Function signature, answered by a derived variant or handed back. No state, no I/O.

Copied into the overlay, where it runs beside the target's tests: imports torch and the standard library only. An adapter
gets `derived(variant, *arguments)`, which runs a derived Function of references.py by name, and returns what the
target's `apply` returns, or NotOurs with the reason; the overlay then calls the target's own Function and counts it.
Options without influence on the result (in_place, row_mode) are accepted and ignored: a derived kernel never writes
over its inputs.
"""

# ruff: noqa: ARG001 - the signatures are the target's

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Derived = Callable[..., Any]
WIDEST_BLOCK = 65536  # columns; a kernel that keeps its row in one block refuses more


@dataclass(frozen=True)
class NotOurs:
    """Why no derived variant answers this call."""

    reason: str


@dataclass(frozen=True)
class Adapter:
    """module, function: what is replaced in liger_kernel.ops · test: the file of the target's tests for it.

    Two adapters may answer the same Function; an overlay holds one of them.
    """

    name: str
    module: str
    function: str
    test: str
    adapt: Callable[..., Any]


def relu_squared(derived: Derived, x: Tensor) -> Any:
    return derived("relu_squared", x)


def swiglu(
    derived: Derived, a: Tensor, b: Tensor, gate_multiplier: float = 1.0, down_multiplier: float = 1.0
) -> Any:
    if type(a).__name__ == "DTensor" or type(b).__name__ == "DTensor":
        return NotOurs("DTensor")
    if gate_multiplier == 1.0 and down_multiplier == 1.0:
        return derived("swiglu", a, b)
    return derived("swiglu_scaled", a, b, float(gate_multiplier), float(down_multiplier))


def geglu(derived: Derived, a: Tensor, b: Tensor) -> Any:
    return derived("geglu", a, b)


def geglu_rounded(derived: Derived, a: Tensor, b: Tensor) -> Any:
    return derived("geglu_rounded", a, b)


def softmax(derived: Derived, x: Tensor) -> Any:
    return derived("softmax", x)


def layer_norm(derived: Derived, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Any:
    return derived("layer_norm", x, weight, bias, eps)


def dyt(derived: Derived, x: Tensor, alpha: Tensor, gamma: Tensor, beta: Tensor | None) -> Any:
    if beta is None:
        return derived("dyt_no_beta", x, alpha.reshape(()), gamma)
    return derived("dyt", x, alpha.reshape(()), gamma, beta)


def group_norm(
    derived: Derived, x: Tensor, weight: Tensor, bias: Tensor, num_channels: int, num_groups: int, eps: float
) -> Any:
    """x: (batch, num_channels, …); the axes after the channels are one to the derived op."""
    rows = x.reshape(x.shape[0], num_channels, -1)
    group = num_channels // num_groups * rows.shape[-1]
    variant = "group_norm" if group <= WIDEST_BLOCK else "group_norm_wide"
    return derived(variant, rows, weight, bias, num_groups, eps).reshape(x.shape)


def poly_norm(
    derived: Derived, x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-6, in_place: bool = True
) -> Any:
    """weight: (3,) for the powers 3, 2, 1."""
    return derived("poly_norm", x, weight[0], weight[1], weight[2], bias.reshape(()), eps)


RMS_NORM_STYLES = {("llama", 0.0): "", ("gemma", 1.0): "_gemma", ("none", 0.0): "_none"}


def rms_norm(
    derived: Derived,
    x: Tensor,
    weight: Tensor | None,
    eps: float,
    offset: float = 0.0,
    casting_mode: str = "llama",
    in_place: bool = True,
    row_mode: bool | None = None,
) -> Any:
    if type(x).__name__ == "DTensor":
        return NotOurs("DTensor")
    style = RMS_NORM_STYLES.get((casting_mode, offset))
    if weight is None:  # nothing to shift: the offset says nothing, and llama and gemma round once each
        return derived("rms_norm_none_no_weight" if casting_mode == "none" else "rms_norm_no_weight", x, eps)
    if style is None:
        return NotOurs(f"casting mode {casting_mode} with offset {offset}")
    return derived(f"rms_norm{style}", x, weight, eps)


def fused_add_rms_norm(
    derived: Derived,
    x: Tensor,
    residual: Tensor,
    weight: Tensor,
    eps: float,
    offset: float = 0.0,
    casting_mode: str = "llama",
    in_place: bool = False,
) -> Any:
    style = RMS_NORM_STYLES.get((casting_mode, offset))
    if style is None:
        return NotOurs(f"casting mode {casting_mode} with offset {offset}")
    return derived(f"fused_add_rms_norm{style}", x, residual, weight, eps)


def rope(
    derived: Derived,
    q: Tensor,
    k: Tensor,
    cos: Tensor,
    sin: Tensor,
    position_ids: Tensor | None = None,
    unsqueeze_dim: int = 1,
) -> Any:
    """q, k: (batch, n_heads, seq_len, head_dim); cos, sin: ([1 or batch,] seq_len, head_dim)."""
    if cos.dim() == 3 and cos.shape[0] == 1:
        cos, sin = cos[0], sin[0]
    if cos.dim() not in (2, 3):
        return NotOurs(f"cos with {cos.dim()} axes")
    variant = "rope" if cos.dim() == 2 else "rope_batched"
    return derived(variant, q, cos, sin), derived(variant, k, cos, sin)


def cross_entropy(
    derived: Derived,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int = -100,
    lse_square_scale: float = 0.0,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
    softcap: float | None = None,
    return_z_loss: bool = False,
    return_token_accuracy: bool = False,
    return_predicted_tokens: bool = False,
) -> Any:
    """Returns (loss, z_loss or None, None, None)."""
    if return_token_accuracy or return_predicted_tokens:
        return NotOurs("token accuracy or predicted tokens are asked for")
    counted = target[target != ignore_index]
    if counted.numel() == 0 or counted.max() >= x.shape[-1] or counted.min() < 0:
        return NotOurs("no target, or one out of bounds: the check on the host is the target's")
    extras = (lse_square_scale, label_smoothing, softcap, weight, return_z_loss)
    if reduction == "mean" and ignore_index == -100 and extras == (0.0, 0.0, None, None, False):
        return derived("cross_entropy", x, target), None, None, None
    variant = (
        "cross_entropy_general" + "_softcap" * (softcap is not None) + "_weighted" * (weight is not None)
    )
    loss, z_loss = derived(
        f"{variant}_{reduction}",
        x,
        target,
        *([] if weight is None else [weight]),
        ignore_index,
        float(lse_square_scale),
        float(label_smoothing),
        *([] if softcap is None else [float(softcap)]),
    )
    return loss, (z_loss.detach() if return_z_loss else None), None, None


def kl_div(
    derived: Derived,
    x: Tensor,
    target: Tensor,
    reduction: str = "batchmean",
    log_target: bool = False,
    eps: float = 1e-10,
) -> Any:
    """eps is a clamp of the target inside its logarithm; the derived op takes 0 · log 0 = 0, as torch does."""
    if reduction == "batchmean" and x.dtype == target.dtype == torch.float32:
        return derived("kl_div_log_target" if log_target else "kl_div", x, target)
    return derived(f"kl_div_{reduction}" + "_log_target" * log_target, x, target)


def jsd(
    derived: Derived,
    x: Tensor,
    target: Tensor,
    shift_labels: Tensor | None = None,
    beta: float = 0.5,
    ignore_index: int = -100,
) -> Any:
    kind = {0.0: "forward", 1.0: "reverse"}.get(float(beta), "between")
    scale = [float(beta)] if kind == "between" else []
    if shift_labels is not None:
        return derived(f"jsd_{kind}_labelled", x, target, shift_labels, *scale, ignore_index)
    return derived("jsd" if kind == "between" else f"jsd_{kind}", x, target, *scale)


def tvd(
    derived: Derived,
    p: Tensor,
    q: Tensor,
    shift_labels: Tensor | None = None,
    reduction: str = "batchmean",
    ignore_index: int = -100,
) -> Any:
    if shift_labels is not None:
        return derived(f"tvd_{reduction}_labelled", p, q, shift_labels, ignore_index)
    if reduction == "batchmean" and p.dtype == q.dtype == torch.float32:
        return derived("tvd", p, q)
    return derived(f"tvd_{reduction}", p, q)


def _adapter(function: str, adapt: Callable[..., Any], module: str = "") -> Adapter:
    module = module or adapt.__name__
    test = f"test/transformers/test_{module}.py"
    return Adapter(adapt.__name__, module, f"Liger{function}Function", test, adapt)


ADAPTERS: dict[str, Adapter] = {
    adapter.name: adapter
    for adapter in (
        _adapter("ReLUSquared", relu_squared),
        _adapter("Softmax", softmax),
        _adapter("DyT", dyt),
        _adapter("GroupNorm", group_norm),
        _adapter("LayerNorm", layer_norm),
        _adapter("PolyNorm", poly_norm),
        _adapter("RMSNorm", rms_norm),
        _adapter("FusedAddRMSNorm", fused_add_rms_norm),
        _adapter("SiLUMul", swiglu),
        _adapter("GELUMul", geglu),
        _adapter("GELUMul", geglu_rounded, "geglu"),
        _adapter("Rope", rope),
        _adapter("CrossEntropy", cross_entropy),
        _adapter("KLDivLoss", kl_div),
        _adapter("JSD", jsd),
        _adapter("TVDLoss", tvd),
    )
}
