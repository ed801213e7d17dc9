"""Finds the model that a request names in the installed transformers: a model type, a class name, or a config.json."""

from __future__ import annotations

import importlib
import inspect
import re
from dataclasses import dataclass, field
from typing import Any

MODELS = "transformers.models."


class Refused(Exception):  # noqa: N818 - it is an answer, not a fault
    """The model can't be profiled. `code` says why for a program, `detail` in words; `known` are names to choose from."""

    def __init__(self, code: str, detail: str = "", known: list[str] | None = None):
        super().__init__(detail or code)
        self.code, self.detail, self.known = code, detail, known or []


@dataclass(frozen=True)
class Resolved:
    """A causal language model of the installed transformers, before it is built.

    config: the default configuration, or the one given, of `causal_class` · given: what a config.json says.
    """

    model_type: str
    config: Any
    causal_class: type
    modeling: Any
    given: dict[str, Any] = field(default_factory=dict)


def resolve(model: str | None, config: dict[str, Any] | None) -> Resolved:
    """The model that `model` (a type or class name) or `config` (a config.json) names. Raises Refused."""
    if config is not None:
        model_type, wanted = _from_config(config)
    else:
        model_type, wanted = _from_name((model or "").strip())
    causal = _causal_class(model_type, wanted)
    modeling = _modeling(causal, model_type)
    given = {k: v for k, v in (config or {}).items() if k not in ("model_type", "auto_map", "architectures")}
    built = _configuration(model_type, causal, given)
    _refuse_encoders(model_type, built, modeling)
    if given and type(built).__name__ != _mappings()[0][model_type].__name__:
        given = given.get("text_config") or {}
    return Resolved(model_type, built, causal, modeling, given)


def _mappings() -> tuple[Any, Any, dict[str, str], dict[str, str], dict[str, str]]:
    """(config classes, folder names, causal, vision-language, masked): the last three map model types to class names."""
    from transformers.models.auto import configuration_auto, modeling_auto

    def first(mapping: Any) -> dict[str, str]:
        return {key: value if isinstance(value, str) else value[0] for key, value in mapping.items()}

    vision = first(modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES)
    causal = first(modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    masked = first(modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES)
    return (
        configuration_auto.CONFIG_MAPPING,
        configuration_auto.model_type_to_module_name,
        causal,
        vision,
        masked,
    )


def known_models() -> list[str]:
    """Model types that have a causal or a vision-language class here."""
    _, _, causal, vision, _ = _mappings()
    return sorted({*causal, *vision})


def _from_config(config: dict[str, Any]) -> tuple[str, str | None]:
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or not model_type:
        raise Refused("no_model_type")
    architectures = config.get("architectures")
    wanted = architectures[0] if isinstance(architectures, list) and architectures else None
    if model_type not in _mappings()[0]:
        if config.get("auto_map"):
            raise Refused("remote_code", model_type)
        raise Refused("unknown_model", model_type, known_models())
    return model_type, wanted if isinstance(wanted, str) else None


def _from_name(name: str) -> tuple[str, str | None]:
    configs, _, causal, vision, _ = _mappings()
    lowered = name.lower()
    for candidate in (name, lowered, lowered.replace("-", "_"), lowered.replace("_", "-")):
        if candidate in configs:
            return candidate, None
    classes = {cls.lower(): (model_type, cls) for model_type, cls in [*vision.items(), *causal.items()]}
    if lowered in classes:
        return classes[lowered]
    import transformers

    found = getattr(transformers, name, None) if re.fullmatch(r"[A-Z]\w*", name) else None
    config_class = getattr(found, "config_class", None)
    if inspect.isclass(found) and config_class is not None:
        return config_class.model_type, name
    raise Refused("unknown_model", name, [*known_models(), *sorted(cls for _, cls in classes.values())])


def _causal_class(model_type: str, wanted: str | None) -> type:
    import transformers

    _, _, causal, vision, masked = _mappings()
    name = (
        wanted
        if wanted in {*causal.values(), *vision.values()}
        else causal.get(model_type) or vision.get(model_type)
    )
    if name is None:
        raise Refused("encoder_only" if model_type in masked else "no_causal_class", model_type)
    try:
        found = getattr(transformers, name)
    except Exception as error:
        raise Refused("import_failed", f"{name}: {_words(error)}") from error
    if getattr(found, "is_dummy", False) or "dummy" in found.__module__:
        raise Refused("import_failed", f"{name} needs packages that are not installed")
    return found


def _refuse_encoders(model_type: str, config: Any, modeling: Any) -> None:
    """Raises Refused for an encoder-decoder, and for an encoder that only warns when is_decoder isn't set."""
    if getattr(config, "is_encoder_decoder", False):
        raise Refused("encoder_decoder", model_type)
    try:
        source = inspect.getsource(modeling)
    except OSError:
        return
    if getattr(config, "is_decoder", None) is False and re.search(
        r"is_decoder=True|not config\.is_decoder", source
    ):
        raise Refused("encoder_only", model_type)


def _modeling(causal: type, model_type: str) -> Any:
    modeling = importlib.import_module(causal.__module__)
    folder = causal.__module__.removeprefix(MODELS).split(".", maxsplit=1)[0]
    own = _mappings()[1](model_type)
    if causal.__module__.startswith(MODELS) and folder != own:
        raise Refused("another_models_class", f"{model_type} {causal.__name__} {folder}")
    return modeling


def _configuration(model_type: str, causal: type, given: dict[str, Any]) -> Any:
    """A config of the class that `causal` is built from, which for some is the text part of the model type's config."""
    config_class = _mappings()[0][model_type]
    wanted = getattr(causal, "config_class", None)
    try:
        config = config_class(**given)
        if wanted is not None and not isinstance(config, wanted):
            text = config.get_text_config()
            config = text if isinstance(text, wanted) else wanted()
    except Exception as error:
        raise Refused("config_failed", f"{config_class.__name__}: {_words(error)}") from error
    return config


def _words(error: BaseException) -> str:
    words = " ".join(str(error).split())  # a validation error has its cause in the second line
    return f"{type(error).__name__}: {words[:250]}"
