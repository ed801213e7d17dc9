"""`/liger revise key=value` on a model's profile: a person's decision in the place of a rule's, marked as theirs. Pure.

A part can be left unpatched, or patched more carefully. The other way round is not offered: a part is patched when a probe found
that Liger computes the same, and a person's word doesn't change what it computes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agents.autopatch.model_profile import ModelProfile
from agents.dev.refused import Refused
from agents.profiles import Decision, Evidence

UNPATCHED = "unpatched"
WHY = "a person decided so"


def _norms(profile: ModelProfile, value: str) -> dict[str, Any] | None:
    if value != UNPATCHED:
        return None
    return {
        "norms": [
            norm.model_copy(update={"patched": False, "why": WHY}) if norm.patched else norm
            for norm in profile.norms
        ]
    }


def _in_place(profile: ModelProfile, value: str) -> dict[str, Any] | None:
    if value.lower() not in {"false", "no"}:
        return None
    return {"norms": [norm.model_copy(update={"in_place": False}) for norm in profile.norms]}


def _mlp(profile: ModelProfile, value: str) -> dict[str, Any] | None:
    if value != UNPATCHED:
        return None
    left = {"patched": False, "why": WHY, "liger_class": None, "variant_of": None, "through_act2fn": None}
    return {"mlps": [mlp.model_copy(update=left) if mlp.patched else mlp for mlp in profile.mlps]}


def _rope(profile: ModelProfile, value: str) -> dict[str, Any] | None:
    if value != UNPATCHED or not profile.rope.patched:
        return {} if value == UNPATCHED else None
    return {"rope": profile.rope.model_copy(update={"patched": False, "why": WHY, "liger_function": None})}


_CHANGES: dict[str, tuple[str, Callable[[ModelProfile, str], dict[str, Any] | None]]] = {
    "rope": (UNPATCHED, _rope),
    "mlp": (UNPATCHED, _mlp),
    "norm_type": (UNPATCHED, _norms),
    "in_place": ("false", _in_place),
}
FORMS = ", ".join(f"`{key}={value}`" for key, (value, _) in _CHANGES.items())


def revise(profile: ModelProfile, changes: Mapping[str, str]) -> ModelProfile | Refused:
    """The profile with `changes`, all of them or none; its files are still those of before."""
    names = {decision.name for decision in profile.decisions}
    for key, value in changes.items():
        if key not in _CHANGES:
            known = key in names
            reason = (
                f"`{_short(key)}` is what transformers does, read and probed, and a person can't change it"
                if known
                else f"There is no decision `{_short(key)}`"
            )
            return Refused(reason=f"{reason}.", needed=f"One of: {FORMS}.", suggestions=_suggestions())
        form, change = _CHANGES[key]
        changed = change(profile, value.strip())
        if changed is None:
            return Refused(
                reason=f"`{key}={_short(value)}` can't be followed: whether Liger computes the same is for the probe to say.",
                needed=f"`{key}={form}`, or another of: {FORMS}.",
                suggestions=_suggestions(),
            )
        if all(getattr(profile, name) == new for name, new in changed.items()):
            return Refused(reason=f"Nothing changes: `{key}` is {form} already.")
        profile = profile.model_copy(update={**changed, "decisions": _marked(profile, key, form)})
    return profile


def _marked(profile: ModelProfile, key: str, value: str) -> list[Decision]:
    """The decisions, with the person's in their name; what the rules had said stays readable."""
    mark = Evidence(kind="person", text=f"{key}={value}")
    return [
        Decision(
            name=one.name,
            value=value,
            why=f"asked for by a person; the rules had said {one.value}: {one.why}",
            evidence=[mark, *one.evidence],
        )
        if one.name == key
        else one
        for one in profile.decisions
    ]


def _suggestions() -> tuple[str, ...]:
    return tuple(f"/liger revise {key}={value}" for key, (value, _) in _CHANGES.items())


def _short(text: str) -> str:
    return text.replace("`", "'")[:60]
