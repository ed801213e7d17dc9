"""A tiny model, its batches, one training step and one evaluation, and the count of Liger kernels that they called.

Loaded by the confined child; imports none of ours. Sizes are small because the interpreter costs about a millisecond a
program: 2 sequences of 8 tokens.
"""

from __future__ import annotations

import collections
import contextlib
import importlib
import inspect
import itertools
import re
import sys
from collections.abc import Iterator
from typing import Any

import torch

BATCH, LENGTH = 2, 8
RANDOM = ("dropout", "pdrop", "drop_path", "layerdrop", "jitter")
# of the largest gradient: fp32 sums over at most some thousand products, accumulated in another order
FP32_TOLERANCE = 2e-4
# of the largest gradient: one that is zero in exact arithmetic (a key's bias, before the softmax) is rounding alone, and is held
# to FP32_TOLERANCE of this share, two roundings of the largest
NEGLIGIBLE = 1e-3
# bf16 keeps 8 bits: two roundings apart, beyond HuggingFace's own distance from fp32
BF16_SLACK = 2.0**-7


class Task:
    """What the job says about the model, with the classes that it names."""

    def __init__(self, data: dict[str, Any]):
        self.data = data
        self.function_name: str = data["function"]
        self.package: str = data["package"]
        self.model_type: str = data["model_type"]
        self.modeling = importlib.import_module(data["modeling_module"])
        self.config_class = getattr(importlib.import_module("transformers"), data["config_class"])
        self.tiny: dict[str, Any] = data["tiny_config"]

    @property
    def model_class(self) -> Any:
        return getattr(self.modeling, self.data["causal_class"])

    @property
    def apply(self) -> Any:
        return getattr(
            importlib.import_module(f"{self.package}.transformers.monkey_patch"), self.function_name
        )

    @property
    def lce_forward(self) -> Any:
        return importlib.import_module(f"{self.package}.transformers.model.{self.model_type}").lce_forward

    def parameters(self) -> set[str]:
        """Names of the patch function's parameters, without its **kwargs."""
        return {
            name
            for name, parameter in inspect.signature(self.apply).parameters.items()
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD
        }

    def config(self) -> Any:
        """The tiny configuration, without anything random in the forward: two runs must agree."""
        config = self.config_class(**self.tiny)
        for part in {id(c): c for c in (config, config.get_text_config())}.values():
            for name, value in list(vars(part).items()):
                if isinstance(value, float) and any(word in name for word in RANDOM):
                    setattr(part, name, 0.0)
        return config

    def model(self, dtype: torch.dtype = torch.float32, state: dict[str, torch.Tensor] | None = None) -> Any:
        """A new model with `state`, in training mode. Raises when a parameter is missing or too many."""
        torch.manual_seed(0)
        model = self.model_class(self.config())
        if state is not None:
            model.load_state_dict(state, strict=True)
        return in_dtype(model, dtype).train()

    def batch(self, seed: int = 1) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(seed)
        vocabulary = self.config().get_text_config().vocab_size
        tokens = torch.randint(3, vocabulary, (BATCH, LENGTH), generator=generator)
        labels = tokens.clone()
        labels[0, :2] = -100
        return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": labels}


def in_dtype(model: Any, dtype: torch.dtype) -> Any:
    """The model as from_pretrained loads it in `dtype`: what its class keeps in float32 (routers) stays there."""
    kept: dict[str, torch.Tensor] = {}
    names = getattr(model, "_keep_in_fp32_modules_strict", None)
    if names and dtype in (torch.float16, torch.bfloat16):
        pattern = re.compile("|".join(rf"(?:^|\.){name}(?:\.|$)" for name in sorted(names)))
        for name, tensor in itertools.chain(model.named_parameters(), model.named_buffers()):
            if pattern.search(name) and tensor.is_floating_point():
                kept[name] = tensor.detach().clone()
    model = model.to(dtype)
    for name, tensor in itertools.chain(model.named_parameters(), model.named_buffers()):
        if name in kept:
            tensor.data = kept[name]
    return model


def perturbed_state(task: Task) -> dict[str, torch.Tensor]:
    """Weights away from their initial ones and zeros, so that an ignored or misread weight shows."""
    model = task.model()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return {name: value.clone() for name, value in model.state_dict().items()}


def train_step(model: Any, batch: dict[str, torch.Tensor], **extra: Any) -> dict[str, Any]:
    """Loss and every gradient, in float64 on the way out."""
    model.zero_grad()
    output = model(**batch, use_cache=False, **extra)
    output.loss.backward()
    gradients = {
        name: parameter.grad.detach().double().clone()
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }
    return {"loss": float(output.loss.detach()), "gradients": gradients, "logits": output.logits}


@torch.no_grad()
def evaluate(model: Any, batch: dict[str, torch.Tensor], **extra: Any) -> Any:
    model.eval()
    try:
        return model(**batch, use_cache=False, **extra)
    finally:
        model.train()


def distance(found: torch.Tensor, wanted: torch.Tensor, least: float = 1e-12) -> float:
    """Largest difference over the largest value, or over `least` when that is larger. NaN counts as infinitely far."""
    found, wanted = found.detach().double(), wanted.detach().double()
    if found.shape != wanted.shape or bool(torch.isnan(found).any()):
        return float("inf")
    if not found.numel():
        return 0.0
    return float((found - wanted).abs().max() / wanted.abs().max().clamp_min(max(least, 1e-12)))


@contextlib.contextmanager
def counted_kernels(package: str) -> Iterator[collections.Counter[str]]:
    """Counts the calls of every autograd Function that the package's ops define, by its name without Liger…Function."""
    counts: collections.Counter[str] = collections.Counter()
    kept = []
    for module_name, module in list(sys.modules.items()):
        if not module_name.startswith(f"{package}.ops"):
            continue
        for value in list(vars(module).values()):
            if (
                isinstance(value, type)
                and issubclass(value, torch.autograd.Function)
                and value.__module__.startswith(f"{package}.ops")
                and "apply" not in vars(value)
            ):
                kept.append(value)
                value.apply = staticmethod(_counting(value, counts))  # type: ignore[method-assign]
    try:
        yield counts
    finally:
        for value in kept:
            del value.apply


def _counting(function: Any, counts: collections.Counter[str]) -> Any:
    original = function.apply
    name = function.__name__.removeprefix("Liger").removesuffix("Function")

    def apply(*arguments: Any, **keywords: Any) -> Any:
        counts[name] += 1
        return original(*arguments, **keywords)

    return apply


def kernel_counts(task: Task, model: Any, batch: dict[str, torch.Tensor]) -> dict[str, int]:
    """Kernel calls of one training forward."""
    with counted_kernels(task.package) as counts:
        model(**batch, use_cache=False)
    return dict(sorted(counts.items()))
