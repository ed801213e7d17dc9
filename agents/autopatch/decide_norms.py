"""The five decisions about norms: type, casting mode, offset, in-place backward, names in the layer. Pure."""

from __future__ import annotations

import ast
from collections import Counter
from typing import Literal, cast

from agents.autopatch.decision import Answers, number, probed, read
from agents.autopatch.facts import ModelFacts, NormFacts
from agents.autopatch.model_profile import NormClass, NormUse
from agents.autopatch.read_norm import NormReading, read_norm, shared_gradients
from agents.profiles import Evidence
from kernels.syntax import syntax_tree

ROUNDING_FP32 = (
    1e-5  # a few hundred float32 ulps: sums in another order; another formula is a thousand times further
)
MOST_EQUAL = 0.98  # the kernel's own rsqrt differs in the last float32 bit, which moves one bfloat16 rounding in a hundred
GRADIENT_ROUNDING = (
    1e-3  # float32 gradients through every layer; an overwritten gradient is off by its own size
)


def decide_norms(facts: ModelFacts, answers: Answers) -> tuple[list[NormClass], list[NormUse]]:
    """The norm classes and uses of the profile; adds the five decisions."""
    uses = [NormUse.model_validate(use.model_dump()) for use in facts.norm_uses]
    shared = _shared(facts)
    classes: dict[str, NormClass] = {}
    evidence: dict[str, dict[str, list[Evidence]]] = {}
    for norm in facts.norms:
        source = facts.sources.get(norm.name)
        reading = read_norm(source.text) if source else NormReading()
        classes[norm.name], evidence[norm.name] = _decide(
            norm, reading, facts, shared.get(norm.name, set()), answers
        )
    _record(facts, classes, evidence, uses, answers)
    return list(classes.values()), uses


def decide_vision_norms(facts: ModelFacts, answers: Answers) -> list[NormClass]:
    """The norm classes outside the text decoder; no decision of its own."""
    made = []
    for norm in facts.vision_norms:
        source = facts.sources.get(norm.name)
        reading = read_norm(source.text) if source else NormReading()
        made.append(_decide(norm, reading, facts, set(), answers)[0])
    return made


def _shared(facts: ModelFacts) -> dict[str, set[str]]:
    """Norm class -> attributes whose output goes into a residual addition unchanged, by the layers' source."""
    by_attribute = {use.attribute: use.norm for use in facts.norm_uses if use.owner == "layer"}
    found: dict[str, set[str]] = {}
    for layer in {layer.cls for layer in facts.layers}:
        source = facts.sources.get(layer)
        for attribute in shared_gradients(source.text, set(by_attribute)) if source else ():
            found.setdefault(by_attribute[attribute], set()).add(attribute)
    return found


def _decide(
    norm: NormFacts, reading: NormReading, facts: ModelFacts, shared: set[str], answers: Answers
) -> tuple[NormClass, dict[str, list[Evidence]]]:
    where = facts.where(norm.name, reading.line) if reading.line else facts.where(norm.name)
    evidence: dict[str, list[Evidence]] = {"norm_type": [], "casting_mode": [], "offset": [], "in_place": []}
    if reading.kind:
        evidence["norm_type"].append(read(f"{norm.name} is written as {reading.kind}", where))
    distances = ", ".join(f"{name} {number(value)}" for name, value in norm.formula_distance.items())
    if distances:
        evidence["norm_type"].append(probed(f"{norm.name} in float32 lies from the formulas: {distances}"))
    made = NormClass(
        name=norm.name, kind="other", patched=False, why="", eps_attribute=norm.eps_attribute or "variance_epsilon",
        reached_as=None if norm.imported else f"nn.{norm.name}", constructor=_constructor(norm.name, facts),
        init_fn="zeros" if norm.init == "zeros" else "ones",
    )  # fmt: skip
    if norm.error is not None or norm.kind == "other":
        made.why = norm.error or _other_reason(norm)
        return made, evidence
    made.kind = cast("Literal['rms_norm', 'layer_norm']", norm.kind)
    if reading.kind is not None and reading.kind != norm.kind:
        made.why = f"the source reads as {reading.kind}, the numbers say {norm.kind}"
        answers.ask(f"{norm.name}: {made.why} ({where}). Which is it? Until then it isn't patched.")
        return made, evidence
    if norm.kind == "layer_norm":
        _layer_norm(norm, made)
        return made, evidence
    _rms_norm(norm, reading, made, where, evidence, answers)
    _in_place(norm, made, facts, shared, evidence, answers)
    if made.patched:
        _liger_class(norm, made)
    return made, evidence


