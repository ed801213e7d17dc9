"""A patched model against HuggingFace's own: loss, logits and every gradient, judged by HuggingFace's own rounding.

When they differ, `alone` says which part of the patch does it: each class or function that the patch replaces, on its own.
Loaded by the confined child; imports none of ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from parts import keep_only
from tiny_runs import (
    BF16_SLACK,
    FP32_TOLERANCE,
    NEGLIGIBLE,
    Task,
    distance,
    evaluate,
    perturbed_state,
    train_step,
)

Finding = tuple[bool | None, str, str]
Row = tuple[str, float, float]  # name, our distance from float32, HuggingFace's
# A gradient of a few elements may by chance round to almost nothing on one side, so where one batch shows a difference, the
# root mean square over this many decides. A wrong formula is as wrong on every batch.
BATCHES = 4


class NothingToCompare(Exception):  # noqa: N818 - a finding about the model, not about the patch
    """HuggingFace's own model doesn't run in this dtype."""


def parity(task: Task, path: str, dtype_name: str, batches: int = 1) -> Finding:
    """L#370, #305: a wrong casting mode, offset or in-place backward diverges silently; gemma2 did."""
    try:
        rows, problem = _rows(task, dtype_name, _patched(task, path), batches)
    except NothingToCompare as error:
        return None, f"without the patch it doesn't run in {dtype_name} either: {error}"[:300], ""
    if problem:
        return False, problem, ""
    far = _far(rows, dtype_name)
    worst = max(rows, key=lambda row: row[1])
    if far:
        return (
            False,
            f"{len(far)} of {len(rows)} differ; worst {_said(max(far, key=_excess))}",
            _details(rows),
        )
    text = f"loss, logits and {len(rows) - 2} gradients; worst {worst[0]} {worst[1]:.2g} from fp32"
    return True, text + (f", over {batches} batches" if batches > 1 else ""), _details(rows)


def alone(task: Task, path: str, dtype_name: str, part: str, batches: int = 1) -> Finding:
    """One part of the patch on its own, everything else HuggingFace's."""
    rows, problem = _rows(task, dtype_name, _patched(task, path, part), batches, fused=False)
    if problem:
        return False, problem, ""
    far = _far(rows, dtype_name)
    return not far, f"on its own, {_said(max(far or rows, key=_excess))}", _details(rows)


def _patched(task: Task, path: str, part: str | None = None) -> Callable[..., Any]:
    """Makes the patched model; with `part`, only that of it is patched."""

    def make(dtype: torch.dtype, state: dict[str, torch.Tensor]) -> Any:
        model = task.model(dtype, state) if path == "instance" else None
        if part:
            keep_only(task, part, model)
        else:
            task.apply(**({} if model is None else {"model": model}))
        return task.model(dtype, state) if model is None else model

    return make


def _rows(
    task: Task, dtype_name: str, patched: Callable[..., Any], batches: int, *, fused: bool = True
) -> tuple[list[Row], str]:
    """Root mean square of the distances over `batches`, and what can't be compared at all. Raises NothingToCompare."""
    dtype = getattr(torch, dtype_name)
    state = perturbed_state(task)
    exact_model = task.model(torch.float32, state)
    same_model = exact_model if dtype is torch.float32 else task.model(dtype, state)
    given = [task.batch(seed) for seed in range(1, 1 + batches)]
    # before the patch, which on the class path reaches these models as well
    exact = [_run(exact_model, batch) for batch in given]
    try:
        theirs = exact if same_model is exact_model else [_run(same_model, batch) for batch in given]
    except Exception as error:
        raise NothingToCompare(f"{type(error).__name__}: {' '.join(str(error).split())}") from error
    model = patched(dtype, state)
    collected = []
    for batch, wanted, other in zip(given, exact, theirs, strict=True):
        ours = _run(model, batch)
        if fused and ours["training_logits"] is not None:
            return [], "training with labels materialized the logits, so the fused loss did not run"
        if missing := sorted(set(wanted["gradients"]) ^ set(ours["gradients"])):
            return [], f"gradients of one side only: {', '.join(missing[:5])}"
        collected.append(_compared(wanted, other, ours))
    return [_mean_square(list(rows)) for rows in zip(*collected, strict=True)], ""


def _run(model: Any, batch: dict[str, torch.Tensor]) -> dict[str, Any]:
    step = train_step(model, batch)
    plain = {k: v for k, v in batch.items() if k != "labels"}
    return {**step, "training_logits": step["logits"], "logits": evaluate(model, plain).logits}


def _compared(exact: dict[str, Any], theirs: dict[str, Any], ours: dict[str, Any]) -> list[Row]:
    wanted = exact["loss"]
    rows = [("loss", *(abs(side["loss"] - wanted) / abs(wanted) for side in (ours, theirs)))]
    rows.append(("logits", *(distance(side["logits"], exact["logits"]) for side in (ours, theirs))))
    largest = max((float(g.abs().max()) for g in exact["gradients"].values() if g.numel()), default=0.0)
    for name, gradient in exact["gradients"].items():
        mine, other = (
            distance(side["gradients"][name], gradient, NEGLIGIBLE * largest) for side in (ours, theirs)
        )
        rows.append((name, mine, other))
    return rows


def _mean_square(rows: list[Row]) -> Row:
    mine, theirs = (
        math.sqrt(sum(value**2 for value in side) / len(side))
        for side in zip(*((ours, other) for _, ours, other in rows), strict=True)
    )
    return rows[0][0], mine, theirs


def _excess(row: Row) -> float:
    return row[1] - row[2]


def _far(rows: list[Row], dtype_name: str) -> list[Row]:
    # judged by HuggingFace's own rounding in this dtype: no tolerance is right for every depth and width
    slack, factor = (FP32_TOLERANCE, 0.0) if dtype_name == "float32" else (BF16_SLACK, 2.0)
    return [(name, ours, theirs) for name, ours, theirs in rows if not ours <= slack + factor * theirs]


def _said(row: Row) -> str:
    return f"{row[0]}: {row[1]:.3g} from fp32, HuggingFace {row[2]:.3g}"


def _details(rows: list[Row]) -> str:
    ordered = sorted(rows, key=lambda row: -row[1])[:30]
    return "\n".join(f"{name}: liger {ours:.3g}, huggingface {theirs:.3g}" for name, ours, theirs in ordered)
