"""What a built model consists of: its norm and feed-forward classes and where they hang, its sources, its causal forward."""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .tiny_model import TinyModel

GATED_PAIRS = ({"gate_proj", "up_proj", "down_proj"}, {"w1", "w2", "w3"})
PACKED = ({"gate_up_proj", "down_proj"}, {"input_linear", "output_linear"})
UNGATED = ({"up_proj", "down_proj"}, {"c_fc", "c_proj"}, {"fc1", "fc2"}, {"dense_h_to_4h", "dense_4h_to_h"},
           {"fc_in", "fc_out"}, {"linear_1", "linear_2"}, {"w1", "w2"})  # fmt: skip
FEED_FORWARD = re.compile(r"mlp|feedforward|feed_forward|ffn|expert", re.IGNORECASE)
ROTARY = re.compile(r"rotary|rope", re.IGNORECASE)
NOT_TEXT = ("vision", "visual", "audio", "image")


def is_norm(module: nn.Module) -> bool:
    """Whether a module normalises: by its class, as transformers names them."""
    return isinstance(module, nn.LayerNorm) or (
        "Norm" in type(module).__name__ and not list(module.children())
    )


def norms_of(tiny: TinyModel) -> dict[str, list[nn.Module]]:
    """Norm classes of the text decoder, by name, with their instances."""
    found: dict[str, list[nn.Module]] = {}
    for module in tiny.decoder.modules():
        if is_norm(module):
            found.setdefault(type(module).__name__, []).append(module)
    return found


def vision_norms_of(tiny: TinyModel) -> tuple[dict[str, list[nn.Module]], dict[str, list[str]]]:
    """Norms outside the text decoder, by class: their instances, and their places with "*" for an index.

    Those inside another model's classes (a SigLIP tower) are not among them: no name of this modeling module reaches them.
    """
    found: dict[str, list[nn.Module]] = {}
    places: dict[str, dict[str, None]] = {}
    decoders = tuple(f"{path}." for path in (tiny.path, *tiny.twins))
    for path, module in tiny.model.named_modules():
        own = (
            type(tiny.model.get_submodule(path.rpartition(".")[0])).__module__
            == tiny.resolved.modeling.__name__
        )
        if (
            is_norm(module)
            and own
            and tiny.path
            and not path.startswith(decoders)
            and not _weightless(module)
        ):
            found.setdefault(type(module).__name__, []).append(module)
            places.setdefault(type(module).__name__, {})[re.sub(r"\.\d+(?=\.|$)", ".*", path)] = None
    return found, {name: list(paths) for name, paths in places.items()}


