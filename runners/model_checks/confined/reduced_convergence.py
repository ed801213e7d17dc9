"""The checkout's own convergence tests, in a form that a CPU can run: same file, same function, small sizes.

The data set (an Arrow file, absent from most checkouts) is replaced by synthetic tokens, the mini model by the tiny one, and
steps and batch are cut. What stays is the checkout's code: its patching and reverting, its training loop, its comparison.
"""

from __future__ import annotations

import importlib.machinery
import sys
import types
from typing import Any

import torch
from tiny_runs import Task

STEPS, BATCH, LENGTH = 3, 4, 16


def run(task: Task, path: str) -> tuple[bool | None, str, str]:
    """Run `path`'s test_mini_model for this model. Raises whatever the test raises."""
    _install_datasets(task)
    module = importlib.import_module(path.removesuffix(".py").replace("/", "."))
    setups = module.MINI_MODEL_SETUPS
    own = [
        n
        for n, s in setups.items()
        if getattr(s.liger_kernel_patch_func, "__name__", "") == task.function_name
    ]
    if not own:
        return False, f"no mini model of the file is patched by {task.function_name}", ""
    name = f"mini_{task.model_type}" if f"mini_{task.model_type}" in own else own[0]
    setup = setups[name]
    setup.mini_model_config = task.config()
    values = next((v for v in _cases(module.test_mini_model) if v and v[0] == name), None)
    if values is None:
        return False, f"{name} is not among the test's parameters", ""
    loader = module.DataLoader
    small = lambda data, batch_size, **more: loader(data, batch_size=min(batch_size, BATCH), **more)  # noqa: E731
    module.DataLoader = small  # type: ignore[attr-defined]
    arguments = dict(zip(_names(module.test_mini_model), values, strict=True))
    arguments["num_steps"] = STEPS
    module.test_mini_model(**arguments)
    return (
        True,
        f"{STEPS} steps of {BATCH}x{LENGTH} tokens on the tiny model, with the file's own tolerances",
        "",
    )


def _cases(test: Any) -> list[tuple[Any, ...]]:
    mark = next(mark for mark in test.pytestmark if mark.name == "parametrize")
    return [tuple(getattr(case, "values", case)) for case in mark.args[1]]


def _names(test: Any) -> list[str]:
    mark = next(mark for mark in test.pytestmark if mark.name == "parametrize")
    names = mark.args[0]
    return [n.strip() for n in names.split(",")] if isinstance(names, str) else list(names)


def _install_datasets(task: Task) -> None:
    """A module `datasets` whose load_from_disk gives synthetic tokens, whether or not the real one is there."""
    vocabulary = task.config().get_text_config().vocab_size
    generator = torch.Generator().manual_seed(3)
    rows = []
    for _ in range(BATCH * (STEPS + 2)):
        tokens = torch.randint(3, vocabulary, (LENGTH,), generator=generator).tolist()
        rows.append({"input_ids": tokens, "attention_mask": [1] * LENGTH})
    module = types.ModuleType("datasets")
    module.load_from_disk = lambda _: rows  # type: ignore[attr-defined]
    module.__spec__ = importlib.machinery.ModuleSpec("datasets", None)
    sys.modules["datasets"] = module
