"""References that are no differentiable function of their tensors: each is refused, or asked about, in one clear line."""

from __future__ import annotations

import pytest

from kernels.derivation import Derivation, Unsupported
from kernels.derive import derive
from kernels.op_spec import TensorSpec
from runners.static_scan import scan
from tests.unit.kernels.references import IMPORTS, traced


def answer(source: str, entry: str = "f", **fields: object) -> str:
    """What a person reads: reason; needed. Fails when a kernel was derived."""
    findings = scan(IMPORTS + source)
    if findings:
        return findings[0].message
    with pytest.raises(Unsupported) as refused:
        derive(traced(source, entry, **fields))
    error = refused.value
    assert error.needed, "says what would be needed"
    assert "\n" not in error.reason + error.needed
    return f"{error.reason}; {error.needed}"


def questions(source: str) -> str:
    """The questions of the profile of a reference that is derived."""
    found = traced(source)
    assert isinstance(derive(found), Derivation)
    return " ".join(found.questions)


@pytest.mark.parametrize(
    ("draw", "name"),
    [
        ("x + torch.rand_like(x)", "rand_like"),
        ("x * torch.rand(x.shape)", "rand"),
        ("x + torch.randn(x.shape)", "randn"),
        ("F.dropout(x, 0.1)", "native_dropout"),
        ("x * torch.bernoulli(torch.full_like(x, 0.5))", "bernoulli"),
        ("x * torch.empty_like(x).uniform_()", "uniform"),
        ("F.rrelu(x, training=True)", "rrelu"),
    ],
)
def test_random_numbers_need_a_seed(draw: str, name: str):
    said = answer(f"def f(x):\n    return {draw}\n")
    assert f"draws random numbers ({name}" in said
    assert "philox_uniform" in said


def test_memory_that_nobody_wrote_is_not_zero():
    assert "not written (empty_like)" in answer("def f(x):\n    return x * torch.empty_like(x)\n")


def test_memory_that_is_filled_first_is_fine():
    derive(traced("def f(x):\n    return x + torch.empty_like(x).fill_(2.0)\n"))


@pytest.mark.parametrize(
    ("expression", "operation"),
    [("torch.nonzero(x).float()", "nonzero"), ("torch.masked_select(x, x > 0)", "masked_select"), ("x[x > 0]", "nonzero"),
     ("torch.unique(x)", "unique")],
)  # fmt: skip
def test_a_shape_that_depends_on_the_data(expression: str, operation: str):
    said = answer(f"def f(x):\n    return {expression}\n")
    assert operation in said
    assert "depends on the data" in said
    assert "shapes known before the run" in said


@pytest.mark.parametrize(
    "body",
    ["return x.mul_(2)", "x[:, 0] = 0\n    return x * 2", "x.relu_()\n    return x + 1", "F.relu(x, inplace=True)\n    return x"],
)  # fmt: skip
def test_inputs_changed_in_place(body: str):
    assert "in place; a function that leaves its inputs alone" in answer(f"def f(x):\n    {body}\n")


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("calls = [0]\ndef f(x):\n    calls[0] += 1\n    return x * calls[0]\n", "calls"),
        ("total = torch.zeros(1)\ndef f(x):\n    total.add_(1)\n    return x * total\n", "total"),
        ("class State:\n    n = 0\ndef f(x):\n    State.n += 1\n    return x * 2\n", "State.n"),
        ("def f(x, seen=[]):\n    seen.append(1)\n    return x * len(seen)\n", "default 1 of f"),
        ("def f(x):\n    f.n = 3\n    return x * f.n\n", "f.n"),
        ("def g():\n    calls.append(1)\ncalls = []\ndef f(x):\n    g()\n    return x * 2\n", "calls"),
    ],
)
def test_global_state_is_named(source: str, what: str):
    said = answer(source)
    assert f"changes {what}, which outlives the call" in said


def test_a_module_that_counts_its_calls():
    source = (
        "class Counts(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.n = 0\n"
        "    def forward(self, x):\n        self.n += 1\n        return x * self.n\n"
    )
    assert "changes self.n" in answer(source, "Counts", kind="module")


def test_global_statements_are_refused_before_anything_runs():
    assert "global state" in answer("n = 0\ndef f(x):\n    global n\n    n += 1\n    return x * n\n")


@pytest.mark.parametrize(
    "expression", ["x", "x.transpose(0, 1)", "x[:, : x.shape[1] // 2]", "x.detach()[:] + 0 * x"]
)
def test_a_view_of_the_input_is_asked_about_or_copied(expression: str):
    found = questions(f"def f(x):\n    return {expression}\n")
    assert ("is x or a view of it: the kernel returns a new tensor" in found) == ("+" not in expression)


def test_a_slice_that_cuts_no_equal_pieces():
    assert "slices that cut an axis" in answer("def f(x):\n    return x[:, :2]\n")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("return (x > 0).long()", "int64 values, which have no gradient"),
        ("return 3", "returns an int"),
        ("return x.shape[0]", "returns an int"),
        ("return None", "returns None"),
        ("x * 2", "returns None"),
        ("return x * 2, None", "None among its results"),
        ("return ()", "returns nothing"),
        ("return {'y': x}", "returns a dict"),
    ],
)
def test_what_is_returned_must_be_tensors(body: str, reason: str):
    assert reason in answer(f"def f(x):\n    {body}\n")


FIVE = "def f(a, b, c, d, e):\n    return torch.cat([a * d, b * e, c], 0)\n"


def test_five_tensors_taken_as_one_shape_are_asked_about():
    assert "a, b, c, d and e were taken as tensors of one shape" in questions(
        "def f(a, b, c, d, e):\n    return a * d + b * e + c\n"
    )


def test_five_tensors_of_three_row_counts():
    rows = {"a": "m", "b": "n", "c": "k", "d": "m", "e": "n"}
    tensors = tuple(TensorSpec(name=name, shape=(axis, "n_cols")) for name, axis in rows.items())
    assert "no sum of different sizes, as a concatenation of unequal pieces is" in answer(
        FIVE, tensors=tensors
    )


@pytest.mark.parametrize(
    ("expression", "which"),
    [
        ("torch.round(x)", "no gradient (round)"),
        ("torch.floor(x) * 2", "no gradient (floor)"),
        ("torch.sign(x)", "no gradient (sign)"),
        ("(x > 0).float()", "no gradient"),
        ("x.detach() * 2", "no gradient"),
        ("torch.zeros_like(x)", "no gradient"),
        ("x.argmax(-1)", "int64 values, which have no gradient"),
    ],
)
def test_a_gradient_that_does_not_exist(expression: str, which: str):
    assert which in answer(f"def f(x):\n    return {expression}\n")


def test_a_custom_function_without_a_backward_is_refused_by_the_scan():
    source = (
        "class Step(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        return x * 2\n"
        "def f(x):\n    return Step.apply(x)\n"
    )
    assert "torch.autograd may not be used" in answer(source)


def test_a_step_that_passes_its_gradient_on_is_derived():
    derivation = derive(traced("def f(x):\n    return x + (torch.round(x) - x).detach()\n"))
    assert derivation.gradient_formulas == {"x": "dy"}


def test_an_input_without_a_gradient_is_asked_about():
    assert "No gradient reaches b" in questions("def f(a, b):\n    return a * b.detach()\n")
    assert "No gradient" not in questions("def f(a, b):\n    return a * b\n")
