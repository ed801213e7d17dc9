"""Fitting numbers to sizes and scalars: what the differential trace stands on."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.quantity import Quantity, fit

ENVIRONMENTS = [
    {"n_rows": 13, "n_cols": 29, "alpha": 1.702, "p": 0.9},
    {"n_rows": 31, "n_cols": 37, "alpha": 1.702, "p": 0.9},
    {"n_rows": 59, "n_cols": 61, "alpha": 1.702, "p": 0.9},
    {"n_rows": 13, "n_cols": 29, "alpha": 1.2765, "p": 0.9},
    {"n_rows": 13, "n_cols": 29, "alpha": 1.06375, "p": 0.9},
    {"n_rows": 13, "n_cols": 29, "alpha": 1.702, "p": 0.675},
    {"n_rows": 13, "n_cols": 29, "alpha": 1.702, "p": 0.5625},
]
AXES = ["n_rows", "n_cols"]


@pytest.mark.parametrize(
    ("formula", "text"),
    [
        (lambda e: 7.5, "7.5"),
        (lambda e: e["n_cols"], "n_cols"),
        (lambda e: e["n_cols"] // 1 / 2, "n_cols / 2"),
        (lambda e: e["n_cols"] ** 0.5, "n_cols**0.5"),
        (lambda e: 1 / math.sqrt(e["n_cols"]), "1 / n_cols**0.5"),
        (lambda e: e["n_rows"] * e["n_cols"], "n_cols * n_rows"),
        (lambda e: e["alpha"], "alpha"),
        (lambda e: -e["alpha"], "-alpha"),
        (lambda e: 0.5 * e["alpha"], "alpha / 2"),
        (lambda e: 1 - e["p"], "(1 - p)"),
        (lambda e: 1 + e["alpha"], "(1 + alpha)"),
        (lambda e: 1 / (1 - e["p"]), "1 / (1 - p)"),
        (lambda e: e["alpha"] ** 2, "alpha**2"),
        (lambda e: (1 - e["p"]) / e["n_cols"], "(1 - p) / n_cols"),
        (lambda e: e["alpha"] * (1 - e["p"]), "alpha * (1 - p)"),
    ],
)
def test_a_number_that_follows_the_environment_is_fitted(formula, text):
    values = [formula(e) for e in ENVIRONMENTS]
    found = fit(values, ENVIRONMENTS, AXES)
    assert found is not None
    assert all(
        math.isclose(found.value(e), v, rel_tol=1e-6) for e, v in zip(ENVIRONMENTS, values, strict=True)
    )
    assert found.text() == text


@pytest.mark.parametrize("formula", [lambda e: math.sin(e["n_cols"]), lambda e: e["n_cols"] + e["n_rows"]])
def test_a_number_without_a_closed_form_is_refused(formula):
    assert fit([formula(e) for e in ENVIRONMENTS], ENVIRONMENTS, AXES) is None


def test_a_scalar_whose_default_is_zero_is_fitted():
    environments = [
        {"n_cols": 29, "s": 0.0},
        {"n_cols": 37, "s": 0.0},
        {"n_cols": 29, "s": 0.125},
        {"n_cols": 29, "s": 0.3125},
    ]
    found = fit([2 * e["s"] for e in environments], environments, ["n_cols"])
    assert found is not None
    assert found.value({"n_cols": 29, "s": 3.0}) == 6.0


def test_eps_rounded_to_fp32_is_still_eps():
    environments = [
        {"n": 13, "eps": 1e-6},
        {"n": 31, "eps": 1e-6},
        {"n": 13, "eps": 0.75e-6},
        {"n": 13, "eps": 0.625e-6},
    ]
    found = fit([9.99999997475e-07, 9.99999997475e-07, 7.5e-7, 6.25e-7], environments, ["n"])
    assert found is not None
    assert found.names == {"eps"}


@given(st.floats(0.1, 10), st.integers(1, 3), st.integers(-2, 2))
def test_products_and_powers_agree_with_numbers(coef: float, power: int, other: int):
    quantity = Quantity.number(coef) * Quantity.of("n", power) / Quantity.of("m", other)
    assert math.isclose(quantity.value({"n": 3.0, "m": 2.0}), coef * 3.0**power / 2.0**other)
    assert quantity.same(quantity * Quantity())
    assert (quantity / quantity).same(Quantity())
