"""Rope probe: what the model's rotary function computes on the arguments it is really called with, and whether Liger's does too."""

from __future__ import annotations

import inspect
import math
from typing import Any

import torch

from . import liger
from .apart import run_apart
from .distance import distance, finite
from .structure import rotary_functions
from .tiny_model import TinyModel

Call = tuple[tuple[Any, ...], dict[str, Any]]
MOST_FORMS = 3


def probe_rope(tiny: TinyModel) -> dict[str, Any]:
    """{"functions", "called", "shapes", "rotary_dim", "statements", "liger"}; `called` is None when no function is called."""
    names = rotary_functions(tiny)
    calls = _record(tiny, names)
    found: dict[str, Any] = {
        "functions": names,
        "called": None,
        "calls": {name: len(c) for name, c in calls.items() if c},
    }
    parameters = getattr(tiny.text_config, "rope_parameters", None)
    found["parameters"] = parameters if isinstance(parameters, dict) else None
    called = next((name for name in names if calls.get(name)), None)
    if called is None:
        return found
    function = getattr(tiny.resolved.modeling, called)
    found |= {
        "called": called,
        "signature": str(inspect.signature(inspect.unwrap(function))),
    }
    try:
        compared = [_compare(function, *call) for call in _forms(calls[called])]
    except Exception as error:  # noqa: BLE001 - a function of another shape: the finding
        return found | {"error": f"{type(error).__name__}: {str(error)[:200]}"}
    # A patch replaces the function for every caller: the form that Liger does worst counts.
    return found | {"forms": len(compared)} | max(compared, key=_far)


def _forms(calls: list[Call]) -> list[Call]:
    """One call of each form: the shapes of its tensors, and what else it passes by name. At most three."""
    seen: dict[str, Call] = {}
    for args, kwargs in calls:
        form = [list(a.shape) if isinstance(a, torch.Tensor) else repr(a) for a in (*args, *kwargs.values())]
        seen.setdefault(f"{sorted(kwargs)} {form}", (args, kwargs))
    return list(seen.values())[:MOST_FORMS]


def _far(compared: dict[str, Any]) -> float:
    value = compared.get("liger", {}).get("liger_rotary_pos_emb", {}).get("fp32")
    return math.inf if value is None else value


