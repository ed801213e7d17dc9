"""The decisions about a layer's inside: feed-forward, dense or mixture of experts, rotary embedding. Pure."""

from __future__ import annotations

from typing import Literal, cast

from agents.autopatch.decide_norms import constructor_of
from agents.autopatch.decision import Answers, number, probed, read
from agents.autopatch.facts import CandidateFacts, FeedForwardFacts, ModelFacts, RopeCandidate
from agents.autopatch.model_profile import Activation, MlpClass, Rope
from agents.autopatch.read_model import FeedForwardReading, read_architecture, read_feed_forward, read_rope
from agents.profiles import Evidence

FP32, BF16 = (
    1e-5,
    2e-2,
)  # sums of a hundred products, in another order; bfloat16 rounds at 2^-8, a few times over


def decide_feed_forwards(facts: ModelFacts, answers: Answers) -> list[MlpClass]:
    """The feed-forward classes of the profile; adds the decision "mlp"."""
    made: list[MlpClass] = []
    evidence: list[Evidence] = []
    for entry in facts.feed_forwards:
        source = facts.sources.get(entry.cls)
        reading = read_feed_forward(source.text, facts.config) if source else FeedForwardReading()
        made.append(_decide(entry, reading, facts, answers, evidence))
    if not made:
        answers.decide("mlp", "not patched", "no class of its own computes the feed-forward of a layer",
                       read("no feed-forward class among the layer's attributes", facts.where(facts.layer_class)),
                       probed(f"layers of the small model hold {', '.join(sorted(set(facts.layers[0].children.values())))}"))  # fmt: skip
        return []
    value = "; ".join(dict.fromkeys(f"{mlp.name}: {_value(mlp)}" for mlp in made))
    answers.decide(
        "mlp", value, "; ".join(dict.fromkeys(f"{mlp.name}: {mlp.why}" for mlp in made)), *evidence
    )
    return made


def _value(mlp: MlpClass) -> str:
    form = f"{mlp.activation} {'packed gated' if mlp.packed else 'gated' if mlp.gated else 'ungated'}"
    if not mlp.patched:
        return f"{form}, not patched"
    if mlp.through_act2fn:
        return f"{form} -> {mlp.liger_class} through ACT2FN"
    return f"{form} -> {mlp.liger_class or f'a variant of {mlp.variant_of}'}"


def _decide(
    entry: FeedForwardFacts,
    reading: FeedForwardReading,
    facts: ModelFacts,
    answers: Answers,
    evidence: list[Evidence],
) -> MlpClass:
    activation = entry.activation.name if entry.activation else "other"
    if (
        activation == "other" and reading.activation
    ):  # no attribute holds it; the candidates below prove or refuse it
        activation = reading.activation
    source = facts.sources.get(entry.cls)
    mlp = MlpClass(
        name=entry.cls,
        role=cast("Literal['dense', 'experts', 'shared_expert']", entry.role),
        attribute=entry.attribute,
        activation=cast("Activation", activation),
        gated=entry.form != "ungated",
        packed=entry.form == "packed",
        patched=False,
        why="",
        constructor=constructor_of(source.text) if source else "",
        activation_attribute=entry.activation_attribute or "act_fn",
    )
    where = facts.where(entry.cls, reading.line) if reading.line else facts.where(entry.cls)
    if reading.activation is not None:
        said = f"{reading.activation} ({reading.activation_key}), {'gated' if reading.gated else 'ungated'}"
        evidence.append(
            read(f"{entry.cls}: {said}: `{reading.line}`" if reading.line else f"{entry.cls}: {said}", where)
        )
    if entry.error is not None:
        mlp.why = f"its probe failed: {entry.error}"
        return mlp
    same = {name: found for name, found in entry.candidates.items() if _is_same(found)}
    apart = {
        name: found
        for name, found in entry.candidates.items()
        if not _is_same(found) and found.fp32 is not None
    }
    evidence.append(
        probed(
            f"{entry.cls} against {_distances(same) or 'no equal class'}; apart: {_distances(apart) or _not_run(entry)}"
        )
    )
    if reading.activation not in (None, activation) or reading.gated not in (None, mlp.gated):
        mlp.why = f"the source reads as {reading.activation} {'gated' if reading.gated else 'ungated'}, the numbers say {activation} {entry.form}"
        answers.ask(f"{entry.cls}: {mlp.why} ({where}). Which is it? Until then it isn't patched.")
        return mlp
    if not same:
        mlp.why = _no_candidate(entry, activation)
        return mlp
    if entry.dropout:
        rates = ", ".join(f"{name} {rate:g}" for name, rate in entry.dropout.items())
        mlp.why = f"it applies dropout in training ({rates}), which {next(iter(same))} leaves out; otherwise they are equal"
        answers.ask(f"{entry.cls}: {mlp.why}. Should it be patched nevertheless? Until then it isn't.")
        return mlp
    _choose(entry, same, mlp, answers)
    return mlp


