"""Where parts of a model hang, as Python says it, and the conditions under which a layer has them. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from agents.autopatch.layout import Layout
from agents.autopatch.model_profile import MlpClass, ModelProfile, NormUse


def below(base: str, attribute: str) -> str:
    """The expression of a part: "self_attn.0.norm" below `layer` is `layer.self_attn[0].norm`."""
    return base + "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in attribute.split("."))


# How a condition asks for a part: the patch leaves what is None, a test looks at what is there.
IS_SET, IS_THERE = 'getattr({0}, "{1}", None) is not None', 'hasattr({0}, "{1}")'


def where_present(base: str, use: NormUse, line: str, uses: Iterable[NormUse], form: str = IS_SET) -> str:
    """The line for a norm, under a condition where some layers lack it, or hold a container of norms at its place.

    uses: of all norms · form: of the condition for one part, IS_SET or IS_THERE.
    """
    if not use.optional:
        return line
    parts = use.attribute.split(".")
    conditions = [
        form.format(below(base, ".".join(parts[:i])) if i else base, part)
        for i, part in enumerate(parts)
        if not part.isdigit()
    ]
    prefix = f"{use.attribute}."
    held = {
        one.attribute.removeprefix(prefix).split(".")[0] for one in uses if one.attribute.startswith(prefix)
    }
    conditions += [f'not hasattr({below(base, use.attribute)}, "{name}")' for name in sorted(held)]
    return f"if {' and '.join(conditions)}:\n    {line}"


def where_held(layer: str, mlp: MlpClass, line: str, mixed: bool, layout: Layout) -> str:
    """The line for a feed-forward, under a condition where other layers hold another kind at its place, or none."""
    condition = " and ".join(_conditions(layer, mlp, mixed, layout))
    return f"if {condition}:\n{textwrap.indent(line, '    ')}" if condition else line


def _conditions(layer: str, mlp: MlpClass, mixed: bool, layout: Layout) -> list[str]:
    place = below(layer, mlp.attribute)
    if mlp.role == "dense":
        if not mixed:
            return []
        found = [f'not hasattr({place}, "experts")']
        if mlp.through_act2fn:  # what else hangs there, a mixer say, has no such activation
            found.append(f'hasattr({place}, "{mlp.activation_attribute}")')
        return found
    found = []
    if mlp.role == "experts" and layout.v5_flag and mlp.liger_class == "LigerExperts":
        found.append("IS_TRANSFORMERS_V5_OR_LATER")
    parent, _, last = mlp.attribute.rpartition(".")
    if parent and (mixed or mlp.role == "shared_expert"):
        found.append(f'hasattr({below(layer, parent)}, "{last}")')
    return found


def below_base(path: str) -> str:
    """ ".language_model" where the decoder at `path` is a part of the base model; empty where it is the base model."""
    _, _, rest = path.partition(".")
    return f".{rest}" if rest else ""


def decoders_of(profile: ModelProfile) -> list[str]:
    """Where the text decoders hang in the causal model: one, for almost all."""
    return [profile.decoder_path, *profile.decoder_twins]
