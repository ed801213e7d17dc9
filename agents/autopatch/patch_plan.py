"""What apply_liger_kernel_to_{m} will do, decided once from the profile and the checkout: flags, classes, places. Pure.

A flag exists for what Liger could do for this kind of model. One that Liger's kernel can't do for this model stays, off by
default, and says why when it is asked for; one whose part the model lacks is taken by **kwargs, so that callers which pass
the usual flags to every model keep working.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from agents.autopatch.layout import Layout, NormVariant
from agents.autopatch.model_profile import MlpClass, ModelProfile, NormClass, NormUse
from agents.autopatch.vision import with_vision_norms

HELPER_DEFAULTS = {"offset": 0.0, "casting_mode": "llama", "in_place": True, "row_mode": None}
# differ from LigerSwiGLUMLP in their constructor alone
SAME_FORWARD = {"LigerQwen3MoeSwiGLUMLP", "LigerHunyuanV1SwiGLUMLP"}
KNOWN_EPS = {"variance_epsilon", "eps"}
DISPLAY = {
    "rope": "RoPE",
    "rms_norm": "RMSNorm",
    "layer_norm": "LayerNorm",
    "swiglu": "SwiGLU",
    "geglu": "GeGLU",
    "relu_squared": "ReLUSquared",
}


@dataclass(frozen=True)
class Flag:
    """One boolean parameter. `why_not` is set when Liger can't do it for this model."""

    name: str
    default: bool
    why_not: str | None = None


@dataclass(frozen=True)
class NormPatch:
    """A norm class and what replaces it. `new_variant`: the checkout lacks such a class, so it is added to rms_norm.py."""

    norm: NormClass
    liger_class: str
    module: str
    new_variant: bool
    uses: tuple[NormUse, ...]
    flag: str
    places: tuple[str, ...] = ()  # outside the text decoder, "model.visual.blocks.*.norm1"


@dataclass(frozen=True)
class Plan:
    """Everything that the text of the function is made from."""

    function: str
    modeling: str
    flags: tuple[Flag, ...]
    norms: tuple[NormPatch, ...]
    mlps: tuple[MlpClass, ...]
    takes_kwargs: bool
    rope: bool
    notes: tuple[str, ...] = field(default=())
    mixed: bool = False  # some layers hold a dense feed-forward, others experts, patched or not
    norm_uses: tuple[NormUse, ...] = ()  # of all norms, patched or not

    def flag(self, name: str) -> Flag | None:
        return next((flag for flag in self.flags if flag.name == name), None)

    def on(self, name: str) -> bool:
        found = self.flag(name)
        return found is not None and found.why_not is None

    def operations(self) -> list[str]:
        """Supported operations as README's table names them."""
        names = [DISPLAY[flag.name] for flag in self.flags if flag.name in DISPLAY and flag.why_not is None]
        return [*names, "CrossEntropyLoss", "FusedLinearCrossEntropy"]


def patch_plan(profile: ModelProfile, layout: Layout) -> Plan:
    """The plan. What the checkout has no class for stays unpatched, with a note."""
    modeling = profile.modeling_module.rsplit(".", 1)[-1]
    profile = profile.model_copy(
        update={"norms": [_writable(norm, profile, layout) for norm in profile.norms]}
    )
    norms = tuple(_norm_patch(norm, profile, layout) for norm in profile.norms if norm.patched)
    norms = with_vision_norms(norms, profile, lambda norm: _norm_patch(norm, profile, layout))
    found = [_mlp_patch(mlp, layout) for mlp in profile.mlps if mlp.patched]
    mlps = tuple(mlp for mlp in found if mlp.patched)
    flags = _flags(profile, norms, mlps)
    usual = {"rope", "rms_norm", "swiglu"}
    missing = usual - {flag.name for flag in flags}
    if any(flag.name == "geglu" for flag in flags) and "gemma" in profile.model_type:
        missing.discard("swiglu")  # the convergence tests pass geglu to gemma models instead
    return Plan(
        function=f"apply_liger_kernel_to_{profile.identifier}",
        modeling=modeling,
        flags=flags,
        norms=norms,
        mlps=mlps,
        takes_kwargs=bool(missing),
        mixed={"dense", "experts"} <= {mlp.role for mlp in profile.mlps},
        norm_uses=tuple(profile.norm_uses),
        rope=profile.rope.patched and profile.rope.function is not None,
        notes=(
            *_notes(profile),
            *(f"{mlp.name} is not patched: {mlp.why}." for mlp in found if not mlp.patched),
        ),
    )


def mlp_flag(mlp: MlpClass) -> str:
    """The flag that switches this feed-forward: by its Liger class, else by its activation."""
    if mlp.through_act2fn:
        return "relu_squared"
    name = computing_class(mlp)
    if "GEGLU" in name or (not name and mlp.activation in {"gelu_tanh", "gelu"}):
        return "geglu"
    return "swiglu"