def _other_reason(norm: NormFacts) -> str:
    one_plus = norm.formula_distance.get("layer_norm_1p")
    if one_plus is not None and one_plus < ROUNDING_FP32:
        return "it is LayerNorm with weight + 1 (layer_norm_1p), which no Liger kernel computes"
    return "it is neither RMSNorm nor LayerNorm: " + ", ".join(
        f"{n} {number(v)}" for n, v in norm.formula_distance.items()
    )


def _layer_norm(norm: NormFacts, made: NormClass) -> None:
    found = norm.liger.get("LigerLayerNorm", {})
    fp32 = found.get("fp32")
    built = norm.constructors.get("LigerLayerNorm", {})
    if fp32 is None or fp32 > ROUNDING_FP32:
        made.why = f"LigerLayerNorm lies {number(fp32)} away in float32"
    elif not norm.bias:
        made.why = "it has no bias, and LigerLayerNorm always has one: a checkpoint would not load"
    elif built.get("error"):
        made.why = f"LigerLayerNorm can't be constructed as the model does: {built['error']}"
    else:
        made.patched, made.liger_class, made.in_place = True, "LigerLayerNorm", False
        made.why = f"LigerLayerNorm computes the same: distance {number(fp32)} in float32, {number(found.get('bf16'))} in bfloat16"


def _rms_norm(
    norm: NormFacts, reading: NormReading, made: NormClass, where: str | None,
    evidence: dict[str, list[Evidence]], answers: Answers,
) -> None:  # fmt: skip
    shares = ", ".join(f"{key} {share:.0%}" for key, share in norm.equal_bits.items() if share is not None)
    test = probed(f"{norm.name} in bfloat16, share of elements equal in every bit: {shares}")
    for name, value in (("casting_mode", reading.casting_mode), ("offset", reading.offset)):
        if value is not None:
            evidence[name].append(
                read(
                    f"{norm.name}: {value if isinstance(value, str) else f'{value:g}'}: `{reading.line.strip()}`",
                    where,
                )
            )
        evidence[name].append(test)
    if len(norm.matches) != 1 or norm.casting_mode is None or norm.offset is None:
        made.why = f"no single casting mode gives its bits: {norm.matches or 'none does'}"
        answers.ask(f"{norm.name}: {made.why}. Which casting mode is it? Until then it isn't patched.")
        return
    made.casting_mode = cast("Literal['llama', 'gemma', 'none']", norm.casting_mode)
    made.offset = norm.offset
    said = (
        reading.casting_mode or norm.casting_mode,
        norm.offset if reading.offset is None else reading.offset,
    )
    if said != (norm.casting_mode, norm.offset):
        made.why = f"the source reads as {said[0]} with offset {said[1]:g}, the bits say {norm.casting_mode} with offset {norm.offset:g}"
        answers.ask(f"{norm.name}: {made.why} ({where}). Which is it? Until then it isn't patched.")
        return
    kernel = norm.liger.get(f"{norm.casting_mode}/{norm.offset:g}", {})
    fp32, equal = kernel.get("fp32"), kernel.get("bf16_equal")
    others = {
        key: value.get("bf16_equal")
        for key, value in norm.liger.items()
        if key != f"{norm.casting_mode}/{norm.offset:g}"
    }
    apart = max((value for value in others.values() if value is not None), default=0.0)
    evidence["casting_mode"].append(
        probed(
            f"LigerRMSNorm {norm.casting_mode}/{norm.offset:g}: {number(fp32)} in float32, {number(equal)} of bfloat16 elements equal; the next best mode {apart:.0%}"
        )
    )
    if fp32 is None or fp32 > ROUNDING_FP32 or equal is None or equal < MOST_EQUAL:
        made.why = f"the checkout's LigerRMSNorm lies {number(fp32)} away in float32, with {number(equal)} of bfloat16 elements equal"
        return
    made.patched = True
    made.why = (
        f"LigerRMSNorm with casting mode {norm.casting_mode} and offset {norm.offset:g} computes the same"
    )