def _is_same(found: CandidateFacts) -> bool:
    return found.fp32 is not None and found.fp32 <= FP32 and found.bf16 is not None and found.bf16 <= BF16


def _distances(found: dict[str, CandidateFacts]) -> str:
    return ", ".join(
        f"{name} {number(c.fp32)} in float32, {number(c.bf16)} in bfloat16"
        for name, c in list(found.items())[:4]
    )


def _not_run(entry: FeedForwardFacts) -> str:
    """Why the others could not even be run: a projection that they need and this class lacks."""
    failed = {
        name: found.error
        for name, found in entry.candidates.items()
        if found.error and "Error" in found.error
    }
    name, error = next(iter(failed.items()), ("", ""))
    return f"none; {len(failed)} can't be run, {name}: {error}" if name else "none"


def _no_candidate(entry: FeedForwardFacts, activation: str) -> str:
    nearest = min((c.fp32 for c in entry.candidates.values() if c.fp32 is not None), default=None)
    form = "packed gated" if entry.form == "packed" else entry.form
    if nearest is None:
        return f"no Liger class has its projections ({', '.join(entry.projections)}): {activation}, {form}"
    return f"no Liger class computes {activation} {form} with projections {', '.join(entry.projections)}; the nearest lies {number(nearest)} away"


def _choose(
    entry: FeedForwardFacts, same: dict[str, CandidateFacts], mlp: MlpClass, answers: Answers
) -> None:
    mlp.patched = True
    if list(same) == ["LigerReLUSquared"]:
        mlp.liger_class, mlp.through_act2fn = "LigerReLUSquared", entry.activation_key
        mlp.why = f"{'gated' if mlp.gated else 'ungated'}; its activation `{entry.activation_key}` is ReLU squared, which LigerReLUSquared computes"
        return
    constructed = [name for name, found in same.items() if found.constructed]
    first = next(iter(same))
    if constructed:
        mlp.liger_class = constructed[0]
        mlp.why = f"{mlp.liger_class} computes the same with the same weights, and is constructed alike"
    else:
        mlp.variant_of = first
        mlp.why = f"{first} computes the same, but can't be constructed as the model does ({same[first].constructor}): one has to be written"
    if entry.bias:
        answers.warn(f"{entry.cls} has biases, which {mlp.liger_class or first} leaves out.")
        mlp.patched, mlp.liger_class, mlp.variant_of = False, None, None
        mlp.why = "its projections have biases, which the Liger class does not construct"


def decide_architecture(facts: ModelFacts, answers: Answers) -> Literal["dense", "moe", "hybrid"]:
    """Dense, mixture of experts, or layers of both kinds; adds the decision "architecture"."""
    said: set[str] = set()
    for layer in dict.fromkeys(layer.cls for layer in facts.layers):
        source = facts.sources.get(layer)
        said |= (
            read_architecture(source.text, {name: item.text for name, item in facts.sources.items()})
            if source
            else set()
        )
    seen = {
        kind
        for layer in facts.layers
        for kind, there in (("moe", layer.experts), ("dense", layer.dense and not layer.experts))
        if there
    }
    kinds = said | seen if seen <= said or not said else seen
    value: Literal["dense", "moe", "hybrid"] = (
        "hybrid" if {"moe", "dense"} <= kinds else "moe" if "moe" in kinds else "dense"
    )
    layers = ", ".join(
        "experts" if layer.experts else "dense" if layer.dense else "neither" for layer in facts.layers
    )
    if said and not seen <= said:
        answers.ask(
            f"{facts.layer_class} is read as {' and '.join(sorted(said))}, but the small model has {layers} layers. Which is it?"
        )
    answers.decide(
        "architecture", value, "what the layers' feed-forward may be",
        read(f"{facts.layer_class}.__init__ constructs: {', '.join(sorted(said)) or 'not stated'}", facts.where(facts.layer_class)),
        probed(f"layers of the small model: {layers}"),
    )  # fmt: skip
    return value


