"""A model patch as a candidate: file edits for the target repository and the words that go with them. Pure."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


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
    ruff: str | None = None
    unclean_before: list[str] = Field(default_factory=list)
    commit_message: str
    pull_title: str
    pull_body: str
