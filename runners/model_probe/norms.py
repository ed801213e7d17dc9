"""Norm probes: which formula, which casting mode and offset, and whether the backward may overwrite its gradient.

The bit test: in bfloat16 exactly one of {llama, gemma, none} x {0, 1} gives the norm's own result in every bit. llama multiplies by
the weight after the downcast, gemma in float32 before it, none never leaves bfloat16.
"""

from __future__ import annotations

import copy
import inspect
import re
from typing import Any

import torch
from torch import nn

from . import liger
from .distance import distance, equal_bits, finite
from .structure import norm_uses, norms_of
from .tiny_model import TinyModel

CASTING_MODES, OFFSETS = ("llama", "gemma", "none"), (0.0, 1.0)
ROWS = 64
EPS_ATTRIBUTES = ("variance_epsilon", "eps", "epsilon", "norm_eps")


def probe_norms(tiny: TinyModel, norms: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """One entry for each norm class in `norms`: class name -> its instances."""
    entries = []
    for name, modules in norms.items():
        try:
            entries.append(_probe(name, modules[0], tiny))
        except Exception as error:  # noqa: BLE001 - the model's own code: what it raises is the finding
            entries.append(
                {"name": name, "kind": "other", "error": f"{type(error).__name__}: {str(error)[:200]}"}
            )
    return entries


def _probe(name: str, module: Any, tiny: TinyModel) -> dict[str, Any]:
    weight = getattr(module, "weight", None)
    entry: dict[str, Any] = {
        "name": name,
        "class_module": type(module).__module__,
        "imported": hasattr(tiny.resolved.modeling, name) and not _made_as_nn(module, name, tiny),
        "weight_dim": None if weight is None else weight.shape[-1],
        "bias": getattr(module, "bias", None) is not None,
        "eps_attribute": next(
            (a for a in EPS_ATTRIBUTES if isinstance(getattr(module, a, None), float)), None
        ),
        "init": _initial(name, module, tiny),
    }
    takes = [name for name in inspect.signature(type(module).forward).parameters if name != "self"]
    if len(takes) != 1:  # a gate beside the rows; it may be optional, but is given
        return {
            **entry,
            "kind": "other",
            "error": f"its forward takes {', '.join(takes)}, a norm's the rows alone",
        }
    if weight is None:
        return {**entry, "kind": "other", "error": "it has no weight"}
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(ROWS, weight.shape[-1], generator=generator) * torch.logspace(-2, 2, ROWS)[:, None]
    module = _with_weights(module, generator)
    own = copy.deepcopy(module).float()
    try:
        wanted32 = own(x.clone())
        half = copy.deepcopy(module).bfloat16()
        wanted16 = half(x.bfloat16())
    except Exception as error:  # noqa: BLE001 - a gated norm takes two arguments, and so on
        return {**entry, "kind": "other", "error": f"it can't be run on rows alone: {str(error)[:150]}"}
    eps = float(getattr(module, entry["eps_attribute"])) if entry["eps_attribute"] else 1e-6
    entry["eps"] = eps
    statements = {mode_offset: _rms(x, own.weight, eps, *mode_offset) for mode_offset in _combinations()}
    rms = min(distance(value, wanted32) for value in statements.values())
    bias = own.bias if isinstance(getattr(own, "bias", None), torch.Tensor) else None
    layer = {
        offset: distance(
            nn.functional.layer_norm(x, own.weight.shape, own.weight + offset, bias, eps), wanted32
        )
        for offset in OFFSETS
    }
    entry["formula_distance"] = {
        "rms_norm": finite(rms),
        "layer_norm": finite(layer[0.0]),
        "layer_norm_1p": finite(layer[1.0]),
    }
    entry["kind"] = "rms_norm" if rms < 1e-5 else "layer_norm" if layer[0.0] < 1e-5 else "other"
    entry["keywords"] = sorted({keyword for _, named in tiny.calls.get(name, ()) for keyword in named})
    if entry["kind"] == "rms_norm":
        entry |= _bit_test(x.bfloat16(), half.weight, eps, wanted16)
        entry["liger"] = _liger_rms(x, own, half, eps, wanted16, wanted32)
        entry["constructors"] = _constructors(name, tiny, liger.rms_norms())
    elif liger.layer_norms():
        entry["liger"] = _liger_layer_norm(x, own, eps, wanted16, wanted32)
        entry["constructors"] = _constructors(name, tiny, liger.layer_norms())
    return entry


def _combinations() -> list[tuple[str, float]]:
    return [(mode, offset) for mode in CASTING_MODES for offset in OFFSETS]


def _made_as_nn(module: Any, name: str, tiny: TinyModel) -> bool:
    """Whether its owner makes it as `nn.{name}`, though the modeling module may have imported that class by its name too."""
    owner = next((one for one in tiny.model.modules() if module in one.children()), None)
    try:
        source = inspect.getsource(type(owner)) if owner is not None else ""
    except (OSError, TypeError):
        return False
    return re.search(rf"\bnn\.{name}\(", source) is not None


def _with_weights(module: Any, generator: torch.Generator) -> Any:
    """A copy with random weights: at 0 and 1 the casting modes can't be told apart."""
    module = copy.deepcopy(module)
    with torch.no_grad():
        for parameter in module.parameters(recurse=False):
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5 + 0.3)
    return module


