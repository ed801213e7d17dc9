"""Typed expressions become references; everything outside the language is refused without being run."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from agents.dev.expression import looks_like_expression, parse_expression
from agents.dev.expression_value import evaluate
from agents.dev.recognise import recognise
from agents.dev.refused import Mistake
from runners.static_scan import scan


def body(text: str) -> str:
    return parse_expression(text).op.source.strip().splitlines()[-1].strip().removeprefix("return ")


@pytest.mark.parametrize(
    ("text", "torch_text"),
    [
        ("x * sigmoid(1.702 * x)", "x * torch.sigmoid(1.702 * x)"),
        ("max(x, 0)**2", "torch.relu(x) ** 2"),
        ("max(x,0)^2", "torch.relu(x) ** 2"),
        ("silu(a)*b", "F.silu(a) * b"),
        ("x·σ(x)", "x * torch.sigmoid(x)"),
        ("xσ(x)", "x * torch.sigmoid(x)"),
        ("2x + 3(x + 1)", "2 * x + 3 * (x + 1)"),
        ("1e-5x", "1e-05 * x"),
        ("√(x² + 1)", "torch.sqrt(x ** 2 + 1)"),
        ("|x| / (1 + |x|)", "torch.abs(x) / (1 + torch.abs(x))"),
        ("x if x > 0 else 0.1 * x", "torch.where(x > 0, x, 0.1 * x)"),
        ("min(max(x, 0), 6)", "torch.clamp(torch.relu(x), max=6)"),
        ("max(-1, x)", "torch.clamp(x, min=-1)"),
        ("max(a, b)", "torch.maximum(a, b)"),
        ("clip(x, -1, 1)", "torch.clamp(x, min=-1, max=1)"),
        ("x * sqrt(2 / pi)", "x * math.sqrt(2 / math.pi)"),
        ("torch.sigmoid(x) * F.silu(x)", "torch.sigmoid(x) * F.silu(x)"),
        ("gelu(x, approximate='tanh')", "F.gelu(x, approximate='tanh')"),
        ("leaky_relu(x, 0.2)", "F.leaky_relu(x, 0.2)"),
        ("mean(x)", "torch.mean(x, dim=-1, keepdim=True)"),
        ("x - max(x)", "x - torch.amax(x, dim=-1, keepdim=True)"),
        ("softmax(x) * x", "torch.softmax(x, dim=-1) * x"),
    ],
)
def test_an_expression_is_written_in_pytorch(text, torch_text):
    assert looks_like_expression(text)
    assert body(text) == torch_text
    assert scan(parse_expression(text).op.source) == []


def test_the_left_side_names_the_op_its_arguments_and_their_defaults():
    parsed = parse_expression("snake(x, alpha=0.5) = x + sin(alpha * x)**2 / alpha")

    assert parsed.name == "snake"
    assert parsed.questions == ()
    assert parsed.op.source == snapshot("""\
import torch


def snake(x: torch.Tensor, alpha: float = 0.5) -> torch.Tensor:
    return x + torch.sin(alpha * x) ** 2 / alpha
