"""A candidate's judges on this machine: the interpreter alone, or a GPU and beside it the interpreter, which alone sees
addresses (which program stores where, what lies outside an allocation)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from runners.checks.families import FAMILIES
from runners.gauntlet.session import Gauntlet, OnCase, Outcomes, gauntlet_of
from runners.protocol import KernelTarget, Outcome, Verdict

INTERPRETED_ONLY = tuple(family.name for family in FAMILIES if family.only_on == "the interpreter")
# What runs in the interpreter beside a GPU: families that look at addresses, and cases for them to look at.
BESIDE = ("shapes", "saved_intact", "poison", *INTERPRETED_ONLY)


@dataclass
class Judges:
    """One or two judges that are ready for candidates of one op. Made by `judges_of`."""

    main: Gauntlet
    beside: Gauntlet | None = None

    def run(
        self,
        checkout: Path,
        target: KernelTarget,
        on_case: OnCase = lambda *_: None,
        families: Sequence[str] = (),
    ) -> Outcomes:
        """Run `target`, as it stands in `checkout` (read only), through all families, or those named."""
        wanted = [name for name in BESIDE if not families or name in families]
        if self.beside is None or not wanted:
            return self.main.run(checkout, target, on_case, families)
        if not {"shapes", "saved_intact"} & set(wanted):
            wanted.append("saved_intact")  # cases to look at
        with ThreadPoolExecutor(1) as pool:
            other = pool.submit(self.beside.run, checkout, target, families=wanted)
            outcomes = self.main.run(checkout, target, on_case, families)
            return replace(outcomes, verdicts=joined(outcomes.verdicts, other.result().verdicts))


def joined(main: Sequence[Verdict], beside: Sequence[Verdict]) -> list[Verdict]:
    """`main`, with what `beside` alone could find: what failed only there, and families that run only there."""
    others = {verdict.check: verdict for verdict in beside}
    if "gauntlet" in others:  # the judge beside could not finish, and says so
        return [*main, others["gauntlet"]]
    only_there = {f"gauntlet/{name}" for name in INTERPRETED_ONLY}
    result: list[Verdict] = []
    for verdict in main:
        other = others.get(verdict.check, verdict)
        counts = other.check in only_there or other.outcome is Outcome.failed
        result.append(other if counts and verdict.outcome is not Outcome.failed else verdict)
    return result


@contextlib.contextmanager
def judges_of(target: KernelTarget, **settings: Any) -> Iterator[Judges]:
    """The judges of `target.op` on this machine. settings: of `gauntlet_of`."""
    with contextlib.ExitStack() as stack:
        main = stack.enter_context(gauntlet_of(target, **settings))
        if not main.gpu:
            yield Judges(main)
            return
        beside = gauntlet_of(target, **{**settings, "families": BESIDE, "interpreted": True})
        yield Judges(main, stack.enter_context(beside))
