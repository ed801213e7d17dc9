"""The scenarios of a model patch: each says which real bug it stands for, and returns (ok, summary, details).

ok: True, False, None when it does not apply here. "soft" findings are for a person. Each runs in a process of its own.
Numbers "L#n" are issues of linkedin/Liger-Kernel.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from types import SimpleNamespace
from typing import Any

import torch
from tiny_runs import (
    FP32_TOLERANCE,
    Task,
    counted_kernels,
    distance,
    kernel_counts,
    perturbed_state,
)

Finding = tuple[bool | None, str, str]
NOT_TEXT = ("vision", "visual", "audio", "image")


def imports(names: list[str]) -> Finding:
    """L#1169, #1263: an import of something that this transformers lacks broke the whole package."""
    missing = []
    for name in names:
        module_name, _, symbol = name.partition(":")
        if not hasattr(importlib.import_module(module_name), symbol):
            missing.append(name)
    return not missing, f"missing: {', '.join(missing)}" if missing else f"all {len(names)} import", ""


def dead_names(task: Task) -> Finding:
    """Ministral, mistral and nemotron assigned CrossEntropyLoss to modules that have none: nothing was patched."""
    source = inspect.getsource(task.apply)
    short = task.modeling.__name__.rsplit(".", 1)[-1]
    dead = []
    for node in ast.walk(ast.parse(source)):
        targets = node.targets if isinstance(node, ast.Assign) else []
        for target in targets:
            text = ast.unparse(target)
            if isinstance(target, ast.Attribute) and text.startswith(f"{short}."):
                owner: Any = task.modeling
                for part in text.split(".")[1:]:
                    if not hasattr(owner, part):
                        dead.append(text)
                        break
                    owner = getattr(owner, part)
            elif isinstance(target, ast.Subscript) and text.startswith(f"{short}."):
                table = getattr(task.modeling, text.split(".")[1].split("[")[0], None)
                if table is None or ast.literal_eval(target.slice) not in table:
                    dead.append(text)
    return (
        not dead,
        f"assigned, but not there: {', '.join(dead)}" if dead else "every name it assigns exists",
        "",
    )


def signature(task: Task) -> Finding:
    """L#1117, #1140, #1155: HuggingFace added or dropped a parameter, and lce_forward was not its superset any more."""
    wanted = inspect.signature(task.model_class.forward).parameters
    found = inspect.signature(task.lce_forward).parameters
    missing = [name for name in wanted if name not in found]
    renamed = [name for name in ("skip_logits", "kwargs") if name not in found]
    defaults = [n for n in wanted if n in found and repr(wanted[n].default) != repr(found[n].default)]
    problems = [f"lacks {name}" for name in [*missing, *renamed]] + [
        f"another default for {n}" for n in defaults
    ]
    return not problems, "; ".join(problems) or f"a superset of {len(wanted)} parameters", ""


def counts(task: Task, path: str, flags: dict[str, bool]) -> dict[str, int]:
    """Kernel calls of one training forward after patching with `flags`."""
    if path == "class":
        task.apply(**flags)
        return kernel_counts(task, task.model(), task.batch())
    model = task.model()
    task.apply(model=model, **flags)
    return kernel_counts(task, model, task.batch())


def others_untouched(task: Task) -> Finding:
    """L#905, #907, #776: an instance patch reached other models, or missed its own."""
    patched, second, batch = task.model(), task.model(), task.batch()
    originals = {name: type(module) for name, module in second.named_modules()}
    task.apply(model=patched)
    fresh = task.model()
    changed = [n for n, module in fresh.named_modules() if type(module) is not originals.get(n)]
    bound = [n for n, module in second.named_modules() if "forward" in vars(module)]
    shared = {"Rope", "CrossEntropy"}
    found = {}
    for name, model in (("a second instance", second), ("a later model", fresh)):
        with counted_kernels(task.package) as called:
            model(**batch, use_cache=False)
        if extra := sorted(set(called) - shared):
            found[name] = extra
    if changed or bound or found:
        return False, f"reached other models: {found or changed[:5] or bound[:5]}", ""
    return (
        True,
        "a second instance and a later model run HuggingFace's own modules (rope and loss functions are shared)",
        "",
    )


def vision_modules(task: Task) -> Finding:
    """L#763: what a text batch doesn't reach can't be counted, so the modules themselves are compared on both paths."""
    by_instance = task.model()
    names = [
        name for name, _ in by_instance.named_modules() if any(word in name.lower() for word in NOT_TEXT)
    ]
    if not names:
        return None, "the model has no vision or audio part", ""
    task.apply(model=by_instance)
    reached = {name for name in names if _patched(by_instance.get_submodule(name), task.package)}
    task.apply()
    by_class = task.model()
    wanted = {name for name in names if _patched(by_class.get_submodule(name), task.package)}
    apart = [
        f"{name}: {'class' if name in wanted else 'instance'} path only" for name in sorted(reached ^ wanted)
    ]
    if apart:
        return False, f"{len(apart)} modules of the vision part differ: {apart[0]}", "\n".join(apart)
    return True, f"class and instance path reach the same {len(wanted)} modules of the vision part", ""


