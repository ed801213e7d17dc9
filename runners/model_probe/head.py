"""Head and loss probes: how the hidden state becomes logits, what class the output has, and whether Liger's loss is the same."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from . import liger
from .distance import distance, finite
from .tiny_model import TinyModel

SOFTCAPS = (
    "final_logit_softcapping",
    "final_logit_softcap",
    "logits_soft_cap",
    "output_logit_soft_cap",
    "logit_softcap",
)


def probe_head(tiny: TinyModel) -> dict[str, Any]:
    """Facts of one forward pass with labels, and of Liger's fused linear cross entropy on the same hidden state."""
    model, inputs = tiny.model, tiny.inputs()
    head_name, head = _head(tiny)
    found: dict[str, Any] = {
        "head_attribute": head_name,
        "head_class": type(head).__name__ if head is not None else None,
        "head_bias": getattr(head, "bias", None) is not None,
        "base_attribute": getattr(model, "base_model_prefix", "") or tiny.path.split(".", maxsplit=1)[0],
        "loss_function": getattr(getattr(model, "loss_function", None), "__name__", None),
        "loss_type": getattr(model, "loss_type", None),
    }
    for name in SOFTCAPS:  # a cap that the default config leaves out, but the forward reads, is switched on
        if getattr(tiny.text_config, name, 0) is None:
            setattr(tiny.text_config, name, 30.0)
            found["softcap_switched_on"] = name
    seen: dict[str, Any] = {}
    hooks = []
    if head is not None:
        hooks.append(
            head.register_forward_hook(lambda _m, args, out: seen.update(head_in=args[0], head_out=out))
        )
    base = getattr(model, found["base_attribute"], None)
    if isinstance(base, nn.Module):
        hooks.append(base.register_forward_hook(lambda _m, _a, out: seen.update(base_out=out)))
    try:
        with torch.no_grad():
            output = model(**inputs, use_cache=False, return_dict=True)
    finally:
        for hook in hooks:
            hook.remove()
    found["output_class"] = type(output).__name__
    found["output_module"] = type(output).__module__
    found["output_fields"] = list(output.keys())
    found["router_losses"] = [
        name
        for name in getattr(type(output), "__dataclass_fields__", {})
        if "aux" in name or "router" in name
    ]
    logits = output.logits
    sizes = (tiny.model.config, tiny.text_config)  # the one or the other is what a patch asks
    found["config_has_hidden_size"] = all(hasattr(config, "hidden_size") for config in sizes)
    found["base_output_class"] = type(seen["base_out"]).__name__ if "base_out" in seen else None
    if "head_in" in seen:
        found |= _hidden(seen)
        found |= _logits(tiny, seen["head_out"], logits)
        found["liger_loss"] = _liger_loss(tiny, head, seen["head_in"], output.loss, found)
    return found


def _head(tiny: TinyModel) -> tuple[str, nn.Module | None]:
    getter = getattr(tiny.model, "get_output_embeddings", None)
    wanted = getter() if getter is not None else None
    for name, module in tiny.model.named_children():
        if module is wanted or (wanted is None and name in ("lm_head", "embed_out", "output")):
            return name, module
    return ("lm_head", None) if wanted is None else ("", wanted)


def _hidden(seen: dict[str, Any]) -> dict[str, Any]:
    """Which ways of reading the base model's output give what the head was given."""
    ways = {}
    base, head_in = seen.get("base_out"), seen["head_in"]
    for name, read in (("last_hidden_state", lambda o: o.last_hidden_state), ("[0]", lambda o: o[0])):
        try:
            ways[name] = finite(distance(read(base), head_in))
        except Exception:  # noqa: BLE001 - an output without that field: the finding
            ways[name] = None
    return {"hidden_distances": ways, "hidden_size": head_in.shape[-1]}


def _logits(tiny: TinyModel, head_out: torch.Tensor, logits: torch.Tensor) -> dict[str, Any]:
    """What lies between the head and the logits: nothing, a cap, a factor, or something else."""
    distances: dict[str, Any] = {"none": finite(distance(head_out, logits))}
    for name in SOFTCAPS:
        cap = getattr(tiny.text_config, name, None)
        if isinstance(cap, int | float) and cap:
            distances[name] = finite(distance(torch.tanh(head_out / cap) * cap, logits))
    ratio = (logits.double() / head_out.double()).flatten()
    ratio = ratio[ratio.isfinite()]
    if ratio.numel():
        middle = float(ratio.median())
        distances["factor"] = finite(distance(head_out * middle, logits))
        return {"logit_distances": distances, "logit_factor": float(f"{middle:.6g}")}
    return {"logit_distances": distances, "logit_factor": None}


def _liger_loss(
    tiny: TinyModel,
    head: Any,
    hidden: torch.Tensor,
    loss: torch.Tensor | None,
    found: dict[str, Any],
) -> dict[str, Any]:
    """The checkout's LigerForCausalLMLoss on the model's own hidden state and head, against the model's own loss."""
    module = liger.module("model.loss_utils")
    if module is None or loss is None or head is None:
        return {}
    results: dict[str, Any] = {"model": finite(float(loss))}
    caps = {
        name: getattr(tiny.text_config, name, None)
        for name in SOFTCAPS
        if found["logit_distances"].get(name) is not None
    }
    tries: dict[str, tuple[torch.Tensor, dict[str, Any]]] = {"plain": (hidden, {})}
    tries |= {name: (hidden, {"final_logit_softcapping": cap}) for name, cap in caps.items()}
    if found["logit_factor"] not in (None, 1.0):
        tries["factor"] = (hidden * found["logit_factor"], {})
    if found["head_bias"]:
        tries = {name: (state, more | {"bias": head.bias}) for name, (state, more) in tries.items()}
    for name, (state, more) in tries.items():
        try:
            given = state.detach().clone()
            value = module.LigerForCausalLMLoss(
                hidden_states=given, lm_head_weight=head.weight.detach(), labels=tiny.inputs()["labels"],
                hidden_size=given.shape[-1], **more,
            )  # fmt: skip
            results[name] = finite(distance(torch.as_tensor(float(value)), loss))
        except Exception as error:  # noqa: BLE001 - an older loss takes no cap: the finding
            results[name] = None
            results["error"] = f"{type(error).__name__}: {str(error)[:150]}"
    return results
