"""The text of apply_liger_kernel_to_{m}: class path, then instance path, as the checkout's siblings write it. Pure.

One difference from some siblings: classes of the modeling module are replaced only when no instance is given, so that
patching one instance leaves other and later models as they were. The rotary function has no instance form.
"""

from __future__ import annotations

import textwrap

from agents.autopatch.forward_cut import Unpatchable
from agents.autopatch.layout import Layout
from agents.autopatch.model_profile import ModelProfile
from agents.autopatch.patch_plan import HELPER_DEFAULTS, KNOWN_EPS, NormPatch, Plan, computing_class, mlp_flag
from agents.autopatch.places import below, below_base, decoders_of, where_held, where_present
from agents.autopatch.vision import at_places

ARGUMENTS = {
    "rope": "Whether to apply Liger's rotary position embedding.",
    "cross_entropy": "Whether to apply Liger's cross entropy loss.",
    "rms_norm": "Whether to apply Liger's RMSNorm.",
    "layer_norm": "Whether to apply Liger's LayerNorm.",
    "swiglu": "Whether to apply Liger's SwiGLU MLP.",
    "geglu": "Whether to apply Liger's GeGLU MLP.",
    "relu_squared": "Whether to apply Liger's ReLU squared activation.",
}
FUSED = """\
fused_linear_cross_entropy (bool):
    Whether to apply Liger's fused linear cross entropy loss. Default is True.
    `cross_entropy` and `fused_linear_cross_entropy` cannot both be True.
    If `fused_linear_cross_entropy` is True, the logits will not be materialized but more memory efficient.
"""
EXCLUSIVE = """\
assert not (cross_entropy and fused_linear_cross_entropy), (
    "cross_entropy and fused_linear_cross_entropy cannot both be True."
)
"""


def patch_function(profile: ModelProfile, plan: Plan, layout: Layout) -> str:
    """Source of the function, before formatting."""
    parameters = [f"{flag.name}: bool = {flag.default}," for flag in plan.flags]
    parameters.append("model: PreTrainedModel = None,")
    parameters += ["**kwargs,"] if plan.takes_kwargs else []
    head = f"def {plan.function}(\n" + "".join(f"    {p}\n" for p in parameters) + ") -> None:\n"
    body = [
        _documentation(profile, plan),
        EXCLUSIVE,
        _imports(profile, plan, layout),
        _refusals(profile, plan),
        _module_level(profile, plan),
        _class_path(plan, layout) + instance_path(profile, plan, layout),
    ]
    return head + textwrap.indent("\n".join(part.strip("\n") + "\n" for part in body if part), "    ")


def lce_alias(profile: ModelProfile) -> str:
    return f"{profile.identifier}_lce_forward"


def _documentation(profile: ModelProfile, plan: Plan) -> str:
    title = profile.causal_class.removesuffix("ForCausalLM").removesuffix("ForConditionalGeneration")
    lines = [f"Apply Liger kernels to replace original implementation in HuggingFace {title} models"]
    if plan.notes:
        lines += ["", "Note:", *(textwrap.indent(textwrap.fill(note, 108), "    ") for note in plan.notes)]
    lines += ["", "Args:"]
    for flag in plan.flags:
        if flag.name == "fused_linear_cross_entropy":
            lines.append(textwrap.indent(FUSED.rstrip(), "    "))
            continue
        lines.append(f"    {flag.name} (bool): {ARGUMENTS[flag.name]} Default is {flag.default}.")
        if flag.why_not:
            lines.append("        Not supported for this model: it warns and changes nothing.")
    lines += [
        "    model (PreTrainedModel): The model instance to apply Liger kernels to, if the model has already been",
        "    loaded. Default is None.",
    ]
    return '"""\n' + "\n".join(lines) + '\n"""\n'


def _imports(profile: ModelProfile, plan: Plan, layout: Layout) -> str:
    package = profile.modeling_module.rsplit(".", 1)[0]
    lines = [f"from {package} import {plan.modeling}"]
    if _loops(plan):
        lines.append(f"from {profile.modeling_module} import {profile.base_class}")
    own = {f"{layout.module('model')}.{profile.identifier}": f"lce_forward as {lce_alias(profile)}"}
    text = "\n".join(lines) + "\n\n" + "\n".join(f"from {m} import {n}" for m, n in own.items()) + "\n"
    needed = {(patch.module, patch.liger_class) for patch in plan.norms}
    needed |= {
        (layout.classes[computing_class(m)], computing_class(m)) for m in plan.mlps if not m.through_act2fn
    }
    if plan.on("relu_squared"):
        needed.add((layout.classes["LigerReLUSquared"], "LigerReLUSquared"))
    if plan.rope:
        function = profile.rope.liger_function or "liger_rotary_pos_emb"
        needed.add((layout.classes[function], function))
    if "CrossEntropyLoss(" not in profile.forward.source:
        needed.add((layout.module("functional"), "liger_cross_entropy"))
    if any("SimpleNamespace" in _class_line(patch, plan, layout) for patch in plan.norms):
        text = f"from types import SimpleNamespace\n\n{text}"
    if "MethodType" not in layout.patch_names:
        text = f"from types import MethodType\n\n{text}"
    missing = sorted((module, name) for module, name in needed if name not in layout.patch_names)
    return text + "".join(f"from {module} import {name}\n" for module, name in missing)


