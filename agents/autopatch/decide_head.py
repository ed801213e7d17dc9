"""The decisions about what comes after the decoder: vision, output class, hidden state, soft cap; and the forward itself. Pure."""

from __future__ import annotations

from dataclasses import replace

from agents.autopatch.decision import Answers, number, probed, read
from agents.autopatch.facts import ModelFacts
from agents.autopatch.model_profile import Forward
from agents.autopatch.read_model import ForwardReading, read_forward

SAME = 1e-6  # the same tensor, or one multiplication more


def decide_head(facts: ModelFacts, answers: Answers) -> Forward:
    """The forward of the profile; adds the decisions "vision", "output_class", "hidden_state" and "logit_softcapping"."""
    reading = _cap_named(read_forward(facts.forward.source), facts)
    _vision(facts, answers)
    output = _output_class(facts, reading, answers)
    hidden = _hidden_state(facts, reading, answers)
    _softcap(facts, reading, answers)
    loss = facts.head.liger_loss
    return Forward(
        signature=facts.forward.signature,
        source=facts.forward.source,
        imports=facts.forward.imports,
        file=facts.forward.file,
        line=facts.forward.line,
        base_attribute=facts.head.base_attribute or facts.decoder_path.split(".", maxsplit=1)[0],
        head_attribute=facts.head.head_attribute,
        hidden_states=hidden,
        output_class=output,
        output_module=facts.head.output_module,
        loss_keyword_arguments=reading.loss_keyword_arguments,
        softcap=reading.softcap if loss.get(reading.softcap or "") is not None or reading.softcap else None,
        logit_scale=reading.logit_scale,
        aux_loss=reading.aux_loss,
        head_bias=facts.head.head_bias,
        config_has_hidden_size=facts.head.config_has_hidden_size,
    )


def _cap_named(reading: ForwardReading, facts: ModelFacts) -> ForwardReading:
    """Where a module of the model caps the logits, the attribute of the config that gives its numbers."""
    if reading.softcap is not None or not reading.capped_by_module:
        return reading
    return replace(reading, softcap=_capped(facts))


def _capped(facts: ModelFacts) -> str | None:
    return next(
        (
            name
            for name, value in facts.head.logit_distances.items()
            if name not in ("none", "factor") and value is not None and value <= SAME
        ),
        None,
    )


def _at(facts: ModelFacts, reading: ForwardReading, name: str) -> str:
    return f"{facts.forward.file}:{facts.forward.line + reading.lines.get(name, 0)}"


def _vision(facts: ModelFacts, answers: Answers) -> None:
    config = facts.sources.get(facts.causal_class)
    value = (
        ", ".join(facts.vision[:6]) + (f" and {len(facts.vision) - 6} more" if len(facts.vision) > 6 else "")
        or "none"
    )
    if facts.vision_towers:
        towers = ", ".join(facts.vision_towers)
        value = f"{value}; another model's: {towers}" if facts.vision else f"another model's: {towers}"
    answers.decide(
        "vision", value, _vision_reason(facts),
        read(f"{facts.causal_class} {'has' if facts.vision else 'has no'} vision part", f"{config.file}:{config.line}" if config else None),
        probed(f"the built model has {len(facts.vision)} classes below a vision or audio attribute"),
    )  # fmt: skip


def _vision_reason(facts: ModelFacts) -> str:
    """What a patch does with the vision parts, and what it leaves."""
    if not facts.vision and not facts.vision_towers:
        return "a text model"
    norms = [norm for norm in facts.vision_norms if norm.kind in ("rms_norm", "layer_norm")]
    parts = [f"{norm.name} at {', '.join(facts.vision_norm_uses.get(norm.name, [])[:4])}" for norm in norms]
    why = f"of its vision and audio parts the norms can be patched ({'; '.join(parts) or 'it has none'}); attention and feed-forward stay"
    if facts.vision_towers:
        why += "; a tower that is another model's is left to that model's own patch"
    return why


def _output_class(facts: ModelFacts, reading: ForwardReading, answers: Answers) -> str:
    found = facts.head.output_class
    evidence = (
        [read(f"the forward returns {reading.output_class}", _at(facts, reading, "output_class"))]
        if reading.output_class
        else []
    )
    evidence.append(probed(f"the built model returns {found} of {facts.head.output_module}"))
    if reading.output_class not in (None, found):
        answers.ask(
            f"The forward is read as returning {reading.output_class}, the built model returns {found}. Which is it?"
        )
    answers.decide("output_class", found, "the class that lce_forward has to extend", *evidence)
    return found


def _hidden_state(facts: ModelFacts, reading: ForwardReading, answers: Answers) -> str:
    ways = facts.head.hidden_distances
    right = [name for name, value in ways.items() if value is not None and value <= SAME]
    said = reading.hidden_states
    value = said if said in right else right[0] if right else said or "last_hidden_state"
    evidence = (
        [
            read(
                f"the forward reads outputs{'.' if said == 'last_hidden_state' else ''}{said}",
                _at(facts, reading, "hidden_state"),
            )
        ]
        if said
        else []
    )
    evidence.append(
        probed(
            "distance to what the head was given: "
            + ", ".join(f"{name} {number(v)}" for name, v in ways.items())
        )
    )
    if ways and (not right or (said is not None and said not in right)):
        answers.ask(
            f"The hidden state is read as {said}, but the head was given {' or '.join(right) or 'something else'}. Which is it?"
        )
    answers.decide(
        "hidden_state", value, "how the last hidden state is taken from the base model's output", *evidence
    )
    return value


def _softcap(facts: ModelFacts, reading: ForwardReading, answers: Answers) -> None:
    distances = facts.head.logit_distances
    between = ", ".join(f"{name} {number(value)}" for name, value in distances.items())
    loss = ", ".join(
        f"{name} {number(value)}"
        for name, value in facts.head.liger_loss.items()
        if isinstance(value, int | float) and name != "model"
    )
    evidence = [
        read(
            f"the logits are capped by {reading.softcap}" if reading.softcap else f"the logits are scaled: {reading.logit_scale}" if reading.logit_scale
            else "nothing lies between the head and the loss",
            _at(facts, reading, "logit_softcapping"),
        ),
        probed(f"distance of the logits from the head's output: {between}; of Liger's fused loss from the model's: {loss or 'not run'}"),
    ]  # fmt: skip
    plain = distances.get("none")
    capped = _capped(facts)
    value = reading.softcap or (f"none; scale {reading.logit_scale}" if reading.logit_scale else "none")
    why = (
        "Liger's loss takes the cap as softcap"
        if reading.softcap
        else "the fused loss takes the head's weight as it is"
    )
    if reading.softcap and capped != reading.softcap and not (plain is not None and plain <= SAME):
        answers.ask(
            f"The forward reads {reading.softcap}, but a cap of that size does not give the logits ({between}). What does?"
        )
    if not reading.softcap and not reading.logit_scale and plain is not None and plain > SAME:
        answers.ask(
            f"Nothing is read between the head and the logits, but they differ by {number(plain)}. What changes them?"
        )
        value = "unknown"
    answers.decide("logit_softcapping", value, why, *evidence)