def feed_forwards_of(tiny: TinyModel) -> list[dict[str, Any]]:
    """One entry for each feed-forward class and place of the decoder's layers: class, attribute, role, names, instance."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for layer in tiny.layers:
        for path, module in layer.named_modules():
            entry = _feed_forward(path, module)
            if entry is not None:
                found.setdefault((entry["class"], path), entry)
    return list(found.values())


def _feed_forward(path: str, module: nn.Module) -> dict[str, Any] | None:
    if not path or isinstance(module, nn.ModuleList | nn.Linear | nn.Sequential) or is_norm(module):
        return None
    if not FEED_FORWARD.search(type(module).__name__) and not FEED_FORWARD.search(path.rpartition(".")[2]):
        return None
    parameters = dict(module.named_parameters(recurse=False))
    linears = {
        name
        for name, child in module.named_children()
        if isinstance(getattr(child, "weight", None), nn.Parameter)
    }
    stacked = {name for name, parameter in parameters.items() if parameter.dim() == 3}
    names = linears | stacked
    shape = next(
        (
            (kind, sorted(wanted))
            for kind, group in (("gated", GATED_PAIRS), ("packed", PACKED), ("ungated", UNGATED))
            for wanted in group
            if wanted <= names
        ),
        None,
    )
    if shape is None:
        return None
    role = "experts" if stacked else "shared_expert" if "shared" in path else "dense"
    if not stacked and re.search(r"experts\.\d+$", path):
        role = "experts"
    return {
        "class": type(module).__name__,
        "attribute": re.sub(r"\.\d+(?=\.|$)", "", path) if role == "experts" else path,
        "role": role,
        "projections": shape[1],
        "form": shape[0],
        "bias": any(getattr(child, "bias", None) is not None for child in module.children()),
        "stacked": bool(stacked),
        "module": module,
    }


def norm_uses(tiny: TinyModel) -> list[dict[str, Any]]:
    """Where norms hang: {"owner", "attribute", "norm", "optional", "weightless"}; attributes of layers are relative to the layer."""
    uses: list[dict[str, Any]] = []
    for path, module in tiny.decoder.named_modules():
        # what hangs in a list has no attribute of its own to be reached by
        if is_norm(module) and not any(part.isdigit() for part in path.split(".")):
            name = type(module).__name__
            uses.append(
                {"owner": "base", "attribute": path, "norm": name, "optional": False, "weightless": _weightless(module)}
            )  # fmt: skip
    counted: dict[tuple[str, str, bool], int] = {}
    for layer in tiny.layers:
        for path, module in layer.named_modules():
            if is_norm(module):
                key = (path, type(module).__name__, _weightless(module))
                counted[key] = counted.get(key, 0) + 1
    for (path, norm, weightless), count in counted.items():
        owner = (
            "layer" if "." not in path else "attention" if "attn" in path or "attention" in path else "other"
        )
        optional = count < len(tiny.layers)
        uses.append({"owner": owner, "attribute": path, "norm": norm, "optional": optional, "weightless": weightless})  # fmt: skip
    return uses


def _weightless(norm: nn.Module) -> bool:
    return getattr(norm, "weight", None) is None


def layer_kinds(tiny: TinyModel) -> list[dict[str, Any]]:
    """Each layer of the small model: its class, and the class that each of its attributes holds."""
    return [
        {
            "class": type(layer).__name__,
            "children": {name: type(child).__name__ for name, child in layer.named_children()},
            "experts": any(
                entry["role"] == "experts"
                for path, module in layer.named_modules()
                if (entry := _feed_forward(path, module)) is not None
            ),
            "dense": any(
                entry["role"] == "dense"
                for path, module in layer.named_modules()
                if (entry := _feed_forward(path, module)) is not None
            ),
        }
        for layer in tiny.layers
    ]


def towers(tiny: TinyModel) -> list[str]:
    """Vision or audio parts that are another model's: "SiglipVisionModel of siglip"."""
    found: dict[str, None] = {}
    for path, module in tiny.model.named_modules():
        folder = type(module).__module__.removeprefix("transformers.models.").split(".", maxsplit=1)[0]
        origin = type(module).__module__
        foreign = origin.startswith("transformers.models.") and origin != tiny.resolved.modeling.__name__
        if (
            foreign
            and any(word in path.lower() for word in NOT_TEXT)
            and not any(f" of {folder}" in one for one in found)
        ):
            found.setdefault(f"{type(module).__name__} of {folder}", None)
    return list(found)


def vision_classes(tiny: TinyModel) -> list[str]:
    """Classes of the model's vision (or audio) part; empty for a text model."""
    found: dict[str, None] = {}
    for path, module in tiny.model.named_modules():
        if (
            path
            and any(word in path.lower() for word in NOT_TEXT)
            and type(module).__module__ == tiny.resolved.modeling.__name__
        ):
            found.setdefault(type(module).__name__, None)
    return list(found)


def sources(tiny: TinyModel, more: Iterable[Any]) -> dict[str, dict[str, Any]]:
    """Source of the classes and functions that decisions are read from: name -> {"file", "line", "text"}."""
    wanted: dict[str, Any] = {}
    modules = [*tiny.layers, *tiny.decoder.modules()]
    for module in modules:
        cls = type(module)
        if is_norm(module) or module in tiny.layers or FEED_FORWARD.search(cls.__name__):
            wanted[cls.__name__] = cls
    for layer in tiny.layers:  # attention, and blocks that hold experts
        for child in layer.children():
            if type(child).__module__ == tiny.resolved.modeling.__name__:
                wanted[type(child).__name__] = type(child)
    for item in (type(tiny.decoder), tiny.resolved.causal_class, *more):
        wanted[item.__name__] = item
    helper = getattr(tiny.resolved.modeling, "rotate_half", None)
    if helper is not None:
        wanted["rotate_half"] = helper
    return {name: found for name, item in wanted.items() if (found := source_of(item)) is not None}


def source_of(item: Any) -> dict[str, Any] | None:
    """File (inside its package), first line and text of a class or function, at the margin also where it is defined in a branch.

    None when there is none.
    """
    try:
        lines, line = inspect.getsourcelines(inspect.unwrap(item) if not isinstance(item, type) else item)
        file = inspect.getsourcefile(inspect.unwrap(item) if not isinstance(item, type) else item) or ""
    except (OSError, TypeError):
        return None
    return {
        "file": _inside(file),
        "line": line,
        "text": textwrap.dedent("".join(lines))[:60_000],
        "module": item.__module__,
    }


