"""The whole inspection of one model, as facts for JSON."""

from __future__ import annotations

import json
import time
from typing import Any

from . import liger
from .head import probe_head
from .mlps import probe_feed_forwards
from .norms import probe_in_place, probe_norms
from .resolve import Refused, Resolved, resolve
from .rope import probe_rope
from .shrink import MINI, made_small, shrunk
from .structure import (
    causal_forward,
    layer_kinds,
    norm_uses,
    norms_of,
    sources,
    towers,
    vision_classes,
    vision_norms_of,
)
from .tiny_model import TinyModel, bf16_error, build


def inspect_model(model: str | None, config: dict[str, Any] | None) -> dict[str, Any]:
    """{"facts": …} or {"refusal": {"code", "detail", "known"}}; every value is plain JSON."""
    try:
        return {"facts": _facts(resolve(model, config))}
    except Refused as refused:
        return {"refusal": {"code": refused.code, "detail": refused.detail, "known": refused.known}}


def _facts(resolved: Resolved) -> dict[str, Any]:
    seconds: dict[str, float] = {}
    clock = time.perf_counter()

    def lap(name: str) -> None:
        nonlocal clock
        seconds[name], clock = round(time.perf_counter() - clock, 2), time.perf_counter()

    tiny = build(resolved)
    lap("build")
    norms = probe_norms(tiny, norms_of(tiny))
    vision_norms, vision_norm_uses = vision_norms_of(tiny)
    lap("norms")
    probe_in_place(tiny, norms)
    lap("in_place")
    feed_forwards = probe_feed_forwards(tiny)
    lap("mlps")
    rope = probe_rope(tiny)
    lap("rope")
    forward = causal_forward(tiny)
    head = probe_head(tiny)
    lap("head")
    return _plain(_identity(tiny) | {
        "norms": norms,
        "norm_uses": norm_uses(tiny),
        "vision_norms": probe_norms(tiny, vision_norms),
        "vision_norm_uses": vision_norm_uses,
        "feed_forwards": feed_forwards,
        "rope": rope,
        "head": head,
        "forward": forward,
        "layers": layer_kinds(tiny),
        "vision": vision_classes(tiny),
        "vision_towers": towers(tiny),
        "sources": sources(tiny, _functions(tiny, rope)),
        "seconds": seconds,
    })  # fmt: skip


def _identity(tiny: TinyModel) -> dict[str, Any]:
    import transformers

    resolved, model = tiny.resolved, tiny.model
    text_type = getattr(tiny.text_config, "model_type", None)
    return {
        "model_type": resolved.model_type,
        "text_model_type": text_type if text_type != resolved.model_type else None,
        "causal_class": resolved.causal_class.__name__,
        "causal_class_module": "transformers"
        if hasattr(transformers, resolved.causal_class.__name__)
        else resolved.modeling.__name__,
        "base_class": type(tiny.decoder).__name__,
        "layer_class": type(tiny.layers[0]).__name__,
        "config_class": type(resolved.config).__name__,
        "modeling_module": resolved.modeling.__name__,
        "decoder_module": type(tiny.decoder).__module__,
        "decoder_path": tiny.path,
        "layers_attribute": tiny.layers_attribute,
        "decoder_twins": tiny.twins,
        "by_auto_class": _by_auto_class(resolved),
        "bf16_error": bf16_error(tiny),
        "transformers": transformers.__version__,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "tiny_config": made_small(resolved.given, tiny.arguments),
        "mini_config": made_small(resolved.given, shrunk(resolved.config, MINI)),
        "config": {
            name: value
            for name, value in vars(tiny.text_config).items()
            if not name.startswith("_") and isinstance(value, bool | int | float | str | type(None))
        },
        "registered": liger.registered_models(),
    }


def _by_auto_class(resolved: Resolved) -> bool:
    """Whether AutoModelForCausalLM builds the class from its config."""
    from transformers import AutoModelForCausalLM

    try:
        return AutoModelForCausalLM._model_mapping[type(resolved.config)] is resolved.causal_class
    except (KeyError, AttributeError):
        return False


def _functions(tiny: TinyModel, rope: dict[str, Any]) -> list[Any]:
    called = rope.get("called")
    return [getattr(tiny.resolved.modeling, called)] if called else []


def _plain(facts: dict[str, Any]) -> dict[str, Any]:
    """The same through JSON, with what JSON has no form for as text."""
    return json.loads(json.dumps(facts, default=str))
