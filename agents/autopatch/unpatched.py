"""What of a model is left as it is, and why: as much a decision as what is patched. Pure."""

from __future__ import annotations

from agents.autopatch.model_profile import ModelProfile


def unpatched(profile: ModelProfile) -> list[tuple[str, str]]:
    """(class or function of the modeling module, why), in the order of the profile."""
    left = [(norm.name, norm.why) for norm in [*profile.norms, *profile.vision_norms] if not norm.patched]
    left += [(mlp.name, mlp.why) for mlp in profile.mlps if not mlp.patched]
    if profile.rope.function is not None and not profile.rope.patched:
        left.append((profile.rope.function, profile.rope.why))
    return list(dict.fromkeys(left))
