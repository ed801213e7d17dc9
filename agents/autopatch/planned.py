"""The profile as a person approves it: with the files that will be touched, and what to know about the forward. Pure."""

from __future__ import annotations

from agents.autopatch.act import planned_files
from agents.autopatch.model_profile import ModelProfile
from agents.conventions import NotAKernelLibrary
from agents.conventions.edits import AnchorMissing
from agents.dev.refused import Refused
from agents.formatting import ActFailed
from agents.ports import Tree


def planned(profile: ModelProfile, tree: Tree) -> ModelProfile | Refused:
    """The profile with `files` and `risks` filled, or a refusal when this checkout has no place for the patch."""
    try:
        files = planned_files(profile, tree)
    except (ActFailed, AnchorMissing, NotAKernelLibrary) as error:
        return Refused(reason=str(error), needed=_needed(profile))
    follows = (
        f"lce_forward follows {profile.causal_class}.forward of transformers {profile.transformers_version}, the installed one; "
        f"after an update: `liger-bot watch`, then `/liger autopatch {profile.model_type} --refresh`."
    )
    risks = profile.risks if follows in profile.risks else [*profile.risks, follows]
    return profile.model_copy(update={"files": files, "risks": risks})


def _needed(profile: ModelProfile) -> str:
    if profile.mode == "modify":
        return "Something that the patch lacks and the model has."
    return "A forward that ends as transformers' own do: hidden states, head, loss, output."
