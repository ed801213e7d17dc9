"""A candidate: a set of file edits for the target repository, and the words that go with it. Pure."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from runners.protocol import KernelTarget


class Candidate(BaseModel):
    """What the act stage produces; the verify stage judges it."""

    model_config = ConfigDict(extra="forbid")

    files: dict[str, str] = Field(
        description="path in the target repository -> whole new text, formatted by its rules"
    )
    created: list[str] = Field(default_factory=list, description="paths in `files` that did not exist before")
    target: KernelTarget
    tests: list[str] = Field(description="generated tests, as pytest arguments")
    neighbours: list[str] = Field(
        default_factory=list, description="existing tests that an export could break"
    )
    imports: list[str] = Field(
        default_factory=list, description='"module" or "module:symbol" that must import'
    )
    ruff: str | None = Field(
        default=None, description="the target's own ruff requirement, as its conventions state it"
    )
    unclean_before: list[str] = Field(
        default_factory=list,
        description="edited files that the runner's ruff finds fault with before the change; style is judged on the others",
    )
    commit_message: str
    pull_title: str
    pull_body: str
