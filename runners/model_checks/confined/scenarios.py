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
    BF16_SLACK,
    FP32_TOLERANCE,
    NEGLIGIBLE,
    Task,
    counted_kernels,
    distance,
    evaluate,
    kernel_counts,
    perturbed_state,
    train_step,
)

Finding = tuple[bool | None, str, str]


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


def parity(task: Task, path: str, dtype_name: str) -> Finding:
    """L#370, #305: a wrong casting mode, offset or in-place backward diverges silently; gemma2 did."""
    dtype = getattr(torch, dtype_name)
    state, batch = perturbed_state(task), task.batch()
    plain = {k: v for k, v in batch.items() if k != "labels"}
    exact_model = task.model(torch.float32, state)
    exact, exact_logits = train_step(exact_model, batch), evaluate(exact_model, plain).logits
    same_model = exact_model if dtype is torch.float32 else task.model(dtype, state)
    theirs = exact if dtype is torch.float32 else train_step(same_model, batch)
    their_logits = exact_logits if dtype is torch.float32 else evaluate(same_model, plain).logits
    if path == "class":
        task.apply()
        model = task.model(dtype, state)
    else:
        model = task.model(dtype, state)
        task.apply(model=model)
    ours = train_step(model, batch)
    logits = evaluate(model, plain).logits
    if ours["logits"] is not None:
        return False, "training with labels materialized the logits, so the fused loss did not run", ""
    rows = [
        ("loss", abs(ours["loss"] - exact["loss"]) / abs(exact["loss"]), _off(theirs["loss"], exact["loss"]))
    ]
    rows.append(("logits", distance(logits, exact_logits), distance(their_logits, exact_logits)))
    missing = sorted(set(exact["gradients"]) ^ set(ours["gradients"]))
    largest = max((float(g.abs().max()) for g in exact["gradients"].values() if g.numel()), default=0.0)
    for name, wanted in exact["gradients"].items():
        if name in ours["gradients"]:
            mine, other = (
                distance(side["gradients"][name], wanted, NEGLIGIBLE * largest) for side in (ours, theirs)
            )
            rows.append((name, mine, other))
    slack, factor = (FP32_TOLERANCE, 0.0) if dtype is torch.float32 else (BF16_SLACK, 2.0)
    # judged by HuggingFace's own rounding in this dtype: no tolerance is right for every depth and width
    far = [(n, ours_, theirs_) for n, ours_, theirs_ in rows if not ours_ <= slack + factor * theirs_]
    worst = max(rows, key=lambda row: row[1])
    details = "\n".join(
        f"{n}: liger {a:.3g}, huggingface {b:.3g}" for n, a, b in sorted(rows, key=lambda r: -r[1])[:30]
    )
    if missing:
        return False, f"gradients of one side only: {', '.join(missing[:5])}", details
    if far:
        n, a, b = max(far, key=lambda row: row[1])
        return (
            False,
            f"{len(far)} of {len(rows)} differ; worst {n}: {a:.3g} from fp32, HuggingFace {b:.3g}",
            details,
        )
    return (
        True,
        f"loss, logits and {len(rows) - 2} gradients; worst {worst[0]} {worst[1]:.2g} from fp32",
        details,
    )


def _off(found: float, wanted: float) -> float:
    return abs(found - wanted) / abs(wanted)


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


def forward_cases(task: Task) -> Finding:
    """L#678, #974, #930, #1181: labels, shift_labels, logits_to_keep and extra arguments in every combination."""
    state, batch = perturbed_state(task), task.batch()
    theirs = task.model(torch.float32, state)
    ours = task.model(torch.float32, state)
    task.apply(
        model=ours, **dict.fromkeys(_parameters(task) - {"model", "fused_linear_cross_entropy"}, False)
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


def _parameters(task: Task) -> set[str]:
    return {
        name
        for name, parameter in inspect.signature(task.apply).parameters.items()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    }


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