def decide_rope(facts: ModelFacts, answers: Answers) -> Rope:
    """The rotary embedding; adds the decision "rope"."""
    rope = facts.rope
    others = [name for name in rope.functions if name != rope.called]
    if rope.called is None:
        why = (
            "the forward calls no rotary function of its module"
            if rope.functions
            else "the module has no rotary function"
        )
        made = Rope(variant="none", patched=False, why=why, other_functions=others)
        answers.decide(
            "rope",
            "none, not patched",
            why,
            read(why, facts.where(facts.base_class)),
            probed("0 calls in one forward pass"),
        )
        return made
    function, half = facts.sources.get(rope.called), facts.sources.get("rotate_half")
    said = read_rope(function.text if function else "", half.text if half else "", rope.parameters)
    found = _variant(facts)
    liger = rope.liger.get("liger_rotary_pos_emb")
    same = liger is not None and liger.fp32 is not None and liger.fp32 <= FP32 and (liger.bf16 or 0) <= BF16
    made = Rope(
        variant=cast("Literal['standard', 'interleaved', 'partial', 'interleaved_partial', 'mrope', 'llama4', 'none', 'other']", found),
        function=rope.called, patched=False, why="", other_functions=others,
    )  # fmt: skip
    statements = ", ".join(
        f"{name} {number(value)}" for name, value in rope.statements.items() if value is not None
    )
    evidence = [read(f"{rope.called} is written as {said}", facts.where(rope.called))] if said else []
    evidence.append(
        probed(
            f"at head size {rope.head_dim} and rotary size {rope.rotary_dim}: {statements or rope.error or 'no statement fits'}; "
            + (
                f"liger_rotary_pos_emb {number(liger.fp32)} in float32, {number(liger.bf16)} in bfloat16"
                if liger
                else "no Liger function was run"
            )
        )
    )
    # A function of other arguments was compared with nothing: that contradicts nothing either.
    agreed = rope.error is not None or said in (None, found) or (found == "other" and said == "llama4")
    if not agreed:
        made.why = f"the source reads as {said}, the numbers say {found}"
        answers.ask(
            f"{rope.called}: {made.why} ({facts.where(rope.called)}). Which is it? Until then it isn't patched."
        )
    elif same:
        made.patched, made.liger_function = True, "liger_rotary_pos_emb"
        made.why = f"liger_rotary_pos_emb computes the same on the model's own arguments ({rope.calls.get(rope.called)} calls a forward pass)"
        part = rope.liger_partial
        if rope.takes_partial and (part is None or part.fp32 is None or part.fp32 > FP32):
            answers.warn(
                "The rotary function can turn a part of the head, Liger's can't: a checkpoint with a partial_rotary_factor below 1 must not be patched."
            )
    else:
        made.why = _rope_reason(facts, found, liger)
    answers.decide("rope", f"{found}, {'patched' if made.patched else 'not patched'}", made.why, *evidence)
    return made


def _rope_reason(facts: ModelFacts, found: str, liger: RopeCandidate | None) -> str:
    rope = facts.rope
    error = rope.error or (liger.error if liger else "the checkout has no liger_rotary_pos_emb")
    if liger is not None and liger.fp32 is not None:
        return f"{found.replace('_', ' ')} rope, which liger_rotary_pos_emb does not compute: it lies {number(liger.fp32)} away"
    if rope.unsqueeze_dim != 1:
        return (
            f"the model calls it with heads in dimension {rope.unsqueeze_dim} (unsqueeze_dim={rope.unsqueeze_dim}), "
            f"which liger_rotary_pos_emb does not take: {error}"
        )
    return f"{found.replace('_', ' ')} rope, and liger_rotary_pos_emb can't be called so: {error}"


def _variant(facts: ModelFacts) -> str:
    """The variant that the numbers show."""
    rope = facts.rope
    fits = [name for name, value in rope.statements.items() if value is not None and value <= FP32]
    if not fits:
        return "other"
    first = fits[0]
    if first.startswith("interleaved"):
        return "interleaved_partial" if first.endswith("partial") else "interleaved"
    if first.startswith("standard"):
        return "mrope" if (rope.parameters or {}).get("mrope_section") else "standard"
    return first
