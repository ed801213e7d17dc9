"""The target repository's own kernels for the ops we derive, called the way its modules call them.

Each takes the op's tensors in catalog order and returns the output(s). Only imported where liger_kernel is installed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def incumbents() -> dict[str, Callable[..., Any]]:
    """Catalog name -> Liger's kernel for it. Names whose kernel this release lacks are left out."""
    from liger_kernel import ops

    def has(name: str) -> bool:
        return hasattr(ops, name)

    found: dict[str, Callable[..., Any]] = {}
    if has("LigerReLUSquaredFunction"):
        found["relu_squared"] = ops.LigerReLUSquaredFunction.apply
    found["swiglu"] = ops.LigerSiLUMulFunction.apply
    found["geglu"] = ops.LigerGELUMulFunction.apply
    found["rms_norm"] = lambda x, w: ops.LigerRMSNormFunction.apply(x, w, 1e-6, 0.0, "llama", False)
    found["rms_norm_gemma"] = lambda x, w: ops.LigerRMSNormFunction.apply(x, w, 1e-6, 1.0, "gemma", False)
    found["layer_norm"] = lambda x, w, b: ops.LigerLayerNormFunction.apply(x, w, b, 1e-5)
    found["softmax"] = ops.LigerSoftmaxFunction.apply
    found["dyt"] = ops.LigerDyTFunction.apply
    found["fused_add_rms_norm"] = lambda x, r, w: ops.LigerFusedAddRMSNormFunction.apply(
        x, r, w, 1e-6, 0.0, "llama", False
    )
    found["cross_entropy"] = lambda x, t: ops.LigerCrossEntropyFunction.apply(
        x, t, None, -100, 0.0, 0.0, "mean", None, False
    )[0]
    found["kl_div"] = lambda p, t: ops.LigerKLDivLossFunction.apply(p, t, "batchmean", False, 1e-10)
    found["jsd"] = ops.LigerJSDFunction.apply
    found["tvd"] = ops.LigerTVDLossFunction.apply
    return found
