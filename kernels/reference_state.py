"""What a reference could remember from one call to the next: globals, defaults, closures, attributes of a module. Imports torch.

A function that remembers is no function of its arguments: a kernel would repeat what the first call happened to compute.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import CellType, FunctionType
from typing import Any

import torch
from torch import nn

from kernels.derivation import Unsupported

PLAIN = (bool, int, float, complex, str, bytes, type(None), list, tuple, dict, set, torch.Tensor)
Remembered = dict[str, str]


def remembered(reference: Any) -> Remembered:
    """Name -> its value as text, of everything outside its arguments that a function or a module's forward names."""
    found: Remembered = {}
    function = reference if inspect.isfunction(reference) else getattr(reference, "forward", None)
    _function(inspect.unwrap(function) if function else None, found, set())
    return found


def attributes(module: nn.Module) -> Remembered:
    """A module's own plain attributes, and those of the modules inside it."""
    found: Remembered = {}
    for prefix, inner in module.named_modules():
        for name, value in vars(inner).items():
            if isinstance(value, PLAIN) and not name.startswith("_"):
                found[f"self.{prefix + '.' if prefix else ''}{name}"] = _text(value)
    return found


def require_unchanged(before: Remembered, after: Remembered) -> None:
    """Raises Unsupported when the reference has changed something it could remember."""
    changed = [name for name, text in after.items() if before.get(name) != text]
    if changed:
        raise Unsupported(
            f"the reference changes {changed[0]}, which outlives the call: the next call may give something else",
            needed="a function of its arguments alone",
        )


def _function(function: Any, found: Remembered, seen: set[int]) -> None:
    if not isinstance(function, FunctionType) or id(function) in seen:
        return
    seen.add(id(function))
    for name, value in vars(function).items():
        _value(f"{function.__name__}.{name}", value, found, seen)
    for position, value in enumerate(function.__defaults__ or ()):
        _value(f"default {position + 1} of {function.__name__}", value, found, seen)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        _value(name, _content(cell), found, seen)
    for name in _names(function.__code__):
        if name in function.__globals__:
            _value(name, function.__globals__[name], found, seen)


def _names(code: Any) -> list[str]:
    """Names that a function's code reads, those of comprehensions and nested functions included."""
    inner = [
        name for constant in code.co_consts if hasattr(constant, "co_names") for name in _names(constant)
    ]
    return [*code.co_names, *inner]


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


def _value(name: str, value: Any, found: Remembered, seen: set[int]) -> None:
    if isinstance(value, PLAIN):
        found[name] = _text(value)
    elif isinstance(value, FunctionType):
        _function(value, found, seen)
    elif isinstance(value, type) and not value.__module__.startswith("torch"):
        members: Mapping[str, Any] = vars(value)
        for member, inner in members.items():
            if isinstance(inner, PLAIN) and not member.startswith("__"):
                found[f"{name}.{member}"] = _text(inner)


def _text(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"tensor {id(value)}, changed {value._version} times"
    return repr(value)
