"""Which axis of an op has the columns, and what its labels index."""

from __future__ import annotations

import pytest

from agents.catalog.lookup import catalog
from runners.sizes import column_axis, label_axis, logits_axis, shape_of

OPS = catalog().ops


@pytest.mark.parametrize(
    ("name", "columns", "labels", "logits"),
    [
        ("relu_squared", "n_cols", "n_cols", None),
        ("cross_entropy", "n_cols", "n_cols", None),
        ("embedding", "n_cols", "vocab_size", None),
        ("fused_linear_cross_entropy", "vocab_size", "vocab_size", "vocab_size"),
        ("fused_linear_jsd", "vocab_size", "vocab_size", "vocab_size"),
        ("rope", "head_dim", None, None),
        ("group_norm", "space", None, None),
        ("dpo_loss", None, None, None),
    ],
)
def test_axes(name: str, columns: str | None, labels: str | None, logits: str | None) -> None:
    op = OPS[name].op
    assert (column_axis(op), label_axis(op), logits_axis(op)) == (columns, labels, logits)


def test_rows_that_have_a_name_are_as_many_as_are_asked_for() -> None:
    target = OPS["cross_entropy"].op.tensors[1].model_copy(update={"shape": ("n_rows",)})
    assert shape_of(target, [3, 5], 31, "n_cols", lambda _: 4) == [15]


def test_without_columns_every_axis_is_a_row() -> None:
    chosen = OPS["dpo_loss"].op.tensors[0]
    assert shape_of(chosen, [0], 64, None, lambda _: 4) == [0, 64]
