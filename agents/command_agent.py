"""What a command's agent is: the three stages of one verb, behind one interface. Pure.

`app` drives every command the same way; what differs between a kernel and a model patch is in the agent. `agents.dev.agent`
and `agents.autopatch.agent` implement it, `agents.registry` finds the one of a verb.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Protocol, TypeVar

from pydantic import BaseModel, Field, TypeAdapter

from agents.autopatch.model_profile import ModelProfile
from agents.dev.check_result import CheckResult, check_name
from agents.dev.github_url import FetchedReference, GitHubUrl
from agents.dev.refused import Refused
from agents.ports import Bench, Model, OnProgress, Tree
from agents.profiles import KernelProfile
from runners.protocol import (
    BenchmarkPayload,
    CompilePayload,
    CorrectnessPayload,
    Gate,
    Report,
    StylePayload,
    VerifyModelPayload,
)

AnyProfile = KernelProfile | ModelProfile
Payload = StylePayload | CorrectnessPayload | CompilePayload | BenchmarkPayload | VerifyModelPayload
_STORED = TypeAdapter(Annotated[AnyProfile, Field(discriminator="kind")])
P = TypeVar("P", KernelProfile, ModelProfile)


def read_profile(body: Mapping[str, Any]) -> AnyProfile:
    """A stored profile, of whichever command. Raises ValidationError."""
    return _STORED.validate_python(dict(body))


class AnyCandidate(Protocol):
    """What every candidate has, whichever command it answers: file edits and the words that go with them."""

    files: dict[str, str]
    commit_message: str
    pull_title: str
    pull_body: str

    def model_dump(self, *, mode: str) -> dict[str, Any]: ...


C = TypeVar("C", bound=BaseModel)


@dataclass(frozen=True)
class Wanted:
    """A command's words, understood so far that work can start.

    key: equal for two requests of the same thing · url: code that `app` has to fetch before.
    """

    key: str
    url: GitHubUrl | None = None


@dataclass(frozen=True)
class Place:
    """Where an agent works: a checkout of the target repository, a bench for jobs, and a model when one is configured."""

    tree: Tree
    checkout: str  # the runner's path of the tree
    bench: Bench
    model: Model | None = None
    base_sha: str = ""
    host: str = "github.com"  # where links may point to
    on_progress: OnProgress | None = None


class CommandAgent(Protocol[P, C]):
    """One verb's three stages. P: its profile; C: its candidate."""

    candidate_type: type[C]
    doing: str  # what the act stage writes, for people
    without_job: str  # why a gate may have no job: "no kernels in this change"

    def wanted(self, text: str, block: str | None, host: str) -> Wanted | Refused:
        """What the command's words ask for, or why they can't be followed. Pure and quick."""
        ...

    async def understand(
        self, text: str, block: str | None, place: Place, fetched: FetchedReference | None = None
    ) -> P | Refused:
        """The profile. Raises ModelError, AnalysisFault."""
        ...

    async def revise(self, profile: P, changes: Mapping[str, str], place: Place) -> P | Refused:
        """The profile with a person's changes, all of them or none. Raises AnalysisFault."""
        ...

    async def act(self, profile: P, place: Place) -> C:
        """The candidate of an approved profile. Raises ActFailed, AnchorMissing, NotAKernelLibrary, Unsupported."""
        ...

    def plan(self, profile: P, candidate: C, checkout: str, sha: str, seed: int) -> Mapping[Gate, Payload]:
        """One job payload a gate. A gate without one has nothing to judge in this command's candidates."""
        ...

    def judge(self, gate: Gate, report: Report, profile: P) -> CheckResult:
        """The check run that a report amounts to."""
        ...

    async def repair(
        self, profile: P, candidate: C, reports: Mapping[Gate, Report], place: Place, attempt: int
    ) -> C | None:
        """A candidate that may pass, or None when nothing is known to try. Raises ModelError."""
        ...

    def subject(self, profile: P) -> str:
        """The name of what is made, for a branch: an operation, a model type."""
        ...


def nothing_to_judge(gate: Gate, what: str) -> CheckResult:
    """The check run of a gate that has no job. what: "no kernels in this change"."""
    return CheckResult(
        name=check_name(gate),
        conclusion="neutral",
        title=f"Not applicable: {what}",
        summary=f"There are {what}.",
    )
