"""Repair of a model patch: rules that map a failed check to a change of the plan, and the files made again from it. Pure but for ruff.

A repair never makes the patch wider than the approved profile, and never touches a test, a tolerance or a check: it leaves a part
of the model as it is, or does it more carefully, and says so with what was measured. What no rule knows is left to people.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from agents.autopatch.act import act
from agents.autopatch.before import BeforeTree
from agents.autopatch.model_candidate import Change, ModelCandidate, Repair
from agents.autopatch.model_profile import ModelProfile
from agents.autopatch.narrow import narrowed
from agents.conventions.edits import AnchorMissing
from agents.formatting import ActFailed
from agents.ports import Bench, Tree
from runners.protocol import Gate, Outcome, Report, Status, Verdict

MAX_ROUNDS = 3
MAX_WHY = 300  # characters of a verdict that a repair quotes
# kernel, as the checks count its calls -> flag
KERNELS = {"RMSNorm": "rms_norm", "LayerNorm": "layer_norm", "Rope": "rope", "SiLUMul": "swiglu", "GELUMul": "geglu",
           "ReLUSquared": "relu_squared", "FusedGateUpSiLUMul": "swiglu", "FusedMoE": "swiglu"}  # fmt: skip
FIELD = re.compile(r"unexpected keyword argument '(\w+)'")


async def repair(
    profile: ModelProfile,
    candidate: ModelCandidate,
    reports: Mapping[Gate, Report],
    tree: Tree,
    bench: Bench,
    *,
    attempt: int = 1,
    checkout: str = ".",
) -> ModelCandidate | None:
    """The repaired candidate, or None when no rule applies or `attempt` > 3.

    reports: of the gates that failed, at least. tree: of the base, or with the candidate's files in it. What the last candidate
    touched and this one doesn't is put back as it was.
    """
    report = reports.get(Gate.correctness)
    if report is None or report.status is Status.error or attempt > MAX_ROUNDS:
        return None
    found = changes(narrowed(profile, candidate.repairs), report.verdicts, attempt)
    if not found:
        return None
    before = BeforeTree(tree, candidate)
    listed = {planned.path for planned in profile.files}
    for tried in (found, _plainer(found)):
        repairs = [*candidate.repairs, *tried]
        try:
            made = await act(profile, before, bench, checkout=checkout, repairs=repairs)
        except (ActFailed, AnchorMissing):
            return None  # nothing is left to patch, or only what can't be written: the finding stands
        if set(made.files) <= listed:
            return _with_restored(made, candidate)
    return None


def _plainer(found: Sequence[Repair]) -> list[Repair]:
    """Without a class that would have to be written for it, in a file that the approved profile doesn't name."""
    return [
        one.model_copy(update={"change": "norm_unpatched"}) if one.change == "norm_not_in_place" else one
        for one in found
    ]


def _with_restored(made: ModelCandidate, candidate: ModelCandidate) -> ModelCandidate:
    restored = {path: text for path, text in candidate.originals.items() if path not in made.files}
    return made.model_copy(
        update={
            "files": {**restored, **made.files},
            "originals": {**candidate.originals, **made.originals},
            "unclean_before": sorted({*made.unclean_before, *restored}),
        }
    )


def changes(profile: ModelProfile, verdicts: Sequence[Verdict], attempt: int) -> list[Repair]:
    """What the hard failures ask for, each part once; the most exact finding speaks first. Pure."""
    failed = [one for one in verdicts if one.outcome is Outcome.failed and one.hard]
    found: dict[str, Repair] = {}
    for rule in (_parts, _fields, _flags, _counts, _tests):
        for change, part, verdict in rule(profile, failed):
            why = verdict.summary[:MAX_WHY]
            found.setdefault(
                part, Repair(attempt=attempt, check=verdict.check, change=change, part=part, why=why)
            )
        if found:
            break  # the others may be consequences of the same part
    return list(found.values())


Found = Iterator[tuple[Change, str, Verdict]]


def _parts(profile: ModelProfile, failed: Sequence[Verdict]) -> Found:
    """`model/part/ArceeRMSNorm`: on its own it lies apart from the model's."""
    for verdict in failed:
        name = verdict.check.removeprefix("model/part/")
        if name != verdict.check:
            yield from _of_part(profile, name.removesuffix(".forward"), verdict)