def _initial(name: str, module: Any, tiny: TinyModel) -> str:
    """ "ones" or "zeros": the weight of a freshly constructed instance."""
    calls = tiny.calls.get(name)
    try:
        fresh = type(module)(*calls[0][0], **calls[0][1]) if calls else module
        return "zeros" if float(fresh.weight.detach().abs().max()) == 0.0 else "ones"
    except Exception:  # noqa: BLE001 - without a weight, or a constructor that needs more
        return "ones"


def _rms(x: torch.Tensor, weight: torch.Tensor, eps: float, mode: str, offset: float) -> torch.Tensor:
    """The six statements of RMSNorm. x, the result: (rows, columns)."""
    dtype = x.dtype
    wide = x if mode == "none" else x.float()
    normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    if mode == "gemma":
        return (normed * (weight.float() + offset)).to(dtype)
    return normed.to(dtype) * (weight + offset) if offset else normed.to(dtype) * weight


def _bit_test(
    x16: torch.Tensor, weight16: torch.Tensor, eps: float, wanted16: torch.Tensor
) -> dict[str, Any]:
    shares = {
        f"{mode}/{offset:g}": equal_bits(_rms(x16, weight16, eps, mode, offset), wanted16)
        for mode, offset in _combinations()
    }
    same = [key for key, share in shares.items() if share == 1.0]
    mode, offset = same[0].split("/") if len(same) == 1 else (None, None)
    return {
        "equal_bits": {key: finite(share) for key, share in shares.items()},
        "casting_mode": mode,
        "offset": float(offset) if offset is not None else None,
        "matches": same,
    }


def _liger_rms(
    x: torch.Tensor,
    own: Any,
    half: Any,
    eps: float,
    wanted16: torch.Tensor,
    wanted32: torch.Tensor,
) -> dict[str, Any]:
    """The checkout's own kernel in every mode: distance in float32, share of equal elements in bfloat16."""
    norm: Any = liger.rms_norms().get("LigerRMSNorm")
    if norm is None:
        return {}
    rows = slice(0, ROWS, 4)  # the kernel is interpreted
    found: dict[str, Any] = {}
    for mode, offset in _combinations():
        try:
            made = norm(own.weight.shape[-1], eps=eps, offset=offset, casting_mode=mode, in_place=False)
        except TypeError:  # releases before casting modes
            made = norm(own.weight.shape[-1], eps=eps)
        with torch.no_grad():
            made.weight.copy_(own.weight)
            in32 = made(x[rows].clone())
            made = made.bfloat16()
            made.weight.copy_(half.weight)
            in16 = made(x[rows].bfloat16())
        found[f"{mode}/{offset:g}"] = {
            "fp32": finite(distance(in32, wanted32[rows])),
            "bf16": finite(distance(in16, wanted16[rows])),
            "bf16_equal": finite(equal_bits(in16, wanted16[rows])),
        }
    return found