def _in_place(
    norm: NormFacts, made: NormClass, facts: ModelFacts, shared: set[str],
    evidence: dict[str, list[Evidence]], answers: Answers,
) -> None:  # fmt: skip
    for attribute in sorted(shared):
        where = facts.where(facts.layer_class, f"self.{attribute}(")
        evidence["in_place"].append(
            read(
                f"the residual addition takes the output of `{attribute}` as it is, so both get the same gradient tensor",
                where,
            )
        )
    if not shared:
        where = facts.where(facts.layer_class, "def forward")
        evidence["in_place"].append(
            read(f"no output of {norm.name} is an operand of a residual addition", where)
        )
    safe, moved = norm.in_place_gradients.get("not_in_place"), norm.in_place_gradients.get("in_place")
    if safe is None or moved is None:
        made.in_place = False
        return
    broken = moved.distance is None or moved.distance > GRADIENT_ROUNDING
    evidence["in_place"].append(
        probed(
            f"gradients of the whole model against its own norms: in place {number(moved.distance)} ({moved.worst or moved.error}), "
            f"not in place {number(safe.distance)}"
        )
    )
    made.in_place = not broken and not shared
    if safe.distance is None or safe.distance > GRADIENT_ROUNDING:
        made.patched = False
        made.why = f"the model's gradients move by {number(safe.distance)} when LigerRMSNorm takes its place ({safe.worst or safe.error})"
        answers.ask(f"{norm.name}: {made.why}. It isn't patched.")
    elif broken != bool(shared):
        answers.ask(
            f"{norm.name}: the source says that its gradient is {'shared' if shared else 'not shared'} with a residual, the probe says "
            f"that running in place is {'wrong' if broken else 'right'}. Not in place is right either way, and was taken."
        )


def _liger_class(norm: NormFacts, made: NormClass) -> None:
    """The class of the checkout with these parameters and this constructor, or the one to derive a new class from."""
    wanted = {
        "offset": made.offset,
        "casting_mode": made.casting_mode,
        "in_place": made.in_place,
        "init": made.init_fn,
    }
    fits = [
        name
        for name, built in norm.constructors.items()
        if not built.get("error")
        and all(built.get(key) == value for key, value in wanted.items())
        and (norm.eps is None or built.get("eps") == norm.eps)
        and built.get("weight_dim") == norm.weight_dim
    ]
    further = [keyword for keyword in norm.keywords if keyword not in (*made.parameter_names[:1], "eps")]
    if fits:
        made.liger_class = fits[0]
    elif further:
        made.patched = False
        made.why += f"; but the model makes it with {', '.join(further)}, which none of Liger's classes takes"
    else:
        made.variant_of = "LigerRMSNorm"
        made.why += (
            "; no class of the checkout has these parameters and this constructor, so one has to be written"
        )


def _constructor(name: str, facts: ModelFacts) -> str:
    source = facts.sources.get(name)
    return constructor_of(source.text) if source else ""


def constructor_of(source: str) -> str:
    """__init__'s parameters without self, as written; "" when the class has none of its own."""
    try:
        tree = syntax_tree(source)
    except SyntaxError:
        return ""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            node.args.args = node.args.args[1:]
            return ast.unparse(node.args)
    return ""


