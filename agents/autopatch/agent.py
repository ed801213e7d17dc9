"""`/liger autopatch` as a command's agent."""
# ruff: noqa: ARG002 - the interface is that of every command; a model patch needs less of it

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from agents.autopatch import verify
from agents.autopatch.act import act
from agents.autopatch.model_candidate import ModelCandidate
from agents.autopatch.model_profile import ModelProfile
from agents.autopatch.planned import planned
from agents.autopatch.repair import repair
from agents.autopatch.revise import revise
from agents.autopatch.understand import ask, understand
from agents.command_agent import Payload, Place, Wanted
from agents.conventions import NotAKernelLibrary, detect
from agents.dev.check_result import CheckResult
from agents.dev.github_url import FetchedReference
from agents.dev.refused import Refused
from agents.dev.verify import judge
from runners.protocol import Gate, Report


class AutopatchAgent:
    """A patch of a model of the installed transformers."""

    candidate_type = ModelCandidate
    doing = "writing the patch, its exports and its tests"
    without_job = "no kernels in this change"

    def wanted(self, text: str, block: str | None, host: str) -> Wanted | Refused:
        """The model that the words, or the config below them, name."""
        asked = ask(text, block)
        if isinstance(asked, Refused):
            return asked
        words = " ".join([asked.text.casefold(), *sorted(asked.requested)])
        if block is not None:
            words += "#" + hashlib.sha256(block.encode()).hexdigest()[:16]
        return Wanted(words[:200])

    async def understand(
        self, text: str, block: str | None, place: Place, fetched: FetchedReference | None = None
    ) -> ModelProfile | Refused:
        """Inspect the model on a runner, decide, and plan the files. Raises AnalysisFault."""
        asked = ask(text, block)
        if isinstance(asked, Refused):
            return asked
        try:
            detect(place.tree)
        except NotAKernelLibrary as error:
            return Refused(reason=str(error))
        profile = await understand(
            asked, place.checkout, place.bench, place.tree, place.base_sha, place.on_progress
        )
        return profile if isinstance(profile, Refused) else planned(profile, place.tree)

    async def revise(
        self, profile: ModelProfile, changes: Mapping[str, str], place: Place
    ) -> ModelProfile | Refused:
        """Take a person's decision in place of a rule's, and plan the files again."""
        revised = revise(profile, changes)
        return revised if isinstance(revised, Refused) else planned(revised, place.tree)

    async def act(self, profile: ModelProfile, place: Place) -> ModelCandidate:
        """See agents.autopatch.act."""
        return await act(profile, place.tree, place.bench, checkout=place.checkout)

    def plan(
        self, profile: ModelProfile, candidate: ModelCandidate, checkout: str, sha: str, seed: int
    ) -> Mapping[Gate, Payload]:
        """Style and correctness: a model patch has no kernels to compile or time."""
        return verify.plan(profile, candidate, checkout, sha)

    def judge(self, gate: Gate, report: Report, profile: ModelProfile) -> CheckResult:
        """As for any candidate: verdicts mean the same whichever command made them."""
        return judge(gate, report)

    async def repair(
        self,
        profile: ModelProfile,
        candidate: ModelCandidate,
        reports: Mapping[Gate, Report],
        place: Place,
        attempt: int,
    ) -> ModelCandidate | None:
        """See agents.autopatch.repair."""
        return await repair(
            profile,
            candidate,
            reports,
            place.tree,
            place.bench,
            attempt=attempt,
            checkout=place.checkout,
        )

    def subject(self, profile: ModelProfile) -> str:
        """The model type."""
        return profile.model_type
