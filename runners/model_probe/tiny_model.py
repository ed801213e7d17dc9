"""Builds a shrunk model, records how its classes were constructed, and runs it once."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from .resolve import Refused, Resolved, _words
from .shrink import TINY, made_small, shrunk

Calls = dict[str, list[tuple[tuple[Any, ...], dict[str, Any]]]]
BATCH, SEQUENCE = 2, 8
MOST_PARAMETERS = 40_000_000


@dataclass
class TinyModel:
    """A built model in float32, with the inputs that it was run with.

    calls: class name -> (positional, keyword) arguments of its constructions, one of each form · dropouts: class name -> attribute
    -> rate, before all were switched off · path: where the text
    decoder hangs in the model ("model", "model.language_model") · layers_attribute: name of its list of layers · twins: paths of
    further decoders of the same class, with layers of the same classes (HRM has two).
    """

    resolved: Resolved
    arguments: dict[str, Any]
    model: nn.Module
    calls: Calls
    dropouts: dict[str, dict[str, float]] = field(default_factory=dict)
    decoder: nn.Module = field(default_factory=nn.Module)
    path: str = ""
    layers_attribute: str = ""
    twins: list[str] = field(default_factory=list)

    @property
    def layers(self) -> list[nn.Module]:
        return list(getattr(self.decoder, self.layers_attribute))

    @property
    def text_config(self) -> Any:
        config: Any = self.model.config
        try:
            return config.get_text_config(decoder=True)
        except Exception:  # noqa: BLE001 - ambiguous in some composite configs
            return config

    def inputs(self) -> dict[str, torch.Tensor]:
        """Token ids and labels of shape (BATCH, SEQUENCE), apart from the special tokens."""
        generator = torch.Generator().manual_seed(0)
        vocabulary = int(getattr(self.text_config, "vocab_size", TINY.vocabulary))
        ids = torch.randint(
            4, max(5, min(vocabulary, TINY.vocabulary) - 16), (BATCH, SEQUENCE), generator=generator
        )
        return {"input_ids": ids, "labels": ids.clone()}


def build(resolved: Resolved) -> TinyModel:
    """The shrunk model, run forward and backward once. Raises Refused when it can't be built so small."""
    arguments = shrunk(resolved.config)
    try:
        config = type(resolved.config)(**made_small(resolved.given, arguments))
        config._attn_implementation = "eager"
        with recorded_calls(resolved.modeling) as calls:
            torch.manual_seed(0)
            model = resolved.causal_class(config)
    except Exception as error:
        raise Refused("not_tiny", f"it can't be built{_as_it_comes(resolved)}: {_words(error)}") from error
    parameters = sum(parameter.numel() for parameter in model.parameters())
    if parameters > MOST_PARAMETERS:
        raise Refused("not_tiny", f"{parameters} parameters remain")
    tiny = TinyModel(resolved, arguments, model.float().train(), calls)
    tiny.dropouts = no_dropout(tiny.model)
    spread(tiny.model)
    _find_decoder(tiny)
    try:
        loss = tiny.model(**tiny.inputs(), use_cache=False).loss
        loss.backward()
    except Exception as error:
        raise Refused("not_tiny", f"it doesn't run: {_words(error)}") from error
    tiny.model.zero_grad(set_to_none=True)
    return tiny


def _as_it_comes(resolved: Resolved) -> str:
    """What to add to a refusal when the fault isn't the smallness: a model that its config's own values don't build either."""
    try:
        with torch.device("meta"):
            resolved.causal_class(type(resolved.config)(**resolved.given))
    except Exception:  # noqa: BLE001 - the model's own code: that it raises is the finding
        return f" (nor is it in full size, with {'this config.json' if resolved.given else 'the defaults of its config'})"
    return ""


def bf16_error(tiny: TinyModel) -> str | None:
    """Why the model doesn't run when it is cast as a whole, as convergence tests do: a router that computes in float32, say."""
    cast = copy.deepcopy(tiny.model).to(torch.bfloat16)
    try:
        with torch.no_grad():
            cast(input_ids=tiny.inputs()["input_ids"], use_cache=False)
    except Exception as error:  # noqa: BLE001 - the model's own code: what it raises is the finding
        return _words(error)
    return None


