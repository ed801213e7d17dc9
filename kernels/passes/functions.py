"""The element-wise functions of a row program: arity, cost, and what they do to numbers. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Function:
    """One function. `fold` computes it on numbers; None where fp32 and Python could disagree."""

    arity: int
    fold: Callable[..., float] | None = None
    transcendental: bool = False
    boolean: bool = False
    takes_booleans: bool = False


def _divide(a: float, b: float) -> float:
    if b == 0.0:
        return math.nan if a == 0.0 or a != a else math.copysign(math.inf, a) * math.copysign(1.0, b)  # noqa: PLR0124
    return a / b


FUNCTIONS: dict[str, Function] = {
    "add": Function(2, lambda a, b: a + b),
    "sub": Function(2, lambda a, b: a - b),
    "mul": Function(2, lambda a, b: a * b),
    "div": Function(2, _divide),
    "neg": Function(1, lambda a: -a),
    "abs": Function(1, abs),
    "maximum": Function(2),  # NaN wins, as in torch
    "minimum": Function(2),
    "exp": Function(1, transcendental=True),
    "log": Function(1, transcendental=True),
    "log1p": Function(1, transcendental=True),
    "expm1": Function(1, transcendental=True),
    "sqrt": Function(1, lambda a: math.sqrt(a) if a >= 0 else math.nan),
    "rsqrt": Function(1, lambda a: 1.0 / math.sqrt(a) if a > 0 else math.inf),
    "sigmoid": Function(1, transcendental=True),
    "tanh": Function(1, transcendental=True),
    "erf": Function(1, transcendental=True),
    "sin": Function(1, transcendental=True),
    "cos": Function(1, transcendental=True),
    "atan": Function(1, transcendental=True),
    "floor": Function(1),
    "ceil": Function(1),
    "sign": Function(1),
    "lt": Function(2, boolean=True),
    "le": Function(2, boolean=True),
    "gt": Function(2, boolean=True),
    "ge": Function(2, boolean=True),
    "eq": Function(2, boolean=True),
    "ne": Function(2, boolean=True),
    "and": Function(2, boolean=True, takes_booleans=True),
    "or": Function(2, boolean=True, takes_booleans=True),
    "not": Function(1, boolean=True, takes_booleans=True),
    "flip": Function(2),  # value, coordinate of the axis: only as part of a reversed scan
    "scatter": Function(2),  # value, coordinate: added up where the coordinate says; only as a root
    "where": Function(3),  # condition, then, otherwise
    "float": Function(1, takes_booleans=True),  # a boolean or an integer as a number
}
