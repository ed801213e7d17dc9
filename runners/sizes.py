"""Sizes of an op's axes where only rows and columns are asked for: which axis the columns are, what labels index. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from kernels.op_spec import OpSpec, TensorSpec

ROWS = ("*", "n_rows")  # any number of leading axes, or one, where the reference takes only one


def column_axis(op: OpSpec) -> str | None:
    """The axis that "so many columns" means: what a row is reduced or mapped over. None where every tensor has rows only.

    `n_cols` where an op names it; the width of the logits where a linear layer makes them, as cross entropy of
    `x @ weight.T` is one over vocab_size and not over hidden_size; else the last axis of its largest tensor.
    """
    if any("n_cols" in spec.shape for spec in op.tensors):
        return "n_cols"
    return table_axis(op) or next((a for a in reversed(_main(op).shape[-1:]) if a not in ROWS), None)


def table_axis(op: OpSpec) -> str | None:
    """The first axis of a matrix that has no rows, and is in no tensor that has: a vocabulary. None without one."""
    in_rows = {axis for spec in op.tensors if _has_rows(spec) for axis in spec.shape}
    if not in_rows:
        return None
    matrices = [spec for spec in op.tensors if len(spec.shape) == 2 and not _has_rows(spec)]
    return next((spec.shape[0] for spec in matrices if spec.shape[0] not in in_rows), None)


def label_axis(op: OpSpec) -> str | None:
    """The axis that integers of an op with rows index: a vocabulary, else the columns. None where that is not known."""
    return (table_axis(op) or column_axis(op)) if any(map(_has_rows, op.tensors)) else None


def reduced_axes(op: OpSpec) -> set[str]:
    """Last axes of tensors with rows other than the columns: what a linear layer sums over."""
    columns = column_axis(op)
    return {s.shape[-1] for s in op.tensors if _has_rows(s) and len(s.shape) > 1} - {columns, *ROWS}


def logits_axis(op: OpSpec) -> str | None:
    """The axis that a linear layer of the op makes, e.g. vocab_size; None without one."""
    return column_axis(op) if reduced_axes(op) else None


def shape_of(
    spec: TensorSpec, rows: Sequence[int], n_cols: int, columns: str | None, other: Callable[[str], int]
) -> list[int]:
    """A tensor's shape at these rows and columns; `other` sizes the rest of the axes."""
    shape: list[int] = []
    for axis in spec.shape:
        if axis == "*":
            # Without columns every axis is a row: the values lie in rows of `n_cols` all the same.
            shape += [*rows] if columns else [*rows, n_cols]
        elif axis == "n_rows":
            shape.append(prod(rows))
        else:
            shape.append(n_cols if axis == columns else other(axis))
    return shape


def _main(op: OpSpec) -> TensorSpec:
    return max(op.tensors, key=lambda spec: (_has_rows(spec), len(spec.shape)))


def _has_rows(spec: TensorSpec) -> bool:
    return any(axis in ROWS for axis in spec.shape)
