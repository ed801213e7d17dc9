"""A small kernel profile for tests of what is shown."""

from __future__ import annotations

from typing import Any

from agents.profiles import Decision, Evidence, KernelProfile, PlannedFile, Roofline, TensorEntry
from kernels.op_spec import OpSpec, TensorSpec

SOURCE = "import torch\n\n\ndef relu_squared(x):\n    return torch.relu(x).square()\n"


def kernel_profile(**changes: Any) -> KernelProfile:
    """The profile of ReLU², short."""
    profile = KernelProfile(
        operation_name="relu_squared",
        function_class_name="LigerReLUSquaredFunction",
        module_class_name="LigerReLUSquared",
        functional_name="liger_relu_squared",
        tier=1,
        tier_description="element-wise",
        closest_existing_kernel="swiglu",
        forward_inputs=[TensorEntry(name="x", shape="(*, n_cols)", dtype="same as input")],
        forward_outputs=[TensorEntry(name="y", shape="(*, n_cols)", dtype="same as input")],
        forward_computation="y = max(x, 0)²",
        precision_sensitive_ops=[],
        backward_saved_tensors=["x"],
        backward_recompute=[],
        gradient_formulas={"x": "2 * max(x, 0) * dy"},
        grid_dimensions="1D",
        grid_description="one program per row",
        block_size_source="calculate_settings(n_cols)",
        needs_sm_parallelism=False,
        module_init_params=[],
        learnable_params=[],
        benchmark_variable="hidden_size",
        benchmark_x_label="hidden size",
        benchmark_x_values_suggestion=[1024, 4096],
        benchmark_providers=["liger", "torch"],
        benchmark_fixed_config={"BT": 8192},
        op=OpSpec(
            name="relu_squared",
            entry="relu_squared",
            source=SOURCE,
            tensors=(TensorSpec(name="x", shape=("*", "n_cols")),),
        ),
        source="arXiv:2109.08668",
        decisions=[
            Decision(
                name="backward_saved_tensors",
                value="x",
                why="everything else follows from it",
                evidence=[Evidence(kind="read", text="saved", where="src/liger_kernel/ops/swiglu.py:40")],
            )
        ],
        files=[PlannedFile(path="src/liger_kernel/ops/relu_squared.py", action="create", why="the kernel")],
        roofline=[
            Roofline(
                shape="8192 x 4096, bfloat16",
                bandwidth_tbps=4.28,
                bandwidth_source="measured",
                forward_bytes=134_217_728,
                backward_bytes=201_326_592,
                eager_forward_bytes=268_435_456,
                eager_backward_bytes=671_088_640,
                forward_floor_ms=0.031,
                backward_floor_ms=0.047,
                predicted_forward_speedup=2.0,
                predicted_backward_speedup=3.33,
                peak_bytes=4,
                eager_peak_bytes=5,
                predicted_memory_saving_pct=20.0,
            )
        ],
        risks=["Nothing was timed yet."],
        tolerances={"bfloat16": {"atol": 0.01, "rtol": 0.01}},
        conventions={"version": "0.7.0"},
        base_sha="0" * 40,
        traced={"nodes": []},
    )
    return profile.model_copy(update=changes)