def _of_part(profile: ModelProfile, name: str, verdict: Verdict) -> Found:
    for norm in profile.norms:
        if norm.patched and name in (norm.name, (norm.reached_as or "").split(".")[0]):
            careful = norm.kind == "rms_norm" and norm.in_place
            yield ("norm_not_in_place" if careful else "norm_unpatched"), norm.name, verdict
    for mlp in profile.mlps:
        if mlp.patched and name in (mlp.name, f"ACT2FN[{mlp.through_act2fn}]"):
            yield "mlp_unpatched", mlp.name, verdict
    if profile.rope.patched and profile.rope.function == name:
        yield "rope_unpatched", name, verdict


def _fields(_profile: ModelProfile, failed: Sequence[Verdict]) -> Found:
    """The checkout's output class has no field for a result of its own fused loss."""
    for verdict in failed:
        text = f"{verdict.summary}\n{verdict.details}"
        field = FIELD.search(text)
        if field and field[1] in {"token_accuracy", "predicted_tokens"}:
            yield "output_field_dropped", field[1], verdict


def _flags(profile: ModelProfile, failed: Sequence[Verdict]) -> Found:
    """`model/flag/class_swiglu`: the flag changes nothing, or patching under it fails."""
    for verdict in failed:
        flag = re.fullmatch(r"model/flag/(?:class|instance)_(\w+)", verdict.check)
        if flag:
            yield from _of_flag(profile, flag[1], verdict)


def _of_flag(profile: ModelProfile, flag: str, verdict: Verdict) -> Found:
    for norm in profile.norms:
        if norm.patched and flag == norm.kind:
            yield "norm_unpatched", norm.name, verdict
    for mlp in profile.mlps:
        if mlp.patched and flag == _mlp_flag(mlp.liger_class or mlp.variant_of or ""):
            yield "mlp_unpatched", mlp.name, verdict
    if flag == "rope" and profile.rope.patched and profile.rope.function:
        yield "rope_unpatched", profile.rope.function, verdict


def _mlp_flag(liger_class: str) -> str:
    if liger_class == "LigerReLUSquared":
        return "relu_squared"
    return "geglu" if "GEGLU" in liger_class else "swiglu"


def _counts(profile: ModelProfile, failed: Sequence[Verdict]) -> Found:
    """Kernels that one path calls more often than the other, that another model calls, or that are called after the revert."""
    for verdict in failed:
        for kernel in _kernels(verdict):
            if kernel in KERNELS:
                yield from _of_flag(profile, KERNELS[kernel], verdict)


def _kernels(verdict: Verdict) -> list[str]:
    counts = [dict(re.findall(r"'(\w+)': (\d+)", text)) for text in re.findall(r"\{[^}]*\}", verdict.summary)]
    match verdict.check:
        case "model/kernel_calls" if len(counts) == 2:
            return [name for name in {**counts[0], **counts[1]} if counts[0].get(name) != counts[1].get(name)]
        case "model/revert":
            return [name for found in counts for name in found]
        case "model/others_untouched":
            return re.findall(r"'(\w+)'", verdict.summary)
        case _:
            return []


def _tests(profile: ModelProfile, failed: Sequence[Verdict]) -> Found:
    """The instance test's own assertion names the place: `inspect.getsource(layer.mlp.forward) == …`."""
    for verdict in failed:
        if not verdict.check.startswith("model/test/"):
            continue
        asserted = re.findall(r"assert .*", verdict.details)
        place = (
            re.search(r"(?:layer|base_model)((?:\.\w+|\[\d+\])+?)(?:\.forward)?\)", asserted[-1])
            if asserted
            else None
        )
        if place is None:
            continue
        attribute = re.sub(r"\[(\d+)\]", r".\1", place[1]).removeprefix(".")
        for use in profile.norm_uses:
            if use.attribute == attribute:
                yield from _of_part(profile, use.norm, verdict)
        for mlp in profile.mlps:
            if mlp.attribute == attribute:
                yield from _of_part(profile, mlp.name, verdict)
