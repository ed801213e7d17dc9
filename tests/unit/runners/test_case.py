"""Tensors laid out in memory with poison around them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from runners.gauntlet.case import GUARD, Layout, place

LAYOUTS = ["contiguous", "transposed", "strided", "padded", "expanded"]


@pytest.mark.parametrize("layout", LAYOUTS)
@given(shape=st.lists(st.integers(0, 4), min_size=0, max_size=4))
def test_every_layout_holds_its_values_and_nothing_else_but_poison(layout: Layout, shape: list[int]) -> None:
    value = torch.arange(1, torch.Size(shape).numel() + 1, dtype=torch.float32).reshape(shape)
    placed, storage = place("x", value, layout)
    view = storage.as_strided(placed.shape, placed.strides, placed.offset)
    expected = value
    if layout == "expanded" and value.numel():
        first = value[(slice(0, 1),) * max(value.dim() - 1, 1)] if value.dim() else value
        expected = first.expand(value.shape)
    assert torch.equal(view, expected)
    distinct = len({int(v) for v in view.flatten()})
    assert int((~storage.isnan()).sum()) == distinct
    assert storage[:GUARD].isnan().all()
    assert storage[-GUARD:].isnan().all()


@pytest.mark.parametrize("layout", LAYOUTS[1:])
def test_layouts_are_what_they_are_called(layout: Layout) -> None:
    value = torch.randn(4, 3, 5)
    placed, storage = place("x", value, layout)
    view = storage.as_strided(placed.shape, placed.strides, placed.offset)
    assert not view.is_contiguous()


def test_integers_are_poisoned_too() -> None:
    _, storage = place("t", torch.zeros(3, dtype=torch.int64), "contiguous")
    assert int(storage[0]) > 10**9
