"""What the understand stage has found out about one op: the input of the profile and of its decisions. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from agents.conventions.record import Conventions, ExistingOp
from agents.profiles import Evidence
from kernels.derivation import Derivation
from kernels.traced import TracedOp


@dataclass(frozen=True)
class Origin:
    """Where the op came from and how it got its name."""

    source: str
    stem: str | None = None  # the middle of class names, when not made from the operation's name
    questions: tuple[str, ...] = ()
    name_why: str = ""
    evidence: tuple[Evidence, ...] = ()  # for the name
    probes: tuple[Evidence, ...] = ()  # for the reference


@dataclass(frozen=True)
class Findings:
    """A traced op, its derivation, the checkout's conventions, and the kernel that a reviewer should compare with."""

    traced: TracedOp
    derivation: Derivation
    conventions: Conventions
    origin: Origin
    closest: ExistingOp | None
    closest_why: str
