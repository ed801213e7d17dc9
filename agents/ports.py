"""The two ports through which agents touch the world: Bench runs jobs, Model answers questions. Pure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, Field

from runners.protocol import Job, Progress, Report

OnProgress = Callable[[Progress], Awaitable[None]]


class Bench(Protocol):
    """Runs one job on some runner and returns its report. Raises only when no runner could be reached."""

    async def run(self, job: Job, on_progress: OnProgress | None = None) -> Report: ...


class ModelRequest(BaseModel):
    """One structured question to a language model."""

    model_config = ConfigDict(extra="forbid")

    purpose: str = Field(description='what it is for, e.g. "reference_from_text"; logged and budgeted by it')
    system: str
    user: str = Field(description="untrusted text goes here, fenced, never into `system`")
    json_schema: dict[str, Any] = Field(description="the reply must be JSON of this schema")
    max_output_tokens: int = 4096


class ModelReply(BaseModel):
    """The model's answer. `data` satisfied the request's schema; it is still a candidate, not a truth."""

    model_config = ConfigDict(extra="forbid")

    data: dict[str, Any]
    model: str
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None


class ModelError(Exception):
    """The model could not be used: not reachable, refused, over budget, or its reply did not fit the schema."""


class Model(Protocol):
    """Asks a language model one structured question. Raises ModelError."""

    async def ask(self, request: ModelRequest) -> ModelReply: ...


class Tree(Protocol):
    """Read-only view of a target checkout."""

    def read(self, path: str) -> str | None:
        """Text of a file, or None when there is no such file (or it is a link or not text)."""
        ...

    def files(self, pattern: str) -> list[str]:
        """Sorted paths matching a glob pattern, relative to the root."""
        ...