def _refusals(profile: ModelProfile, plan: Plan) -> str:
    lines = []
    for flag in plan.flags:
        if flag.why_not:
            reason = f"{flag.name}=True is not supported for {profile.model_type} models: {flag.why_not.rstrip('.')}."
            lines.append(f"if {flag.name}:\n    logger.warning({_literal(reason)})\n")
    if plan.takes_kwargs:
        lines.append(
            "ignored = sorted(name for name, value in kwargs.items() if value)\n"
            "if ignored:\n"
            f'    logger.warning(f"Not applicable to {profile.model_type} models, ignored: {{ignored}}")\n'
        )
    return "".join(lines)


def _literal(text: str) -> str:
    pieces = textwrap.wrap(text, 96, break_on_hyphens=False)
    quoted = [_quoted(piece + (" " if index < len(pieces) - 1 else "")) for index, piece in enumerate(pieces)]
    return quoted[0] if len(quoted) == 1 else "\n        " + "\n        ".join(quoted) + "\n    "


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _module_level(profile: ModelProfile, plan: Plan) -> str:
    lines = []
    if plan.rope:
        function = profile.rope.liger_function or "liger_rotary_pos_emb"
        lines.append(f"if rope:\n    {plan.modeling}.{profile.rope.function} = {function}\n")
    if "CrossEntropyLoss(" in profile.forward.source:
        lines.append(f"if cross_entropy:\n    {plan.modeling}.CrossEntropyLoss = LigerCrossEntropyLoss\n")
    else:
        lines.append(
            "if cross_entropy:\n    from transformers.loss.loss_utils import nn\n\n"
            "    nn.functional.cross_entropy = liger_cross_entropy\n"
        )
    lines.append(
        "if fused_linear_cross_entropy:\n    if model is not None:\n"
        f"        model.forward = MethodType({lce_alias(profile)}, model)\n    else:\n"
        f"        {plan.modeling}.{profile.causal_class}.forward = {lce_alias(profile)}\n"
    )
    return "".join(lines)


def class_lines(plan: Plan, layout: Layout) -> list[tuple[str, str, bool]]:
    """(flag, assignment, whether only transformers v5 has the class) of the class path."""
    lines = [(patch.flag, _class_line(patch, plan, layout), False) for patch in plan.norms]
    for mlp in plan.mlps:
        if mlp.through_act2fn:
            lines.append(
                (mlp_flag(mlp), f'{plan.modeling}.ACT2FN["{mlp.through_act2fn}"] = LigerReLUSquared', False)
            )
        elif mlp.liger_class is None:
            # its constructor is HuggingFace's own, its forward Liger's
            lines.append(
                (mlp_flag(mlp), f"{plan.modeling}.{mlp.name}.forward = {mlp.variant_of}.forward", False)
            )
        else:
            v5 = layout.v5_flag and mlp.liger_class == "LigerExperts"
            lines.append((mlp_flag(mlp), f"{plan.modeling}.{mlp.name} = {mlp.liger_class}", v5))
    return lines


def _class_path(plan: Plan, layout: Layout) -> str:
    lines = class_lines(plan, layout)
    text = ""
    for flag in dict.fromkeys(flag for flag, _, _ in lines):
        text += f"    if {flag}:\n"
        for line in dict.fromkeys(line for f, line, v5 in lines if f == flag and not v5):
            text += f"        {line}\n"
        behind = [line for f, line, v5 in lines if f == flag and v5]
        if behind:
            # before v5 each expert was a module of its own
            text += "        if IS_TRANSFORMERS_V5_OR_LATER:\n" + "".join(
                f"            {b}\n" for b in behind
            )
    return f"if model is None:\n{text}" if text else ""


def _class_line(patch: NormPatch, plan: Plan, layout: Layout) -> str:
    """torch's own LayerNorm is replaced in a copy of the module's `nn`, never in torch itself."""
    name = patch.norm.reached_as or patch.norm.name
    if name != "nn.LayerNorm":
        return f"{plan.modeling}.{name} = {patch.liger_class}"
    if "_patch_layer_norm_class" in layout.patch_functions.functions:
        return f"_patch_layer_norm_class({plan.modeling})"
    return f'{plan.modeling}.nn = SimpleNamespace(**{{**vars({plan.modeling}.nn), "LayerNorm": {patch.liger_class}}})'


def _loops(plan: Plan) -> bool:
    return any(patch.uses or patch.places for patch in plan.norms) or bool(plan.mlps)


