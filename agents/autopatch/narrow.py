"""A profile with what repairs changed: parts left unpatched, or patched more carefully. Pure.

The approved profile itself stays as it is, because the approval binds to its hash; a repair can only take away from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agents.autopatch.layout import Layout
from agents.autopatch.model_candidate import Repair
from agents.autopatch.model_profile import MlpClass, ModelProfile, NormClass

_LEFT_MLP = {"patched": False, "liger_class": None, "variant_of": None, "through_act2fn": None}


def narrowed(profile: ModelProfile, repairs: Sequence[Repair]) -> ModelProfile:
    """The profile that the files are made from."""
    for repair in repairs:
        match repair.change:
            case "norm_unpatched" | "norm_not_in_place":
                profile = profile.model_copy(
                    update={"norms": [_norm(norm, repair) for norm in profile.norms]}
                )
            case "mlp_unpatched":
                profile = profile.model_copy(update={"mlps": [_mlp(mlp, repair) for mlp in profile.mlps]})
            case "rope_unpatched":
                left = {"patched": False, "liger_function": None, "why": repair.why}
                profile = profile.model_copy(update={"rope": profile.rope.model_copy(update=left)})
            case "output_field_dropped":
                pass  # a property of the checkout's classes, not of the model: see `without_fields`
    return profile


def without_fields(layout: Layout, repairs: Sequence[Repair]) -> Layout:
    """The layout without those results of the fused loss that the output class has no field for."""
    dropped = {repair.part for repair in repairs if repair.change == "output_field_dropped"}
    return replace(layout, unpacked=tuple("_" if name in dropped else name for name in layout.unpacked))


def sentence(repair: Repair) -> str:
    """What was changed and why, for people."""
    match repair.change:
        case "norm_not_in_place":
            done = f"the backward of {repair.part} no longer overwrites its incoming gradient"
        case "output_field_dropped":
            done = f"{repair.part} is not returned"
        case _:
            done = f"{repair.part} is left unpatched"
    return f"attempt {repair.attempt}: {done}, because {repair.check} failed: {repair.why}"


def _norm(norm: NormClass, repair: Repair) -> NormClass:
    if norm.name != repair.part or not norm.patched:
        return norm
    if repair.change == "norm_not_in_place":
        return norm.model_copy(update={"in_place": False})
    return norm.model_copy(update={"patched": False, "why": repair.why})


def _mlp(mlp: MlpClass, repair: Repair) -> MlpClass:
    if mlp.name != repair.part or not mlp.patched:
        return mlp
    return mlp.model_copy(update={**_LEFT_MLP, "why": repair.why})
