"""The profiles that people approve: decisions with evidence, hashed. Pure."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from kernels.op_spec import OpSpec


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Evidence(Strict):
    """Where a decision was read, or the probe that proved it."""

    kind: Literal["read", "probe", "rule", "person", "model"]
    text: str = Field(description="what was seen, with numbers")
    where: str | None = Field(default=None, description='"file:line", "reference line 4", a URL')


class Decision(Strict):
    """One engineering decision."""

    name: str = Field(description='a field of the profile, e.g. "backward_saved_tensors"')
    value: str
    why: str
    evidence: list[Evidence] = Field(default_factory=list)


class TensorEntry(Strict):
    """An input or output, as Liger's kernel profile lists it."""

    name: str
    shape: str
    dtype: str


class ModuleParam(Strict):
    """One `__init__` parameter of the generated module."""

    name: str
    type: str
    default: Any = None


class LearnableParam(Strict):
    name: str
    shape: str
    init: str


class PlannedFile(Strict):
    """A file the act stage will touch."""

    path: str
    action: Literal["create", "edit"]
    why: str


class Roofline(Strict):
    """Predicted times at one shape. Predictions are labelled as such wherever they are shown."""

    shape: str = Field(description='"8192 x 4096, bfloat16"')
    bandwidth_tbps: float = Field(description="assumed copy bandwidth, TB/s read+written")
    bandwidth_source: str = Field(description="where that bandwidth was measured")
    forward_bytes: int
    backward_bytes: int
    eager_forward_bytes: int
    eager_backward_bytes: int
    forward_floor_ms: float
    backward_floor_ms: float
    predicted_forward_speedup: float = Field(
        description="eager bytes / our bytes: an upper bound when memory-bound"
    )
    predicted_backward_speedup: float
    peak_bytes: int
    eager_peak_bytes: int
    predicted_memory_saving_pct: float


class KernelProfile(Strict):
    """Liger's kernel profile format, plus evidence, reference, files, bytes model and risks."""

    kind: Literal["kernel"] = "kernel"
    # identity
    operation_name: str
    function_class_name: str
    module_class_name: str
    functional_name: str
    # classification
    tier: Literal[1, 2, 3]
    tier_description: str
    closest_existing_kernel: str
    # forward
    forward_inputs: list[TensorEntry]
    forward_outputs: list[TensorEntry]
    forward_computation: str
    precision_sensitive_ops: list[str]
    # backward
    backward_saved_tensors: list[str]
    backward_recompute: list[str]
    gradient_formulas: dict[str, str]
    # tiling
    grid_dimensions: Literal["1D", "2D"]
    grid_description: str
    block_size_source: str
    needs_sm_parallelism: bool
    rows: Literal["whole", "blocks", "split"] = Field(
        default="whole",
        description="how a reduced row is laid out: by one program as it fits, by one in blocks, or split over programs",
    )
    # module
    module_init_params: list[ModuleParam]
    learnable_params: list[LearnableParam]
    # benchmark
    benchmark_variable: str
    benchmark_x_label: str
    benchmark_x_values_suggestion: list[int]
    benchmark_providers: list[str]
    benchmark_fixed_config: dict[str, Any]
    # beyond Liger's format
    op: OpSpec = Field(description="the reference and the roles of its arguments")
    source: str = Field(description="where the reference came from, for people")
    decisions: list[Decision]
    files: list[PlannedFile]
    roofline: list[Roofline]
    risks: list[str]
    questions: list[str] = Field(
        default_factory=list, description="guesses a person should confirm, with the revise key"
    )
    tolerances: dict[str, dict[str, float]] = Field(description='dtype -> {"atol": …, "rtol": …}')
    conventions: dict[str, str] = Field(description="what was detected in the checkout, for people")
    base_sha: str = Field(default="", description="commit of the target repository that was read")
    traced: dict[str, Any] = Field(
        description="kernels.traced.TracedOp as JSON; machine-made, not shown in full"
    )

    def sha256(self) -> str:
        """Hash of the whole profile; an approval binds to it."""
        body = self.model_dump(mode="json")
        if self.rows == "whole":
            del body["rows"]  # as before there was a choice: a profile that waits keeps its hash
        text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()
