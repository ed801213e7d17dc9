"""Why a dispatched job left no report that counts, and what a person can do about it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from agents.dev.check_result import Conclusion
from runners.protocol import Gate


class Fault(StrEnum):
    """What came instead of a report."""

    no_workflow = "no_workflow"
    forbidden = "forbidden"
    refused = "refused"
    too_large = "too_large"
    budget = "budget"
    no_runner = "no_runner"
    cancelled = "cancelled"
    lost = "lost"
    vanished = "vanished"
    expired = "expired"
    oversize = "oversize"
    forged = "forged"
    open_network = "open_network"
    withdrawn = "withdrawn"


@dataclass(frozen=True)
class Words:
    """A fault as a check run shows it."""

    title: str
    to_do: str


_AGAIN = "then press *Re-run* on this check or comment `/liger retry`"
WORDS: dict[Fault, Words] = {
    Fault.no_workflow: Words(
        "The verification workflow is missing",
        f"Add the file below to the default branch, {_AGAIN}.",
    ),
    Fault.forbidden: Words(
        "The App may not start workflows",
        f"Grant the App `Actions: read and write` and accept it on the installation, {_AGAIN}.",
    ),
    Fault.refused: Words(
        "GitHub refused to start the workflow",
        f"Bring `.github/workflows/liger-bot-verify.yml` to the version that `liger-bot workflow` prints, {_AGAIN}.",
    ),
    Fault.too_large: Words(
        "The job is too large to be dispatched",
        "Ask for a smaller op, or run `liger-bot run` on a machine that has the GPU.",
    ),
    Fault.budget: Words(
        "The budget of GPU minutes is used up",
        f"Raise `gpu_minutes_per_request` or `gpu_minutes_per_day` in `.github/liger-bot.yml`, or wait for tomorrow, {_AGAIN}.",
    ),
    Fault.no_runner: Words(
        "No runner took the job",
        f"Start a self-hosted runner that has these labels, or correct `runners` in `.github/liger-bot.yml`, {_AGAIN}.",
    ),
    Fault.cancelled: Words(
        "The run was cancelled", f"If that was not meant, {_AGAIN.removeprefix('then ')}."
    ),
    Fault.lost: Words(
        "The run ended without a report",
        f"The run's page says whether its runner was lost or a step failed; mend that, {_AGAIN}.",
    ),
    Fault.vanished: Words(
        "The run was deleted, or never appeared", f"If that was not meant, {_AGAIN.removeprefix('then ')}."
    ),
    Fault.expired: Words(
        "The report had expired before it was read", f"Make sure that the service runs, {_AGAIN}."
    ),
    Fault.oversize: Words(
        "What the run left is too large to be a report",
        "Look at the run: a candidate may have written it. Nothing of it was read.",
    ),
    Fault.forged: Words(
        "What the run left is not the report of this job",
        "Look at the run and at who changed the workflow or the runner. Nothing of it was used.",
    ),
    Fault.open_network: Words(
        "The runner let the candidate reach a network",
        f"Install bubblewrap on the runner, {_AGAIN}. Nothing of its report was used.",
    ),
    Fault.withdrawn: Words("The job was withdrawn", "The request went on without it."),
}
# Somebody's doing, not a machine that is missing: never to be passed over.
_SUSPICIOUS = frozenset({Fault.oversize, Fault.forged, Fault.open_network})


def conclusion_of(fault: Fault, gate: Gate) -> Conclusion:
    """What a check concludes without a report: a candidate that nobody judged must not pass; one not timed may."""
    return "neutral" if gate is Gate.benchmark and fault not in _SUSPICIOUS else "failure"