""")
    assert [(s.name, s.default, s.constexpr) for s in parsed.op.scalars] == [("alpha", 0.5, False)]


def test_guessed_roles_are_questions_with_the_key_that_changes_them():
    parsed = parse_expression("x / sqrt(mean(x²) + eps) * weight + shift")

    assert [(t.name, t.shape, t.learnable, t.init) for t in parsed.op.tensors] == [
        ("x", ("*", "n_cols"), False, None),
        ("weight", ("n_cols",), True, "ones"),
        ("shift", ("n_cols",), True, "zeros"),
    ]
    assert list(parsed.questions) == snapshot(
        [
            "The expression has no name; `sqrt_mean` was made from its functions. Change it with `operation_name=…`.",
            "`eps` was taken as a number, 1e-06. Change it with `eps=…`.",
            "`weight` was taken as a learnable vector, one value per column. A full tensor: `weight.shape=full`.",
            "`shift` was taken as a learnable vector, one value per column. A full tensor: `shift.shape=full`.",
        ]
    )


def test_an_exponent_that_is_a_name_is_a_number_fixed_at_compile_time():
    (scalar,) = parse_expression("relu(x)**n").op.scalars

    assert (scalar.name, scalar.default, scalar.constexpr) == ("n", 2.0, True)


def test_the_order_of_tensors_is_the_customary_one():
    assert [t.name for t in parse_expression("b * silu(a)").op.tensors] == ["a", "b"]
    assert [t.name for t in parse_expression("residual + up * x").op.tensors] == ["x", "up", "residual"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "sigmod(x) * x",
            snapshot(
                "`sigmod` is not a function that expressions know. Did you mean `sigmoid` or `logsigmoid`?"
            ),
        ),
        (
            "__import__('os').system('id')",
            snapshot("`__import__('os').system` is not a function that expressions know."),
        ),
        ("x.__class__ * 2", snapshot("Expressions can't contain `x.__class__`.")),
        ("(lambda: x)() * x", snapshot("`lambda: x` is not a function that expressions know.")),
        (
            "[x for x in y][0] * 2",
            snapshot(
                "Expressions can't contain `[x for x in y][0]`. Use a ```python block for anything beyond arithmetic and functions."
            ),
        ),
        (
            "x @ y",
            snapshot(
                "Expressions can't contain `x @ y`. Use a ```python block for anything beyond arithmetic and functions."
            ),
        ),
        (
            "x * 'a'",
            snapshot(
                "Expressions can't contain `'a'`. Use a ```python block for anything beyond arithmetic and functions."
            ),
        ),
        (
            "f'{x}' * x",
            snapshot(
                "Expressions can't contain `f'{x}'`. Use a ```python block for anything beyond arithmetic and functions."
            ),
        ),
        ("1 + 2", snapshot("The expression has no tensor: use `x` (and `a`, `b`, … for more).")),
        (
            "a * b * x * y * z",
            snapshot("The expression has 5 tensors (x, a, b, y, z); at most 4 are supported."),
        ),
        ("x * (", snapshot("The expression does not parse: '(' was never closed.")),
        ("relu * 2", snapshot("`relu` is a function: write `relu(x)`.")),
        ("clamp(x)", snapshot("`clamp` takes 2 to 3 arguments.")),
        ("gelu(x, mode=1)", snapshot("`gelu` takes no keyword `mode` here.")),
        ("f(x, k=[]) = x * k", snapshot("The default of `k` must be a number, as in `f(x, alpha=1.0) = …`.")),
        ("f(x) = x * alpha", snapshot("`alpha` is used but not an argument on the left side.")),
        (
            "f(x, k=2) = x * 3",
            snapshot("`k` is an argument on the left side but the expression does not use it."),
        ),
        (
            "x * 1e400",
            snapshot(
                "Expressions can't contain `1e309`. Use a ```python block for anything beyond arithmetic and functions."
            ),
        ),
        (
            "*".join(["x"] * 300),
            snapshot("The expression has more than 400 parts. Use a ```python block instead."),
        ),
        (
            "x+" * 1500 + "x",
            snapshot(
                "The expression has 3,001 characters; at most 2,000 are read. Use a ```python block instead."
            ),
        ),
        (
            "(" * 900 + "x" + ")" * 900 + "*x",
            snapshot("The expression does not parse: too many nested parentheses."),
        ),
    ],
)
def test_what_is_outside_the_language_is_refused_in_one_line(text, reason):
    with pytest.raises(Mistake) as caught:
        parse_expression(text)

    assert caught.value.refused.reason == reason
    assert "\n" not in caught.value.refused.reason


@given(st.text(alphabet="xyab0123456789.+-*/^()|, =σ√²maxsigmodreluif<>'[]_", max_size=60))
def test_any_text_is_parsed_to_an_allowed_reference_or_refused(text):
    try:
        parsed = parse_expression(text)
    except Mistake:
        return
    assert scan(parsed.op.source) == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("x / (1 + exp(-x))", "silu"),
        ("x * sigmoid(1.702 * x)", "quick_gelu"),
        ("relu(x) * relu(x)", "relu_squared"),
        ("b * a / (1 + exp(-a))", "swiglu"),
        ("x * tanh(log(1 + exp(x)))", "mish"),
        ("0.5 * x * (1 + erf(x / 2**0.5))", "gelu"),
    ],
)
def test_a_known_op_is_recognised_by_its_values(text, name):
    found = recognise(parse_expression(text))

    assert found is not None
    assert found[0].op.name == name


def test_the_order_of_a_recognised_op_is_the_catalogs():
    found = recognise(parse_expression("silu(up) * gate"))

    assert found is not None
    assert (found[0].op.name, found[1]) == ("swiglu", ("up", "gate"))


@pytest.mark.parametrize(
    "text", ["x * sigmoid(1.7 * x)", "relu(x)**2.0001", "softmax(x)", "x * weight", "a * b + x"]
)
def test_what_differs_is_not_recognised(text):
    assert recognise(parse_expression(text)) is None


def test_a_value_is_plain_arithmetic():
    assert evaluate("f(x, k=3) = k * x**2 - 1 if x > 0 else |x|", {"x": 2.0}) == 11.0
    assert evaluate("f(x, k=3) = k * x**2 - 1 if x > 0 else |x|", {"x": -2.0}) == 2.0