def _patched(module: Any, package: str) -> bool:
    """Whether its forward is the package's, by its class or bound to the instance."""
    forward = getattr(module.forward, "__func__", module.forward)
    return str(getattr(forward, "__module__", "")).startswith(f"{package}.")


def forward_cases(task: Task) -> Finding:
    """L#678, #974, #930, #1181: labels, shift_labels, logits_to_keep and extra arguments in every combination."""
    state, batch = perturbed_state(task), task.batch()
    theirs = task.model(torch.float32, state)
    ours = task.model(torch.float32, state)
    task.apply(
        model=ours, **dict.fromkeys(task.parameters() - {"model", "fused_linear_cross_entropy"}, False)
    )
    labels = batch.pop("labels")
    shifted = torch.nn.functional.pad(labels, (0, 1), value=-100)[..., 1:].contiguous()
    problems: list[str] = []
    done = 0
    accepts_keep = "logits_to_keep" in inspect.signature(task.model_class.forward).parameters
    for training in (True, False):
        for keep in (0, 3, torch.tensor([1, 4])) if accepts_keep else (0,):
            selected = slice(-keep, None) if isinstance(keep, int) else keep
            extra = {"logits_to_keep": keep} if accepts_keep else {}
            for kind in ("none", "labels", "labels and shift_labels", "shift_labels"):
                given = {}
                if "labels" in kind.split():
                    given["labels"] = labels[:, selected]
                if "shift_labels" in kind:
                    given["shift_labels"] = shifted[:, selected]
                name = f"{'train' if training else 'eval'}, logits_to_keep={keep}, {kind}"
                done += 1
                problems += _case(theirs, ours, batch, {**extra, **given}, training, name)
    problems += _extras(theirs, ours, {**batch, "labels": labels})
    return (
        not problems,
        f"{len(problems)} of {done + 4} differ: {problems[0]}" if problems else f"{done + 4} cases agree",
        "\n".join(problems),
    )


def _case(theirs: Any, ours: Any, batch: Any, given: Any, training: bool, name: str) -> list[str]:
    theirs.train(training)
    ours.train(training)
    reference = dict(given)
    if "shift_labels" in reference and "labels" not in reference:
        # HuggingFace computes no loss without labels; with both it uses the shifted ones
        reference["labels"] = reference["shift_labels"]
    with torch.no_grad():
        try:
            wanted = theirs(**batch, use_cache=False, **reference)
        except Exception:  # noqa: BLE001 - what HuggingFace refuses, nobody asks of us
            return []
        try:
            found = ours(**batch, use_cache=False, **given)
        except Exception as error:  # noqa: BLE001 - the finding
            return [f"{name}: {type(error).__name__}: {str(error)[:200]}"]
    problems = []
    has_labels = "labels" in given or "shift_labels" in given
    if has_labels and (
        found.loss is None or abs(float(found.loss) - float(wanted.loss)) > 1e-4 * abs(float(wanted.loss))
    ):
        problems.append(
            f"{name}: loss {None if found.loss is None else float(found.loss)}, wanted {float(wanted.loss)}"
        )
    if training and has_labels:
        if found.logits is not None:
            problems.append(f"{name}: the logits were materialized")
    elif found.logits is None or distance(found.logits, wanted.logits) > FP32_TOLERANCE:
        problems.append(f"{name}: other logits")
    return problems


def _extras(theirs: Any, ours: Any, batch: Any) -> list[str]:
    """Arguments that must reach the loss or the decoder, and outputs that must still be there."""
    problems = []
    ours.train()
    theirs.train()
    with torch.no_grad():
        wanted = theirs(**batch, use_cache=False, num_items_in_batch=7, output_hidden_states=True)
        found = ours(**batch, use_cache=False, num_items_in_batch=7, output_hidden_states=True)
        if abs(float(found.loss) - float(wanted.loss)) > 1e-4 * abs(float(wanted.loss)):
            problems.append(f"num_items_in_batch: loss {float(found.loss)}, wanted {float(wanted.loss)}")
        if len(found.hidden_states or ()) != len(wanted.hidden_states or ()):
            problems.append("output_hidden_states: not passed on")
        if ours(**batch, use_cache=False, skip_logits=False).logits is None:
            problems.append("skip_logits=False in training: no logits")
        pair = ours(**batch, use_cache=False, return_dict=False)
        if not isinstance(pair, tuple):
            problems.append("return_dict=False: not a tuple")
    return problems


def revert(task: Task) -> Finding:
    """The convergence tests compare with a model that must be HuggingFace's own again."""
    utils = importlib.import_module("test.utils")
    helper = getattr(utils, task.function_name.replace("apply_", "revert_"), None)
    if helper is None:
        return False, "test/utils.py has no revert helper for this model", ""
    task.apply()
    before = kernel_counts(task, task.model(), task.batch())
    setup = SimpleNamespace(model_class=None)
    helper(setup)
    task.modeling = importlib.import_module(task.modeling.__name__)
    after = kernel_counts(task, task.model(), task.batch())
    if not before:
        return False, "the patch called no kernel, so there is nothing to revert", ""
    return (
        not after,
        f"still called after the revert: {after}"
        if after
        else f"{sum(before.values())} kernel calls before, none after",
        "",
    )