def _liger_layer_norm(
    x: torch.Tensor,
    own: Any,
    eps: float,
    wanted16: torch.Tensor,
    wanted32: torch.Tensor,
) -> dict[str, Any]:
    norm: Any = liger.layer_norms()["LigerLayerNorm"]
    rows = slice(0, ROWS, 4)
    found: dict[str, Any] = {}
    made = norm(own.weight.shape[-1], eps=eps)
    bias = own.bias if isinstance(getattr(own, "bias", None), torch.Tensor) else torch.zeros_like(own.weight)
    with torch.no_grad():
        made.weight.copy_(own.weight)
        made.bias.copy_(bias)
        in32 = made(x[rows].clone())
        in16 = made.bfloat16()(x[rows].bfloat16())
    found["LigerLayerNorm"] = {
        "fp32": finite(distance(in32, wanted32[rows])),
        "bf16": finite(distance(in16, wanted16[rows])),
        "bf16_equal": finite(equal_bits(in16, wanted16[rows])),
    }
    return found


def _constructors(name: str, tiny: TinyModel, candidates: dict[str, type[nn.Module]]) -> dict[str, Any]:
    """Which Liger classes can be constructed with the arguments that the model uses, and what they then are."""
    calls = tiny.calls.get(name) or [((), {})]
    found: dict[str, Any] = {}
    for candidate, cls in candidates.items():
        try:
            made, *_ = [
                cls(*args, **keywords) for args, keywords in calls
            ]  # all have to work; the first is the one probed
        except Exception as error:  # noqa: BLE001 - the finding is that it can't
            found[candidate] = {"error": f"{type(error).__name__}: {str(error)[:120]}"}
            continue
        weight = getattr(made, "weight", None)
        found[candidate] = {
            "offset": getattr(made, "offset", None),
            "casting_mode": getattr(made, "casting_mode", None),
            "in_place": getattr(made, "in_place", None),
            "eps": getattr(made, "variance_epsilon", None),
            "weight_dim": None if weight is None else weight.shape[-1],
            "init": None if weight is None else "zeros" if float(weight.abs().max()) == 0.0 else "ones",
        }
    return found


def probe_in_place(tiny: TinyModel, entries: list[dict[str, Any]]) -> None:
    """Adds to each RMSNorm entry how far every gradient of the model moves when its backward runs in place, and when not."""
    norm: Any = liger.rms_norms().get("LigerRMSNorm")
    if norm is None:
        return
    wanted = _gradients(tiny)
    by_name = norms_of(tiny)
    for entry in entries:
        if entry.get("kind") != "rms_norm" or entry.get("casting_mode") is None:
            continue
        for in_place in (False, True):
            with_liger = _Patched(by_name[entry["name"]], norm, entry, in_place)
            try:
                found = _gradients(tiny)
                far = {key: distance(found[key], value) for key, value in wanted.items() if key in found}
                worst = max(far, key=lambda key: far[key])
                result = {"worst": worst, "distance": finite(far[worst])}
            except Exception as error:  # noqa: BLE001 - e.g. autograd notices the overwritten tensor
                result = {
                    "worst": "",
                    "distance": None,
                    "error": f"{type(error).__name__}: {str(error)[:150]}",
                }
            finally:
                with_liger.undo()
            entry.setdefault("in_place_gradients", {})["in_place" if in_place else "not_in_place"] = result
        entry["used_at"] = sorted(
            {use["attribute"] for use in norm_uses(tiny) if use["norm"] == entry["name"]}
        )


class _Patched:
    """Instances of one norm class computing through Liger, as its instance patch does."""

    def __init__(self, modules: list[Any], norm: Any, entry: dict[str, Any], in_place: bool):
        self.modules = [module for module in modules if getattr(module, "weight", None) is not None]
        for module in self.modules:
            object.__setattr__(module, "forward", self._forward(module, norm, entry, in_place))

    @staticmethod
    def _forward(module: Any, norm: Any, entry: dict[str, Any], in_place: bool) -> Any:
        stand_in = norm(module.weight.shape[-1], eps=entry["eps"])
        stand_in.offset, stand_in.casting_mode = entry["offset"], entry["casting_mode"]
        stand_in.in_place, stand_in.row_mode = in_place, None
        stand_in.weight = module.weight
        return stand_in.forward

    def undo(self) -> None:
        for module in self.modules:
            object.__delattr__(module, "forward")


def _gradients(tiny: TinyModel) -> dict[str, torch.Tensor]:
    tiny.model.zero_grad(set_to_none=True)
    torch.manual_seed(3)
    tiny.model(**tiny.inputs(), use_cache=False).loss.backward()
    found = {n: p.grad.clone() for n, p in tiny.model.named_parameters() if p.grad is not None}
    tiny.model.zero_grad(set_to_none=True)
    return found