def _record(tiny: TinyModel, names: list[str]) -> dict[str, list[Call]]:
    """Arguments of every call to these functions during one forward pass of the model, by the model itself: a function that only
    another one of them calls is its helper, and what takes the other's place does without it."""
    modeling = tiny.resolved.modeling
    calls: dict[str, list[Call]] = {name: [] for name in names}
    originals = {name: getattr(modeling, name) for name in names}
    inside: list[str] = []

    def recorder(name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if not inside:
                calls[name].append((args, kwargs))
            inside.append(name)
            try:
                return originals[name](*args, **kwargs)
            finally:
                inside.pop()

        return call

    for name in names:
        setattr(modeling, name, recorder(name))
    try:
        with torch.no_grad():
            tiny.model(input_ids=tiny.inputs()["input_ids"], use_cache=False)
    finally:
        for name, original in originals.items():
            setattr(modeling, name, original)
    return calls


def _compare(function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> dict[str, Any]:
    parameters = list(inspect.signature(inspect.unwrap(function)).parameters)
    bound = dict(zip(parameters, arguments, strict=False)) | keywords
    if not {"q", "k", "cos", "sin"} <= set(bound) or bound["k"] is None:
        return {"error": f"it takes {', '.join(parameters)}, not q, k, cos, sin"}
    generator = torch.Generator().manual_seed(5)
    # The same layout in memory as the model's: a projection's view, transposed.
    bound["q"], bound["k"] = (
        torch.randn(value.transpose(1, 2).shape, generator=generator).transpose(1, 2)
        if value.dim() == 4
        else value
        for value in (bound["q"], bound["k"])
    )
    q, k, cos, sin = (bound[name].detach().float() for name in ("q", "k", "cos", "sin"))
    call = bound | {"q": q, "k": k, "cos": cos, "sin": sin}
    with torch.no_grad():
        wanted = function(**call)
    result: dict[str, Any] = {
        "keywords": sorted(keywords),
        "unsqueeze_dim": int(bound.get("unsqueeze_dim", 1) or 1),
        "shapes": {name: list(bound[name].shape) for name in ("q", "k", "cos", "sin")},
        "head_dim": q.shape[-1],
        "rotary_dim": cos.shape[-1],
        "partial": cos.shape[-1] < q.shape[-1],
        "statements": {},
    }
    unsqueeze = result["unsqueeze_dim"]
    for name, statement in STATEMENTS.items():
        try:
            pair = statement(q, k, cos, sin, unsqueeze)
            result["statements"][name] = finite(
                max(distance(a, b) for a, b in zip(pair, wanted, strict=False))
            )
        except Exception as error:  # noqa: BLE001 - shapes that a statement can't take
            result["statements"][name] = None
            result.setdefault("statement_errors", {})[name] = str(error)[:100]
    for name in ("liger_rotary_pos_emb",):
        candidate = getattr(liger.module("rope"), name, None)
        if candidate is not None:
            result.setdefault("liger", {})[name] = _liger(candidate, call, wanted)
    mrope = getattr(liger.module("qwen2vl_mrope"), "liger_multimodal_rotary_pos_emb", None)
    if mrope is not None:
        result.setdefault("liger", {})["liger_multimodal_rotary_pos_emb"] = (
            _liger(mrope, call, wanted)
            if "mrope_section" in call
            else {"error": "the function takes no mrope_section"}
        )
    # cos and sin of half the head, each for a pair of elements, turn the whole of it
    whole = result["statements"].get("standard_halves")
    if whole is not None and whole <= 1e-5:
        result["partial"], result["rotary_dim"] = False, q.shape[-1]
    # Can it turn only a part of the head? Some models' default config does not, a checkpoint's may.
    if not result["partial"] and cos.shape[-1] >= 4:
        part = cos.shape[-1] // 2
        try:
            with torch.no_grad():
                shorter = function(**(call | {"cos": cos[..., :part], "sin": sin[..., :part]}))
            result["takes_partial"] = shorter[0].shape == q.shape
            candidate = getattr(liger.module("rope"), "liger_rotary_pos_emb", None)
            if result["takes_partial"] and candidate is not None:
                given = call | {"cos": cos[..., :part], "sin": sin[..., :part]}
                result["liger_partial"] = _liger(candidate, given, shorter)
        except Exception:  # noqa: BLE001 - the finding is that it can't
            result["takes_partial"] = False
    return result


def _liger(candidate: Any, call: dict[str, Any], wanted: Any) -> dict[str, Any]:
    return run_apart(lambda: _distances(candidate, call, wanted))


def _distances(candidate: Any, call: dict[str, Any], wanted: Any) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for name, dtype, limit in (("fp32", torch.float32, 1e-5), ("bf16", torch.bfloat16, 2e-2)):
        try:
            given = {
                k: v.to(dtype).clone() if isinstance(v, torch.Tensor) and v.is_floating_point() else v
                for k, v in call.items()
            }
            with torch.no_grad():
                pair = candidate(**given)
            results[name] = finite(max(distance(a, b) for a, b in zip(pair, wanted, strict=False)))
        except Exception as error:  # noqa: BLE001 - shapes it can't take: the finding
            results[name] = None
            results["error"] = f"{type(error).__name__}: {str(error)[:120]}"
        results.setdefault("rounding", {})[name] = limit
    return results


def _halves(x: torch.Tensor) -> torch.Tensor:
    return torch.cat((-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]), dim=-1)


def _pairs(x: torch.Tensor) -> torch.Tensor:
    return torch.stack((-x[..., 1::2], x[..., 0::2]), dim=-1).flatten(-2)


def _standard(q: Any, k: Any, cos: Any, sin: Any, unsqueeze: int) -> tuple[Any, Any]:
    cos, sin = cos.unsqueeze(unsqueeze), sin.unsqueeze(unsqueeze)
    return q * cos + _halves(q) * sin, k * cos + _halves(k) * sin


def _standard_halves(q: Any, k: Any, cos: Any, sin: Any, unsqueeze: int) -> tuple[Any, Any]:
    """The same with cos and sin given once for both halves (GPT-OSS)."""
    if 2 * cos.shape[-1] != q.shape[-1]:
        raise ValueError("cos is not half as wide as the head")
    return _standard(q, k, torch.cat((cos, cos), -1), torch.cat((sin, sin), -1), unsqueeze)


def _partly(statement: Any) -> Any:
    def turned(q: Any, k: Any, cos: Any, sin: Any, unsqueeze: int) -> tuple[Any, Any]:
        part = cos.shape[-1]
        if part >= q.shape[-1]:
            raise ValueError("the whole head is turned")
        q_turned, k_turned = statement(q[..., :part], k[..., :part], cos, sin, unsqueeze)
        return torch.cat((q_turned, q[..., part:]), -1), torch.cat((k_turned, k[..., part:]), -1)

    return turned


def _interleaved(q: Any, k: Any, cos: Any, sin: Any, unsqueeze: int) -> tuple[Any, Any]:
    half = cos.shape[-1] // 2
    cos, sin = (x[..., :half].repeat_interleave(2, dim=-1).unsqueeze(unsqueeze) for x in (cos, sin))
    return q * cos + _pairs(q) * sin, k * cos + _pairs(k) * sin


def _interleaved_given(q: Any, k: Any, cos: Any, sin: Any, unsqueeze: int) -> tuple[Any, Any]:
    """Neighbours turned, with cos and sin already repeated."""
    cos, sin = cos.unsqueeze(unsqueeze), sin.unsqueeze(unsqueeze)
    return q * cos + _pairs(q) * sin, k * cos + _pairs(k) * sin


def _regrouped(q: Any, k: Any, cos: Any, sin: Any, unsqueeze: int) -> tuple[Any, Any]:
    """Neighbours brought to halves first (DeepSeek): the result stays in halves."""
    q, k = (torch.cat((x[..., 0::2], x[..., 1::2]), dim=-1) for x in (q, k))
    return _standard(q, k, cos, sin, unsqueeze)


STATEMENTS = {
    "standard": _standard,
    "standard_halves": _standard_halves,
    "interleaved": _interleaved,
    "interleaved_repeated": _interleaved_given,
    "interleaved_regrouped": _regrouped,
    "partial": _partly(_standard),
    "interleaved_partial": _partly(_interleaved),
    "interleaved_repeated_partial": _partly(_interleaved_given),
}
