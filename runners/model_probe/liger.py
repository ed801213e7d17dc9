"""The Liger classes of the checkout under test, whatever its release calls them."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from torch import nn

TRANSFORMERS = "liger_kernel.transformers"


def module(name: str) -> Any | None:
    """`liger_kernel.transformers.<name>`, or None when this release has no such module."""
    try:
        return importlib.import_module(f"{TRANSFORMERS}.{name}")
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith("liger_kernel"):
            return None
        raise


def classes(name: str, word: str) -> dict[str, type[nn.Module]]:
    """nn.Module classes of `liger_kernel.transformers.<name>` that are defined there and have `word` in their name."""
    found = module(name)
    if found is None:
        return {}
    return {
        key: value
        for key, value in vars(found).items()
        if inspect.isclass(value)
        and issubclass(value, nn.Module)
        and value.__module__ == found.__name__
        and word in key
    }


def rms_norms() -> dict[str, type[nn.Module]]:
    return classes("rms_norm", "RMSNorm")


def layer_norms() -> dict[str, type[nn.Module]]:
    return classes("layer_norm", "LayerNorm")


def feed_forwards() -> dict[str, type[nn.Module]]:
    """Gated and expert classes: LigerSwiGLUMLP, LigerGEGLUMLP, LigerPhi3SwiGLUMLP, LigerExperts, …"""
    found = {**classes("swiglu", "Liger"), **classes("geglu", "Liger")}
    first = (
        "LigerSwiGLUMLP",
        "LigerGEGLUMLP",
        "LigerPhi3SwiGLUMLP",
        "LigerExperts",
        "LigerQwen3MoeSwiGLUMLP",
    )
    return {
        name: found[name]
        for name in [*(n for n in first if n in found), *(n for n in found if n not in first)]
    }


def relu_squared() -> type[nn.Module] | None:
    return classes("relu_squared", "ReLUSquared").get("LigerReLUSquared")


def registered_models() -> list[str]:
    """Model types that the checkout patches already."""
    patch = module("monkey_patch")
    return sorted(getattr(patch, "MODEL_TYPE_TO_APPLY_LIGER_FN", {})) if patch is not None else []


def version() -> str:
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed("liger_kernel")
    except PackageNotFoundError:
        return "a checkout"
