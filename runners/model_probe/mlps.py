"""Feed-forward probes: the model's own class against each Liger candidate, with the same weights and inputs."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from . import liger
from .distance import distance, finite
from .structure import feed_forwards_of
from .tiny_model import TinyModel

TOKENS = 8
ACTIVATION_ATTRIBUTES = ("act_fn", "activation_fn", "act", "activation", "activation_func", "hidden_act_fn")


def probe_feed_forwards(tiny: TinyModel) -> list[dict[str, Any]]:
    """One entry for each feed-forward class and place."""
    entries = []
    probed: dict[str, dict[str, Any]] = {}
    for entry in feed_forwards_of(tiny):
        module = entry.pop("module")
        if entry["class"] not in probed:
            try:
                probed[entry["class"]] = _probe(entry, module, tiny)
            except Exception as error:  # noqa: BLE001 - the model's own code: what it raises is the finding
                probed[entry["class"]] = {"error": f"{type(error).__name__}: {str(error)[:200]}"}
        entries.append({**entry, **probed[entry["class"]]})
    return entries


def _probe(entry: dict[str, Any], module: Any, tiny: TinyModel) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(4)
    module = copy.deepcopy(module).float()
    # Experts are called through a dispatcher; "eager" is the model's own loop over them.
    if hasattr(module, "config") and hasattr(module.config, "_experts_implementation"):
        module.config = copy.deepcopy(module.config)
        module.config._experts_implementation = "eager"
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.dim() >= 2:
                parameter.copy_(
                    torch.randn(parameter.shape, generator=generator) * (1.5 * parameter.shape[-1] ** -0.5)
                )
    width = _width(module, entry)
    inputs = _inputs(entry, module, width, generator)
    with torch.no_grad():
        wanted32 = module(*inputs)
    half = copy.deepcopy(module).bfloat16()
    inputs16 = [value.bfloat16() if value.is_floating_point() else value for value in inputs]
    with torch.no_grad():
        wanted16 = half(*inputs16)
    attribute = next((name for name in ACTIVATION_ATTRIBUTES if callable(getattr(module, name, None))), None)
    result: dict[str, Any] = {
        "dropout": tiny.dropouts.get(entry["class"], {}),
        "width": width,
        "activation_attribute": attribute,
        "activation": _activation(getattr(module, attribute) if attribute else None),
        "activation_key": _activation_key(tiny),
        "rounding": {"fp32": 1e-5, "bf16": 2e-2},
        "candidates": {},
    }
    for name, cls in liger.feed_forwards().items():
        result["candidates"][name] = _against(
            cls, entry, module, half, inputs, inputs16, wanted32, wanted16, tiny
        )
    squared = liger.relu_squared()
    if squared is not None and attribute is not None:
        result["candidates"]["LigerReLUSquared"] = _with_activation(
            squared, attribute, module, half, inputs, inputs16, wanted32, wanted16
        )
    return result


def _width(module: Any, entry: dict[str, Any]) -> int:
    """Hidden size: the input columns of the first projection."""
    first = (
        entry["projections"][1]
        if entry["form"] == "gated" and entry["projections"][0] == "down_proj"
        else None
    )
    names = [n for n in (first, "gate_proj", "gate_up_proj", "up_proj", "w1", "c_fc", "fc1", "dense_h_to_4h", "fc_in",
                         "input_linear", "linear_1") if n and hasattr(module, n)]  # fmt: skip
    projection = getattr(module, names[0])
    weight = projection if isinstance(projection, nn.Parameter) else projection.weight
    config = getattr(module, "config", None)
    hidden = (
        getattr(module, "hidden_size", None)
        or getattr(module, "hidden_dim", None)
        or getattr(config, "hidden_size", None)
    )
    if isinstance(hidden, int) and hidden in weight.shape:
        return hidden
    return weight.shape[0] if type(projection).__name__ == "Conv1D" else weight.shape[-1]


def _inputs(entry: dict[str, Any], module: Any, width: int, generator: torch.Generator) -> list[torch.Tensor]:
    x = torch.randn(TOKENS, width, generator=generator)
    if not entry["stacked"]:
        return [x.reshape(2, TOKENS // 2, width)]
    stacked = next(parameter for parameter in module.parameters(recurse=False) if parameter.dim() == 3)
    experts, chosen = stacked.shape[0], min(2, stacked.shape[0])
    index = torch.stack([torch.randperm(experts, generator=generator)[:chosen] for _ in range(TOKENS)])
    return [x, index, torch.rand(TOKENS, chosen, generator=generator)]


def _activation(function: Any) -> dict[str, Any]:
    """Which function an activation is, by its values: {"name", "class", "distances"}."""
    if function is None:
        return {"name": "other", "class": "", "distances": {}}
    x = torch.linspace(-4, 4, 257)
    known = {
        "silu": nn.functional.silu(x),
        "gelu_tanh": nn.functional.gelu(x, approximate="tanh"),
        "gelu": nn.functional.gelu(x),
        "relu2": nn.functional.relu(x).square(),
    }
    try:
        with torch.no_grad():
            values = function(x)
    except Exception:  # noqa: BLE001 - an activation of two arguments
        return {"name": "other", "class": type(function).__name__, "distances": {}}
    distances = {name: distance(values, value) for name, value in known.items()}
    nearest = min(distances, key=lambda name: distances[name])
    return {
        "name": nearest if distances[nearest] < 1e-6 else "other",
        "class": getattr(function, "__name__", type(function).__name__),
        "distances": {name: finite(value) for name, value in distances.items()},
    }


def _activation_key(tiny: TinyModel) -> str | None:
    """The ACT2FN key that the config names."""
    config = tiny.text_config
    for name in ("hidden_act", "hidden_activation", "activation_function", "mlp_hidden_act"):
        value = getattr(config, name, None)
        if isinstance(value, str):
            return value
    return None


def _against(
    cls: type[nn.Module], entry: dict[str, Any], module: Any, half: Any, inputs: list[torch.Tensor],
    inputs16: list[torch.Tensor], wanted32: torch.Tensor, wanted16: torch.Tensor, tiny: TinyModel,
) -> dict[str, Any]:  # fmt: skip
    """The candidate's forward on the model's own instance (instance path), and its construction in its place (class path)."""
    found: dict[str, Any] = {}
    if (entry["stacked"]) != ("Experts" in cls.__name__):
        return {"error": "another form"}
    try:
        with torch.no_grad():
            found["fp32"] = finite(distance(cls.forward(copy.deepcopy(module), *inputs), wanted32))
            found["bf16"] = finite(distance(cls.forward(copy.deepcopy(half), *inputs16), wanted16))
    except Exception as error:  # noqa: BLE001 - it has other attributes: the finding
        return {"error": f"{type(error).__name__}: {str(error)[:120]}"}
    calls = tiny.calls.get(entry["class"]) or [((), {})]
    try:
        made, *_ = [
            cls(*args, **keywords) for args, keywords in calls
        ]  # all have to work; the first is the one probed
        missing = made.load_state_dict(module.state_dict(), strict=False)
        different = [*missing.missing_keys, *missing.unexpected_keys]
        found["constructed"] = not different
        if different:
            found["constructor"] = f"its parameters differ: {', '.join(different[:4])}"
    except Exception as error:  # noqa: BLE001 - the finding is that it can't
        found["constructed"], found["constructor"] = False, f"{type(error).__name__}: {str(error)[:120]}"
    return found


def _with_activation(
    activation: type[nn.Module], attribute: str, module: Any, half: Any, inputs: list[torch.Tensor],
    inputs16: list[torch.Tensor], wanted32: torch.Tensor, wanted16: torch.Tensor,
) -> dict[str, Any]:  # fmt: skip
    """The model's own class with only its activation replaced, as a patch of ACT2FN does."""
    try:
        results = []
        for own, given, wanted in ((module, inputs, wanted32), (half, inputs16, wanted16)):
            patched = copy.deepcopy(own)
            setattr(patched, attribute, activation())
            with torch.no_grad():
                results.append(finite(distance(patched(*given), wanted)))
        return {"fp32": results[0], "bf16": results[1], "constructed": True}
    except Exception as error:  # noqa: BLE001 - an activation it can't take
        return {"error": f"{type(error).__name__}: {str(error)[:120]}"}