def instance_path(profile: ModelProfile, plan: Plan, layout: Layout, only: set[str] | None = None) -> str:
    """The `else:` branch: every module of an existing instance; of the flags in `only` alone where given."""
    if not _loops(plan):
        return ""
    head = (
        "else:\n"
        "    # The model instance already exists, so we need to additionally patch the\n"
        "    # instance variables that reference already-instantiated modules\n\n"
    )
    base = "getattr(model, model.base_model_prefix, model)"
    body = _instance_body(profile, plan, layout, only)
    if profile.decoder_twins:
        decoders = ", ".join(f"inner_model{below_base(path)}" for path in decoders_of(profile))
        head += (
            "    # get the decoders from the model instance\n"
            f"    inner_model = {base}\n"
            f"    base_model: {profile.base_class}\n"
            f"    for base_model in ({decoders}):\n"
        )
        return head + textwrap.indent(body, "    ") + _vision_path(plan, layout, only)
    return (
        f"{head}    # get the base model from the model instance\n"
        f"    base_model: {profile.base_class} = {base}{below_base(profile.decoder_path)}\n\n{body}"
        + _vision_path(plan, layout, only)
    )


def _vision_path(plan: Plan, layout: Layout, only: set[str] | None) -> str:
    """The norms outside the text decoder, which the class path reaches as well."""
    text = ""
    for flag in dict.fromkeys(patch.flag for patch in plan.norms if patch.places):
        if only is not None and flag not in only:
            continue
        places = [
            (place, _helper_call(patch, "{}", layout))
            for patch in plan.norms
            if patch.flag == flag
            for place in patch.places
        ]
        text += f"    if {flag}:\n" + at_places(places, "model", 8)
    return f"\n{text}" if text else ""


def _instance_body(profile: ModelProfile, plan: Plan, layout: Layout, only: set[str] | None) -> str:
    """The lines for one decoder, `base_model`."""
    text = ""
    for flag, lines in grouped(plan, layout, {"base"}, "base_model").items():
        if only is not None and flag not in only:
            continue
        text += f"    if {flag}:\n" + textwrap.indent(lines, " " * 8)
    text += "\n" if any(use.owner == "base" for patch in plan.norms for use in patch.uses) else ""
    layered = grouped(plan, layout, {"layer", "attention", "other"}, "decoder_layer")
    mlps = mlp_lines(plan, layout)
    if layered or mlps:
        text += f"    for decoder_layer in base_model.{profile.layers_attribute}:\n"
        for flag in dict.fromkeys([*mlps, *layered]):
            if only is not None and flag not in only:
                continue
            text += f"        if {flag}:\n" + textwrap.indent(
                mlps.get(flag, "") + layered.get(flag, ""), " " * 12
            )
    return text


def grouped(plan: Plan, layout: Layout, owners: set[str], base: str) -> dict[str, str]:
    """flag -> lines that patch the norms hanging on `owners`."""
    found: dict[str, str] = {}
    for patch in plan.norms:
        for use in patch.uses:
            if use.owner in owners:
                line = _helper_call(patch, below(base, use.attribute), layout) + "\n"
                found[patch.flag] = found.get(patch.flag, "") + where_present(base, use, line, plan.norm_uses)
    return found


def _helper_call(patch: NormPatch, place: str, layout: Layout) -> str:
    """The call that patches the norm at `place`."""
    if patch.flag == "layer_norm":
        arguments = [place]
    else:
        wanted = {
            "offset": patch.norm.offset,
            "casting_mode": patch.norm.casting_mode or "llama",
            "in_place": patch.norm.in_place,
            "row_mode": patch.norm.row_mode,
        }
        arguments = [place]
        for name, value in wanted.items():
            if value == HELPER_DEFAULTS[name]:
                continue
            if not layout.helper_takes("_patch_rms_norm_module", name):
                raise Unpatchable(f"this checkout's _patch_rms_norm_module takes no {name}")
            arguments.append(f'{name}="{value}"' if isinstance(value, str) else f"{name}={value}")
        if patch.norm.eps_attribute not in KNOWN_EPS:
            arguments.append(f"eps={place}.{patch.norm.eps_attribute}")
    helper = "_patch_layer_norm_module" if patch.flag == "layer_norm" else "_patch_rms_norm_module"
    return f"{helper}({', '.join(arguments)})"


def mlp_lines(plan: Plan, layout: Layout) -> dict[str, str]:
    """flag -> lines for the feed-forward of one layer. Layers of a hybrid model differ, so each place is looked for."""
    found: dict[str, str] = {}
    for mlp in sorted(plan.mlps, key=lambda m: m.role != "experts"):
        flag = mlp_flag(mlp)
        place = below("decoder_layer", mlp.attribute)
        if mlp.through_act2fn:
            line = f"{place}.{mlp.activation_attribute} = LigerReLUSquared()\n"
        elif (
            computing_class(mlp) == "LigerGEGLUMLP"
            and "_patch_geglu_module" in layout.patch_functions.functions
        ):
            line = f"_patch_geglu_module({place})\n"
        else:
            line = f"_patch_swiglu_module({place}, {computing_class(mlp)})\n"
        found[flag] = found.get(flag, "") + where_held("decoder_layer", mlp, line, plan.mixed, layout)
    return found
