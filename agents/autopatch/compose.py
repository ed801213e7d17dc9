"""From the facts about a model to its profile: twelve decisions, each read and probed. Pure."""

from __future__ import annotations

from typing import Any

from agents.autopatch.decide_head import decide_head
from agents.autopatch.decide_layers import decide_architecture, decide_feed_forwards, decide_rope
from agents.autopatch.decide_norms import decide_norms, decide_vision_norms
from agents.autopatch.decision import Answers
from agents.autopatch.facts import ModelFacts
from agents.autopatch.model_profile import DECISIONS, ModelProfile


def compose(
    facts: ModelFacts,
    requested: tuple[str, ...] = (),
    base_sha: str = "",
    conventions: dict[str, str] | None = None,
) -> ModelProfile:
    """The profile of a model. `requested`: what a modify request adds, e.g. ("relu_squared",)."""
    answers = Answers()
    norms, uses = decide_norms(facts, answers)
    mlps = decide_feed_forwards(facts, answers)
    architecture = decide_architecture(facts, answers)
    rope = decide_rope(facts, answers)
    forward = decide_head(facts, answers)
    _loss(facts, answers)
    for name, value in facts.config.items():
        if name == "mlp_bias" and value is False:
            answers.warn(
                "A checkpoint with mlp_bias=True must not have its feed-forward patched: the Liger classes have no bias."
            )
    return ModelProfile(
        mode="modify" if requested else "add",
        model_type=facts.model_type,
        text_model_type=facts.text_model_type,
        causal_class=facts.causal_class,
        base_class=facts.base_class,
        layer_class=facts.layer_class,
        config_class=facts.config_class,
        modeling_module=facts.modeling_module,
        transformers_version=facts.transformers,
        decisions=[answers.decisions[name] for name in DECISIONS],
        norms=norms,
        norm_uses=uses,
        mlps=mlps,
        architecture=architecture,
        decoder_path=facts.decoder_path,
        layers_attribute=facts.layers_attribute,
        decoder_twins=facts.decoder_twins,
        by_auto_class=facts.by_auto_class,
        bf16_error=facts.bf16_error,
        vision=facts.vision,
        vision_norms=decide_vision_norms(facts, answers),
        vision_norm_uses=facts.vision_norm_uses,
        rope=rope,
        forward=forward,
        tiny_config=_arguments(facts.tiny_config),
        mini_config=_arguments(facts.mini_config),
        causal_class_module=facts.causal_class_module,
        requested=list(requested),
        questions=answers.questions,
        risks=answers.risks,
        conventions=conventions or {},
        base_sha=base_sha,
    )


def _arguments(config: dict[str, Any]) -> dict[str, object]:
    return dict(sorted(config.items()))


def _loss(facts: ModelFacts, answers: Answers) -> None:
    """A loss of the model's own that Liger's doesn't equal is a question, whatever the twelve say."""
    loss = facts.head.liger_loss
    distances = [
        value
        for name, value in loss.items()
        if name not in ("model", "error") and isinstance(value, int | float)
    ]
    if loss and (not distances or min(distances) > 1e-4) and not facts.head.router_losses:
        nearest = f"{min(distances):.2g}" if distances else "nothing could be compared"
        answers.ask(
            f"Liger's fused linear cross entropy lies {nearest} from the model's own loss. Does the model's loss do something more?"
        )
