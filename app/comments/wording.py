"""The words by which a command's stages and refusals are told; one entry a verb. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Wording:
    """How one command's request is described to people."""

    reading: str  # the state `understanding`
    writing: str  # the state `acting`
    understand: str
    act: str
    refused: str  # a headline
    cannot: str  # the beginning of a refusal
    block: str  # a command whose words are all in its block


_DEV = Wording(
    reading="reading the reference",
    writing="writing the kernel",
    understand="read the reference, decide, write the profile",
    act="write kernels, tests and benchmark on a branch, open a draft pull request",
    refused="can't be derived",
    cannot="This op can't be derived",
    block="<python block>",
)
_AUTOPATCH = Wording(
    reading="reading and probing the model",
    writing="writing the patch",
    understand="read the model's source, probe its classes, write the profile",
    act="write the patch and its tests on a branch, open a draft pull request",
    refused="can't be patched",
    cannot="This model can't be patched",
    block="<config.json>",
)
_WORDINGS = {"dev": _DEV, "autopatch": _AUTOPATCH}


def wording(verb: str) -> Wording:
    """The words for a verb."""
    return _WORDINGS.get(verb, _DEV)