@contextlib.contextmanager
def recorded_calls(modeling: Any) -> Iterator[Calls]:
    """Records the arguments with which the modeling module's classes, and torch's norms, are constructed, by class name.

    One entry for each form of call: what takes its place has to take them all.
    """
    calls: Calls = {}
    classes = {
        value for value in vars(modeling).values() if inspect.isclass(value) and issubclass(value, nn.Module)
    }
    originals = {cls: cls.__dict__.get("__init__") for cls in [*classes, nn.LayerNorm, nn.RMSNorm]}
    for cls in originals:
        cls.__init__ = _recorder(cls, cls.__init__, calls)  # type: ignore[misc]
    try:
        yield calls
    finally:
        for cls, original in originals.items():
            if original is None:
                del cls.__init__
            else:
                cls.__init__ = original  # type: ignore[misc]


def _recorder(cls: type, initial: Any, calls: Calls) -> Any:
    @functools.wraps(initial)
    def init(self: nn.Module, *args: Any, **kwargs: Any) -> None:
        if type(self) is cls:
            seen = calls.setdefault(cls.__name__, [])
            if all((len(a), sorted(k)) != (len(args), sorted(kwargs)) for a, k in seen):
                seen.append((args, kwargs))
        initial(self, *args, **kwargs)

    return init


def no_dropout(model: nn.Module) -> dict[str, dict[str, float]]:
    """Dropout and jitter off, so that two runs compute the same in training mode. Returns what was on: class -> attribute -> rate."""
    found: dict[str, dict[str, float]] = {}
    for module in model.modules():
        names = [n for n in vars(module) if ("dropout" in n or n.endswith("pdrop") or "jitter" in n)]
        for name in names:
            rate = getattr(module, name)
            if isinstance(rate, float) and rate > 0:
                found.setdefault(type(module).__name__, {})[name] = rate
                setattr(module, name, 0.0)
        for name, child in module.named_children():
            if isinstance(child, nn.Dropout) and child.p > 0:
                found.setdefault(type(module).__name__, {})[name] = child.p
                child.p = 0.0
    return found


def spread(model: nn.Module) -> None:
    """Values at which functions differ: weights of matrices larger than at initialisation, vectors apart from 0 and 1."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not parameter.is_floating_point():
                continue
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float32)
            if parameter.dim() >= 2:
                parameter.copy_(noise * (1.0 if "embed" in name else parameter.shape[-1] ** -0.5))
            elif parameter.dim() == 1 and not name.endswith(("A_log", "dt_bias")):
                parameter.add_(0.1 * noise)


def _find_decoder(tiny: TinyModel) -> None:
    """The text decoder: the module with the list of layers that the causal class runs."""
    count = next((tiny.text_config.__dict__[n] for n in ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
                  if n in tiny.text_config.__dict__), None)  # fmt: skip
    found: list[tuple[int, str, str]] = []
    for path, module in tiny.model.named_modules():
        if (
            isinstance(module, nn.ModuleList)
            and len(module)
            and not any(word in path.lower() for word in ("vision", "visual", "audio", "image", "expert"))
        ):
            owner, _, attribute = path.rpartition(".")
            right = len(module) == count
            found.append((0 if right else 1, owner, attribute))
    if not found:
        raise Refused("no_layers", tiny.resolved.model_type)
    _, owner, attribute = min(found, key=lambda item: (item[0], item[1].count(".")))
    tiny.decoder, tiny.path, tiny.layers_attribute = tiny.model.get_submodule(owner), owner, attribute
    kinds = {type(layer) for layer in tiny.layers}
    for _, other, name in found:
        twin = tiny.model.get_submodule(other)
        alike = other != owner and name == attribute and type(twin) is type(tiny.decoder)
        if alike and {type(layer) for layer in getattr(twin, name)} == kinds:
            tiny.twins.append(other)
