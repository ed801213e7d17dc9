"""What a gauntlet family is: the cases it contributes, and what it looks at beyond the numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from runners.gauntlet.builder import Builder
from runners.gauntlet.case import Case


@dataclass(frozen=True)
class Judged:
    """A case that ran, its raw observations (from the candidate's sandbox: untrusted), and what its numbers showed."""

    case: Case
    runs: list[dict[str, Any]]
    error: dict[str, str] | None
    problems: list[str] = field(default_factory=list)
    worst_ratio: float = 0.0


Inspect = Callable[[Sequence[Judged]], list[str]]


@dataclass(frozen=True)
class Family:
    """One family of the gauntlet.

    cases: what it runs · inspect: problems seen over its own cases · inspect_all: problems seen over every case of the
    gauntlet · numbers: what its cases' results are held to · only_on: skipped, saying so, on the other · essential: flagged
    where no case can be run.
    """

    name: str
    title: str
    cases: Callable[[Builder], Iterator[Callable[[], Case]]] | None = None
    inspect: Inspect | None = None
    inspect_all: Inspect | None = None
    numbers: Literal["truth", "casts", "none"] = "truth"
    only_on: Literal["a GPU", "the interpreter"] | None = None
    hard: bool = True
    essential: bool = False  # without a case of it a candidate was not judged: a person must look
    nothing_to_test: str = "this op has nothing of the kind"
