"""Element-wise ATen operations in terms of the row program's functions. Pure.

Each rule takes the graph and the operands' nodes, and keeps ATen's own formula: what it does at ties, at NaN and at
large values. Where ATen computes a gradient in a way that overflows, the formula is the stable equivalent and says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from kernels.derivation import Unsupported
from kernels.passes.graph import Graph

Rule = Callable[..., int]
RULES: dict[str, Rule] = {}
MAX_UNROLLED_POWER = 8


def rule(*names: str) -> Callable[[Rule], Rule]:
    def register(function: Rule) -> Rule:
        for name in names:
            RULES[f"aten.{name}"] = function
        return function

    return register


def _direct(fn: str, *names: str) -> None:
    def apply(g: Graph, *args: int) -> int:
        return g.map(fn, *args)

    rule(*names)(apply)


for _fn, _names in {
    "neg": ("neg.default",),
    "abs": ("abs.default",),
    "exp": ("exp.default",),
    "log": ("log.default",),
    "log1p": ("log1p.default",),
    "expm1": ("expm1.default",),
    "sqrt": ("sqrt.default",),
    "rsqrt": ("rsqrt.default",),
    "sigmoid": ("sigmoid.default",),
    "tanh": ("tanh.default",),
    "erf": ("erf.default", "special_erf.default"),
    "sin": ("sin.default",),
    "cos": ("cos.default",),
    "floor": ("floor.default",),
    "ceil": ("ceil.default",),
    "sign": ("sign.default", "sgn.default"),
    "atan": ("atan.default",),
    "maximum": ("maximum.default",),
    "minimum": ("minimum.default",),
    "lt": ("lt.Scalar", "lt.Tensor"),
    "le": ("le.Scalar", "le.Tensor"),
    "gt": ("gt.Scalar", "gt.Tensor"),
    "ge": ("ge.Scalar", "ge.Tensor"),
    "eq": ("eq.Scalar", "eq.Tensor"),
    "ne": ("ne.Scalar", "ne.Tensor"),
    "and": ("logical_and.default", "bitwise_and.Tensor"),
    "or": ("logical_or.default", "bitwise_or.Tensor"),
    "not": ("logical_not.default", "bitwise_not.default"),
}.items():
    _direct(_fn, *_names)


def num(g: Graph, node: int) -> int:
    """A boolean as a number; a number as it is."""
    return g.map("float", node) if g.is_boolean(node) else node


@rule("add.Tensor", "add.Scalar")
def add(g: Graph, a: int, b: int, alpha: int | None = None) -> int:
    b = num(g, b)
    return g.map("add", num(g, a), b if alpha is None else g.map("mul", alpha, b))


@rule("sub.Tensor", "sub.Scalar")
def sub(g: Graph, a: int, b: int, alpha: int | None = None) -> int:
    b = num(g, b)
    return g.map("sub", num(g, a), b if alpha is None else g.map("mul", alpha, b))


@rule("rsub.Scalar", "rsub.Tensor")
def rsub(g: Graph, a: int, b: int, alpha: int | None = None) -> int:
    return sub(g, b, a, alpha)


@rule("mul.Tensor", "mul.Scalar")
def mul(g: Graph, a: int, b: int) -> int:
    return g.map("mul", num(g, a), num(g, b))


@rule("div.Tensor", "div.Scalar")
def div(g: Graph, a: int, b: int) -> int:
    return g.map("div", num(g, a), num(g, b))


@rule("reciprocal.default")
def reciprocal(g: Graph, a: int) -> int:
    return g.map("div", g.const(1), a)


@rule("square.default")
def square(g: Graph, a: int) -> int:
    return g.map("mul", a, a)


@rule("pow.Tensor_Scalar")
def power(g: Graph, a: int, exponent: int) -> int:
    value = g.number(exponent)
    if value is None:
        raise Unsupported("a power whose exponent is only known at run time", needed="a fixed exponent")
    if value < 0:
        return g.map("rsqrt", a) if value == -0.5 else g.map("div", g.const(1), power(g, a, g.const(-value)))
    whole = math.floor(value)
    if value - whole not in (0.0, 0.5) or whole > MAX_UNROLLED_POWER:
        raise Unsupported(
            f"the power {value:g}", needed="a whole or half exponent of at most 8, or exp and log written out"
        )
    result = g.map("sqrt", a) if value - whole else None
    for _ in range(int(whole)):
        result = a if result is None else g.map("mul", result, a)
    return g.const(1) if result is None else result


@rule("pow.Scalar")
def exponential(g: Graph, base: int, a: int) -> int:
    value = g.number(base)
    if value is None or value <= 0:
        raise Unsupported("a power of a base that isn't a positive constant", needed="torch.exp")
    return g.map("exp", g.map("mul", a, g.const(math.log(value))))


@rule("round.default")
def round_half_even(g: Graph, a: int) -> int:
    whole = g.map("floor", a)
    rest, half = g.map("sub", a, whole), g.const(0.5)
    odd = g.map("ne", g.map("mul", whole, half), g.map("floor", g.map("mul", whole, half)))
    up = g.map("or", g.map("gt", rest, half), g.map("and", g.map("eq", rest, half), odd))
    return g.map("where", up, g.map("add", whole, g.const(1)), whole)


@rule("trunc.default")
def trunc(g: Graph, a: int) -> int:
    return g.map("where", g.map("lt", a, g.const(0)), g.map("ceil", a), g.map("floor", a))


@rule("exp2.default")
def exp2(g: Graph, a: int) -> int:
    return g.map("exp", g.map("mul", a, g.const(math.log(2))))


@rule("log2.default")
def log2(g: Graph, a: int) -> int:
    return g.map("mul", g.map("log", a), g.const(1 / math.log(2)))


@rule("where.self", "where.ScalarSelf", "where.ScalarOther", "where.Scalar")
def where(g: Graph, condition: int, a: int, b: int) -> int:
    return g.map("where", condition, num(g, a), num(g, b))


@rule("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(g: Graph, a: int, mask: int, value: int) -> int:
    return g.map("where", mask, value, a)


@rule("clamp.default", "clamp.Tensor")
def clamp(g: Graph, a: int, low: int | None = None, high: int | None = None) -> int:
    if low is not None:
        a = g.map("maximum", a, low)
    return a if high is None else g.map("minimum", a, high)


@rule("clamp_min.default", "clamp_min.Tensor")
def clamp_min(g: Graph, a: int, low: int) -> int:
    return g.map("maximum", a, low)


@rule("clamp_max.default", "clamp_max.Tensor")
def clamp_max(g: Graph, a: int, high: int) -> int:
    return g.map("minimum", a, high)


@rule("isnan.default")
def isnan(g: Graph, a: int) -> int:
    return g.map("ne", a, a)
