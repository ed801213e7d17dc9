"""`/liger dev` as a command's agent."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

from agents.candidate import Candidate
from agents.command_agent import Payload, Place, Wanted
from agents.dev import act, repair, revise, understand, verify
from agents.dev.check_result import CheckResult
from agents.dev.github_url import FetchedReference
from agents.dev.inputs import OpInput, classify
from agents.dev.refused import Refused
from agents.profiles import KernelProfile
from runners.protocol import Gate, Report


class DevAgent:
    """A kernel from an op."""

    candidate_type = Candidate
    doing = "writing kernels, tests and benchmark"
    without_job = "nothing of a kernel in this change"

    def wanted(self, text: str, block: str | None, host: str) -> Wanted | Refused:
        """The op that the words name."""
        found = classify(text, block, host=host)
        return found if isinstance(found, Refused) else Wanted(op_key(found, block), found.url)

    async def understand(
        self, text: str, block: str | None, place: Place, fetched: FetchedReference | None = None
    ) -> KernelProfile | Refused:
        """See agents.dev.understand."""
        return await understand.understand(
            text,
            block,
            place.tree,
            place.bench,
            place.model,
            fetched,
            place.base_sha,
            place.on_progress,
            host=place.host,
        )

    async def revise(
        self, profile: KernelProfile, changes: Mapping[str, str], place: Place
    ) -> KernelProfile | Refused:
        """See agents.dev.revise."""
        return await revise.revise(profile, changes, place.tree, place.bench, place.on_progress)

    async def act(self, profile: KernelProfile, place: Place) -> Candidate:
        """See agents.dev.act."""
        return await act.act(profile, place.tree, place.bench, checkout=place.checkout)

    def plan(
        self, profile: KernelProfile, candidate: Candidate, checkout: str, sha: str, seed: int
    ) -> Mapping[Gate, Payload]:
        """All four gates."""
        return verify.plan(profile, candidate, checkout, sha, seed)

    def judge(self, gate: Gate, report: Report, profile: KernelProfile) -> CheckResult:
        """See agents.dev.verify."""
        return verify.judge(gate, report, profile)

    async def repair(
        self,
        profile: KernelProfile,
        candidate: Candidate,
        reports: Mapping[Gate, Report],
        place: Place,
        attempt: int,
    ) -> Candidate | None:
        """See agents.dev.repair."""
        return await repair.repair(
            profile, candidate, reports, place.bench, place.model, attempt=attempt, checkout=place.checkout
        )

    def subject(self, profile: KernelProfile) -> str:
        """The operation's name."""
        return profile.operation_name


def op_key(found: OpInput, block: str | None) -> str:
    """What makes two requests the same op: the known op, or else the words and the block."""
    if found.known is not None and block is None:
        return found.known
    words = re.sub(r"\s+", " ", found.text.casefold()).strip()
    if block is not None:
        words += "#" + hashlib.sha256(block.encode()).hexdigest()[:16]
    return words if len(words) <= 200 else hashlib.sha256(words.encode()).hexdigest()