def _inside(file: str) -> str:
    parts = Path(file).parts
    for package in ("transformers", "torch"):
        if package in parts:
            position = len(parts) - 1 - parts[::-1].index(package)
            return "/".join(parts[position:])
    return Path(file).name


def causal_forward(tiny: TinyModel) -> dict[str, Any]:
    """The causal class's own forward: signature, source, the imports its names need, and the line it starts at."""
    causal = tiny.resolved.causal_class
    function = inspect.unwrap(causal.forward)
    lines, line = inspect.getsourcelines(function)
    text = textwrap.dedent("".join(lines))
    tree = ast.parse(text).body[0]
    assert isinstance(tree, ast.FunctionDef | ast.AsyncFunctionDef)  # noqa: S101 - the source of a function
    owner = next((cls for cls in causal.__mro__ if "forward" in cls.__dict__), causal)
    return {
        "signature": _parameters(tree, text),
        "source": text,
        "imports": imports_for(tree, sys.modules[owner.__module__]),
        "file": _inside(inspect.getsourcefile(function) or ""),
        "line": line,
        "owner": owner.__name__,
        "module": owner.__module__,
    }


def _parameters(tree: ast.FunctionDef | ast.AsyncFunctionDef, text: str) -> list[str]:
    arguments = tree.args
    written: list[str] = []

    def one(argument: ast.arg, default: ast.expr | None, star: str = "") -> str:
        annotation = f": {ast.get_source_segment(text, argument.annotation)}" if argument.annotation else ""
        value = ast.get_source_segment(text, default) if default is not None else None
        joined = " = " if annotation else "="
        return f"{star}{argument.arg}{annotation}" + (f"{joined}{value}" if value is not None else "")

    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults)) + list(
        arguments.defaults
    )
    written += [one(argument, default) for argument, default in zip(positional, defaults, strict=True)]
    if arguments.vararg:
        written.append(one(arguments.vararg, None, "*"))
    elif arguments.kwonlyargs:
        written.append("*")
    written += [one(a, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    if arguments.kwarg:
        written.append(one(arguments.kwarg, None, "**"))
    return written


def imports_for(tree: ast.AST, module: Any) -> list[str]:
    """Absolute import lines for the names that `tree` takes from `module`'s namespace."""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for node in ast.walk(tree):  # annotations written as text
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and re.fullmatch(r"[\w.\[\], |]+", node.value)
        ):
            names |= set(re.findall(r"\b[A-Z]\w+", node.value))
    imported = _imported(module)
    lines: set[str] = set()
    for name in names:
        if name in imported:
            lines.add(imported[name])
        elif name in vars(module) and not hasattr(builtins, name):
            lines.add(f"from {module.__name__} import {name}")
    return sorted(lines)


def _imported(module: Any) -> dict[str, str]:
    """Names that the module imports, as absolute import lines.

    Not what it imports under a condition and may have made itself instead: that comes from the module, whatever it is there.
    """
    try:
        tree = ast.parse(inspect.getsource(module))
    except (OSError, SyntaxError):
        return {}
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound = alias.asname or alias.name.split(".")[0]
                found[bound] = f"import {alias.name}" + (f" as {alias.asname}" if alias.asname else "")
        elif isinstance(node, ast.ImportFrom):
            source = _absolute(node, module.__name__)
            for alias in node.names:
                name = alias.asname or alias.name
                if node in tree.body or name not in vars(module):
                    renamed = f" as {alias.asname}" if alias.asname else ""
                    found[name] = f"from {source} import {alias.name}{renamed}"
    return found


def _absolute(node: ast.ImportFrom, module: str) -> str:
    if not node.level:
        return node.module or ""
    base = module.split(".")[: -node.level]
    return ".".join([*base, *([node.module] if node.module else [])])


def rotary_functions(tiny: TinyModel) -> list[str]:
    """Functions of the modeling module that turn queries and keys, by name."""
    modeling = tiny.resolved.modeling
    return [
        name
        for name, value in vars(modeling).items()
        if inspect.isfunction(value)
        and ROTARY.search(name)
        and "apply" in name
        and not any(word in name for word in NOT_TEXT)
    ]


def as_words(value: torch.Tensor) -> list[int]:
    """The shape of a tensor, for JSON."""
    return list(value.shape)