def _flags(
    profile: ModelProfile, norms: tuple[NormPatch, ...], mlps: tuple[MlpClass, ...]
) -> tuple[Flag, ...]:
    flags = []
    if profile.rope.function is not None and profile.rope.variant != "none":
        flags.append(Flag("rope", profile.rope.patched, None if profile.rope.patched else profile.rope.why))
    flags += [Flag("cross_entropy", False), Flag("fused_linear_cross_entropy", True)]
    for name, kind in (("rms_norm", "rms_norm"), ("layer_norm", "layer_norm")):
        if any(patch.flag == name for patch in norms):
            flags.append(Flag(name, True))
        elif kind == "rms_norm" and (unpatched := [n for n in profile.norms if n.kind == kind]):
            flags.append(Flag(name, False, unpatched[0].why))
    done = {mlp_flag(mlp) for mlp in mlps}
    for name in ("swiglu", "geglu", "relu_squared"):
        if name in done:
            flags.append(Flag(name, True))
            continue
        refused = [m for m in profile.mlps if not m.patched and m.gated and mlp_flag(m) == name]
        if refused and not done:
            flags.append(Flag(name, False, refused[0].why))
    return tuple(flags)


def _norm_patch(norm: NormClass, profile: ModelProfile, layout: Layout) -> NormPatch:
    uses = tuple(use for use in profile.norm_uses if use.norm == norm.name and not use.weightless)
    if norm.kind == "layer_norm":
        return NormPatch(norm, "LigerLayerNorm", layout.module("layer_norm"), False, uses, "layer_norm")
    named = next((variant for variant in layout.norms if variant.name == norm.liger_class), None)
    variant = named if named and _same(named, norm) else _matching(norm, layout)
    if variant is not None:
        return NormPatch(norm, variant.name, variant.module, False, uses, "rms_norm")
    if norm.liger_class and norm.liger_class in layout.classes and named is None:
        # a class with a forward of its own, chosen by the probe
        return NormPatch(norm, norm.liger_class, layout.classes[norm.liger_class], False, uses, "rms_norm")
    stem = profile.causal_class.removesuffix("ForCausalLM").removesuffix("ForConditionalGeneration")
    name = f"LigerRMSNormFor{stem}"
    if name in layout.classes:
        name += f"{(norm.casting_mode or 'llama').capitalize()}Cast"
    return NormPatch(norm, name, layout.module("rms_norm"), True, uses, "rms_norm")


def _writable(norm: NormClass, profile: ModelProfile, layout: Layout) -> NormClass:
    """The norm; unpatched when a class would have to be written for it whose constructor takes more than a size and an eps."""
    if not norm.patched or not _norm_patch(norm, profile, layout).new_variant:
        return norm
    extra = norm.parameter_names[2:]
    if not extra:
        return norm
    why = f"this checkout has no class whose constructor takes {', '.join(extra)} as {norm.name} does"
    return norm.model_copy(update={"patched": False, "why": why})


def _same(variant: NormVariant, norm: NormClass) -> bool:
    return (variant.casting_mode, variant.offset, variant.in_place) == (
        norm.casting_mode or "llama",
        norm.offset,
        norm.in_place,
    )


def _matching(norm: NormClass, layout: Layout) -> NormVariant | None:
    """The checkout's variant of the same computation; one that takes `hidden_size` before one that takes `dim`."""
    same = [variant for variant in layout.norms if _same(variant, norm) and variant.init_fn == norm.init_fn]
    return min(same, key=lambda variant: variant.size_parameter != "hidden_size", default=None)


def _mlp_patch(mlp: MlpClass, layout: Layout) -> MlpClass:
    """With `variant_of`, HuggingFace's constructor stays and only the forward is Liger's. `patched=False` when the checkout
    lacks the class that the profile found in a newer one."""
    if mlp.through_act2fn:
        if "LigerReLUSquared" in layout.classes:
            return mlp
        return mlp.model_copy(update={"patched": False, "why": "this checkout has no LigerReLUSquared"})
    if mlp.liger_class in layout.classes:
        return mlp
    forward_of = mlp.variant_of
    if forward_of is None and mlp.liger_class in SAME_FORWARD:
        forward_of = "LigerSwiGLUMLP"
    if forward_of in layout.classes:
        return mlp.model_copy(update={"liger_class": None, "variant_of": forward_of})
    why = f"this checkout has no {mlp.liger_class or mlp.variant_of}"
    return mlp.model_copy(update={"patched": False, "why": why})


def computing_class(mlp: MlpClass) -> str:
    """The Liger class whose forward runs."""
    return mlp.liger_class or mlp.variant_of or ""


def _notes(profile: ModelProfile) -> list[str]:
    notes = [f"{norm.name} is not patched: {norm.why}" for norm in profile.norms if not norm.patched]
    if profile.rope.function is not None and not profile.rope.patched:
        notes.append(f"RoPE is not patched: {profile.rope.why}")
    notes += [f"{mlp.name} is not patched: {mlp.why}" for mlp in profile.mlps if not mlp.patched]
    return [note.rstrip(".") + "." for note in notes]
