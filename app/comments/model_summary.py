"""A model's profile as the rows that are read in ten seconds. Pure."""

from __future__ import annotations

from agents.autopatch.model_profile import ModelProfile
from agents.autopatch.unpatched import unpatched
from agents.markdown import code, plain
from app.comments.kernel_summary import files_and_risks


def model_rows(profile: ModelProfile) -> list[list[str]]:
    """(what, its value) as finished Markdown."""
    forward = profile.forward
    left = [f"{code(name)}: {plain(why)}" for name, why in unpatched(profile)]
    return [
        ["model", f"{code(profile.causal_class)} of transformers {plain(profile.transformers_version)}"],
        *([["asked for", ", ".join(code(one) for one in profile.requested)]] if profile.requested else []),
        *([code(one.name), plain(one.value)] for one in profile.decisions),
        ["not patched", "<br>".join(left) or "nothing is left out"],
        ["lce_forward from", code(f"{forward.file}:{forward.line}")],
        *files_and_risks(profile.files, profile.risks),
    ]
