"""A model patch as a candidate: file edits for the target repository and the words that go with them. Pure."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Change = Literal[
    "norm_unpatched", "norm_not_in_place", "mlp_unpatched", "rope_unpatched", "output_field_dropped"
]


class Repair(BaseModel):
    """One change of the plan after a failed check: what of the model is left alone, or done more carefully, and why."""

    model_config = ConfigDict(extra="forbid")

    attempt: int = Field(ge=1)
    check: str = Field(description='the check that failed, "model/parity/class_bfloat16"')
    change: Change
    part: str = Field(description='class, function or field: "ArceeRMSNorm", "apply_rotary_pos_emb"')
    why: str = Field(description="what was measured, for people; plain text of a runner, so data")


class ModelCandidate(BaseModel):
    """What autopatch's act stage produces; the verify stage judges it."""

    model_config = ConfigDict(extra="forbid")

    files: dict[str, str] = Field(description="path in the target repository -> whole new text")
    created: list[str] = Field(default_factory=list, description="paths in `files` that did not exist before")
    beyond: list[str] = Field(
        default_factory=list, description="files beyond the usual thirteen, each with why, as sentences"
    )
    left_out: list[str] = Field(
        default_factory=list, description="usual edits that this checkout has no place for, as sentences"
    )
    function: str = Field(description='"apply_liger_kernel_to_nemotron"')
    flags: dict[str, bool] = Field(description="boolean parameters that change something -> their defaults")
    unsupported: list[str] = Field(default_factory=list, description="boolean parameters that only warn")
    tests: list[str] = Field(description="pytest arguments of the new tests that need no GPU")
    convergence: list[str] = Field(
        default_factory=list, description="pytest arguments of the convergence tests"
    )
    imports: list[str] = Field(default_factory=list, description='"module:symbol" that must import')
    originals: dict[str, str] = Field(
        default_factory=dict, description="edited path -> its text before, for a repair and for a baseline"
    )
    repairs: list[Repair] = Field(
        default_factory=list, description="changes of the plan since the profile, oldest first"
    )
    ruff: str | None = None
    unclean_before: list[str] = Field(default_factory=list)
    commit_message: str
    pull_title: str
    pull_body: str
