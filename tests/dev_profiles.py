"""Profiles of small ops for tests of what is generated around a kernel; their traced graph is left empty."""

from __future__ import annotations

from typing import Any

from agents.profiles import KernelProfile
from kernels.op_spec import OpSpec, ScalarSpec, TensorSpec

FULL, COLUMN = ("*", "n_cols"), ("n_cols",)

RELU_SQUARED = OpSpec(
    name="relu_squared",
    entry="relu_squared",
    source="import torch\nimport torch.nn.functional as F\n\n\ndef relu_squared(x):\n    return torch.square(F.relu(x))\n",
    tensors=(TensorSpec(name="x", shape=FULL),),
    summary="y = max(x, 0)²",
)
GATE = OpSpec(
    name="soft_gate",
    entry="gate",
    source="import torch\n\n\ndef gate(a, b, cap=30.0):\n    return cap * torch.tanh(a / cap) * b\n",
    tensors=(TensorSpec(name="a", shape=FULL), TensorSpec(name="b", shape=FULL)),
    scalars=(ScalarSpec(name="cap", default=30.0),),
    summary="y = cap tanh(a / cap) b",
)
SCALED = OpSpec(
    name="scaled_tanh",
    entry="ScaledTanh",
    kind="module",
    source=(
        "import torch\nfrom torch import nn\n\n\nclass ScaledTanh(nn.Module):\n    def __init__(self, dim, alpha=0.5):\n"
        "        super().__init__()\n        self.alpha = alpha\n        self.weight = nn.Parameter(torch.ones(dim))\n\n"
        "    def forward(self, x):\n        return self.weight * torch.tanh(self.alpha * x)\n"
    ),
    tensors=(
        TensorSpec(name="x", shape=FULL),
        TensorSpec(name="weight", shape=COLUMN, learnable=True, init="ones"),
    ),
    scalars=(ScalarSpec(name="alpha", default=0.5),),
    summary="y = w tanh(α x)",
)
MASKED_LOSS = OpSpec(
    name="masked_loss",
    entry="masked_loss",
    source="import torch\n\n\ndef masked_loss(x, target, mask):\n    return (x * mask).gather(-1, target[..., None])[..., 0]\n",
    tensors=(
        TensorSpec(name="x", shape=FULL),
        TensorSpec(name="target", shape=("*",), dtype="int64", needs_grad=False),
        TensorSpec(name="mask", shape=FULL, dtype="bool", needs_grad=False),
    ),
)
STEMS = {
    "relu_squared": "ReLUSquared",
    "soft_gate": "SoftGate",
    "scaled_tanh": "ScaledTanh",
    "masked_loss": "MaskedLoss",
}


def kernel_profile(op: OpSpec, **changes: Any) -> KernelProfile:
    """A profile of `op`, every field filled with something plain."""
    stem = STEMS[op.name]
    fields: dict[str, Any] = {
        "operation_name": op.name,
        "function_class_name": f"Liger{stem}Function",
        "module_class_name": f"Liger{stem}",
        "functional_name": f"liger_{op.name}",
        "tier": 1,
        "tier_description": "element-wise",
        "closest_existing_kernel": "gate",
        "forward_inputs": [],
        "forward_outputs": [],
        "forward_computation": op.summary,
        "precision_sensitive_ops": [],
        "backward_saved_tensors": ["x"],
        "backward_recompute": [],
        "gradient_formulas": {},
        "grid_dimensions": "1D",
        "grid_description": "one program per row",
        "block_size_source": "calculate_settings(n_cols)",
        "needs_sm_parallelism": False,
        "module_init_params": [],
        "learnable_params": [],
        "benchmark_variable": "hidden_size",
        "benchmark_x_label": "hidden size",
        "benchmark_x_values_suggestion": [1024, 2048],
        "benchmark_providers": ["liger", "torch", "torch_compile"],
        "benchmark_fixed_config": {"BT": 8192, "dtype": "torch.bfloat16"},
        "op": op,
        "source": "the catalog",
        "decisions": [],
        "files": [],
        "roofline": [],
        "risks": [],
        "tolerances": {"float32": {"atol": 1e-5, "rtol": 1e-5}, "bfloat16": {"atol": 1e-2, "rtol": 1e-2}},
        "conventions": {},
        "traced": {},
    }
    return KernelProfile(**{**fields, **changes})
