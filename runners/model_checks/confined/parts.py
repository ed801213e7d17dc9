"""The parts of a patch: each class, function or table entry of the modeling module that it replaces, and each one on its own.

Loaded by the confined child; imports none of ours.
"""

from __future__ import annotations

import types
from typing import Any

from tiny_runs import Task

FUSED = "fused_linear_cross_entropy"
LOSSES = ("cross_entropy", FUSED)
State = dict[str, Any]


def parts_of(task: Task, path: str) -> list[str]:
    """What the patch replaces under its default flags, the fused loss last.

    On the instance path: the classes of the modules that it patches, and the functions, which have no instance form. To be
    called in a process of its own: the patch stays applied.
    """
    model = task.model() if path == "instance" else None
    before, modules = _snapshot(task), _modules(model)
    _apply(task, model)
    found = {name for name, value in _snapshot(task).items() if before.get(name) is not value}
    found |= {part for part, _, _ in _patched_modules(modules, model)}
    return [*sorted(found), FUSED]


def keep_only(task: Task, part: str, model: Any = None) -> None:
    """Apply the patch and take back everything but `part`."""
    if part == FUSED:
        others = {name: False for name in task.data["flags"] if name != FUSED}
        task.apply(**others, **({} if model is None else {"model": model}))
        return
    before, modules = _snapshot(task), _modules(model)
    _apply(task, model)
    for name, value in _snapshot(task).items():
        if name != part and before.get(name) is not value:
            _restore(task, name, before[name])
    for of, path, original in _patched_modules(modules, model):
        if of != part:
            _put_back(model, path, original)


def _apply(task: Task, model: Any) -> None:
    arguments = {name: False for name in LOSSES if name in task.parameters()}
    task.apply(**arguments, **({} if model is None else {"model": model}))


def _snapshot(task: Task) -> State:
    """Everything of the modeling module that a patch may replace: its names, its classes' forwards, the entries of ACT2FN."""
    found: State = {}
    for name, value in vars(task.modeling).items():
        found[name] = value
        if (
            isinstance(value, type)
            and value.__module__ == task.modeling.__name__
            and "forward" in vars(value)
        ):
            found[f"{name}.forward"] = vars(value)["forward"]
    table = getattr(task.modeling, "ACT2FN", {})
    return found | {f"ACT2FN[{key}]": dict.get(table, key) for key in table}


def _restore(task: Task, name: str, value: Any) -> None:
    if name.startswith("ACT2FN["):
        task.modeling.ACT2FN[name.removeprefix("ACT2FN[").removesuffix("]")] = value
    elif name.endswith(".forward"):
        getattr(task.modeling, name.removesuffix(".forward")).forward = value
    else:
        setattr(task.modeling, name, value)


def _modules(model: Any) -> dict[str, Any]:
    return {} if model is None else dict(model.named_modules())


def _patched_modules(before: dict[str, Any], model: Any) -> list[tuple[str, str, Any]]:
    """(class, place, original) of every module that was given a forward of its own, or was replaced: then its owner's class."""
    found = []
    for path, original in before.items():
        if not path:
            continue
        if model.get_submodule(path) is not original:
            found.append((type(before[path.rpartition(".")[0]]).__name__, path, original))
        elif "forward" in vars(original):
            found.append((type(original).__name__, path, original))
    return found


def _put_back(model: Any, path: str, original: Any) -> None:
    owner, _, name = path.rpartition(".")
    setattr(model.get_submodule(owner), name, original)
    for method in [n for n, value in vars(original).items() if isinstance(value, types.MethodType)]:
        delattr(original, method)
