"""A check run of a pull request as GitHub takes it: conclusion, title, Markdown and annotations within its limits. Pure."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agents.profiles import Strict
from runners.protocol import Gate

MAX_MARKDOWN = 65_535  # characters of a summary and of a text
MAX_TITLE = 255
MAX_MESSAGE = 4_000  # GitHub takes 64 KB; a reader takes less
ANNOTATIONS_A_REQUEST = 50

Conclusion = Literal["success", "failure", "neutral", "action_required", "timed_out"]


class Annotation(Strict):
    """A finding at a line of a file."""

    path: str
    line: int = Field(ge=1)
    message: str
    level: Literal["notice", "warning", "failure"]
    title: str = ""


class CheckResult(Strict):
    """What one gate found, ready to be shown as a check run."""

    name: str = Field(description='"liger-bot / style", …')
    conclusion: Conclusion
    title: str = Field(description="one line")
    summary: str = Field(description="Markdown, the tables")
    text: str = Field(default="", description="Markdown, logs and details")
    annotations: list[Annotation] = Field(default_factory=list)

    @property
    def passed(self) -> bool:
        """True when nothing here blocks a merge."""
        return self.conclusion in ("success", "neutral")

    def annotation_batches(self) -> list[list[Annotation]]:
        """The annotations in requests of a size that GitHub takes."""
        size = ANNOTATIONS_A_REQUEST
        return [self.annotations[start : start + size] for start in range(0, len(self.annotations), size)]


def check_name(gate: Gate) -> str:
    """The check run's name."""
    return f"liger-bot / {gate.value}"
