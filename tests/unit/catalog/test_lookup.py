"""Finding ops by their names, and suggestions for names that are nearly right."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.catalog.lookup import catalog, normalised

NAMES = sorted(catalog().ops)


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("relu2", "relu_squared"),
        ("ReLU squared", "relu_squared"),
        ("relu^2", "relu_squared"),
        ("ReLU²", "relu_squared"),
        ("squared relu", "relu_squared"),
        ("RELU-SQUARED", "relu_squared"),
        ("relu_squared activation", "relu_squared"),
        ("GELU (tanh)", "gelu_tanh"),
        ("Swish", "silu"),
        ("SiLU and mul", "swiglu"),
        ("LayerNorm", "layer_norm"),
        ("rms norm", "rms_norm"),
        ("KL divergence", "kl_div"),
        ("rotary embedding", "rope"),
    ],
)
def test_a_name_is_found_in_any_spelling(name, op):
    found = catalog().find(name)

    assert found is not None
    assert found.op.name == op


@pytest.mark.parametrize(
    "name", ["relu*2", "relu+2", "relu(2)", "swiglou", "", "   ", "x" * 1000, "gelu(x)", "relu, squared"]
)
def test_what_is_not_a_name_is_not_found(name):
    assert catalog().find(name) is None


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("relu_sqared", "relu_squared"),
        ("rleusquraed", "relu_squared"),
        ("swiglou", "swiglu"),
        ("softmaks", "softmax"),
        ("layernrom", "layer_norm"),
        ("quikgeluu", "quick_gelu"),
        ("hrdswsh", "hardswish"),
        ("crossentropi", "cross_entropy"),
    ],
)
def test_a_slip_of_up_to_three_letters_is_suggested_and_not_used(name, op):
    assert catalog().find(name) is None
    assert op in catalog().nearest(name)


@given(st.sampled_from([name for name in NAMES if len(normalised(name)) >= 9]), st.data())
def test_three_changed_letters_still_suggest_the_op(name, data):
    letters = list(normalised(name))
    for position in data.draw(
        st.lists(st.integers(0, len(letters) - 1), min_size=1, max_size=3, unique=True)
    ):
        letters[position] = data.draw(st.sampled_from(string.ascii_lowercase))
    slipped = "".join(letters)

    found = catalog().find(slipped)
    assert name in catalog().nearest(slipped, limit=8) or (found is not None and found.op.name != "")


@given(st.text(max_size=200))
def test_any_text_is_looked_up_without_a_crash(text):
    catalog().find(text)

    assert len(catalog().nearest(text)) <= 3
    assert len(catalog().mentioned(text)) <= 3


def test_nothing_near_suggests_nothing():
    assert catalog().nearest("zzzzqqqq") == []


def test_free_text_finds_the_op_it_mentions():
    assert catalog().mentioned("could we have a fused ReLU squared kernel, please?")[0] == "relu_squared"