def _record(
    facts: ModelFacts,
    classes: dict[str, NormClass],
    evidence: dict[str, dict[str, list[Evidence]]],
    uses: list[NormUse],
    answers: Answers,
) -> None:
    counted = Counter(use.norm for use in uses if use.owner in ("layer", "base"))
    order = sorted(classes.values(), key=lambda norm: -counted.get(norm.name, 0))
    main = next(iter(order), None)
    if main is None:
        for name in ("norm_type", "casting_mode", "offset", "in_place", "decoder_norms"):
            answers.decide(name, "none", "the text decoder has no norm class")
        return
    other = order[1:]

    def gather(name: str) -> list[Evidence]:
        found = [item for norm in order for item in evidence[norm.name][name]]
        # What doesn't apply is shown by the kind of norm that it is.
        return found or [item for norm in order for item in evidence[norm.name]["norm_type"]]

    def also(values: dict[str, str]) -> str:
        different = {
            norm: value for norm, value in values.items() if norm != main.name and value != values[main.name]
        }
        return "".join(f"; {norm}: {value}" for norm, value in different.items())

    kinds = {norm.name: _kind(norm, facts) for norm in order}
    why = main.why + "".join(f"; {norm.name}: {norm.why}" for norm in other)
    answers.decide("norm_type", kinds[main.name] + also(kinds), why, *gather("norm_type"))
    applies = main.kind == "rms_norm"
    modes = {norm.name: norm.casting_mode or "not applicable" for norm in order}
    answers.decide(
        "casting_mode",
        modes[main.name] + also(modes),
        "the mode that gives the model's own bits" if applies else main.why,
        *gather("casting_mode"),
    )
    offsets = {
        norm.name: f"{norm.offset:g}" if norm.kind == "rms_norm" else "not applicable" for norm in order
    }
    answers.decide(
        "offset",
        offsets[main.name] + also(offsets),
        "added to the weight" if applies else main.why,
        *gather("offset"),
    )
    places = {
        norm.name: str(norm.in_place) if norm.kind == "rms_norm" else "not applicable" for norm in order
    }
    reason = (
        "the backward may overwrite the incoming gradient: nothing else reads it"
        if main.in_place
        else "the incoming gradient is read by a residual as well"
    )
    answers.decide(
        "in_place", places[main.name] + also(places), reason if applies else main.why, *gather("in_place")
    )
    names = [use.attribute for use in uses if use.owner == "layer"]
    inner = [use.attribute for use in uses if use.owner in ("attention", "other")]
    final = [use.attribute for use in uses if use.owner == "base"]
    value = ", ".join(dict.fromkeys(names)) or "none"
    value += f"; inside: {', '.join(dict.fromkeys(inner))}" if inner else ""
    value += f"; final: {', '.join(final)}" if final else ""
    left = [use.attribute for use in uses if use.weightless]
    why = "attributes that hold a norm"
    why += f"; {', '.join(left)} of no weight, left as in the model where one exists already" if left else ""
    where = facts.where(facts.layer_class, f"self.{names[0]} =") if names else facts.where(facts.layer_class)
    kinds_of_layers = len({tuple(layer.children) for layer in facts.layers})
    answers.decide(
        "decoder_norms", value, why,
        read(f"assigned in {facts.layer_class}.__init__", where),
        probed(f"found on the {len(facts.layers)} layers of the small model, of {kinds_of_layers} kind{'s' * (kinds_of_layers > 1)}"),
    )  # fmt: skip


def _kind(norm: NormClass, facts: ModelFacts) -> str:
    if norm.kind != "other":
        return norm.kind
    found = next((entry for entry in facts.norms if entry.name == norm.name), None)
    one_plus = found.formula_distance.get("layer_norm_1p") if found else None
    return "layer_norm_1p" if one_plus is not None and one_plus < ROUNDING_FP32 else "other"
