"""Whether a typed expression is a known op: both are compared by value at fixed points, in Python floats. Pure."""

from __future__ import annotations

import functools
import itertools
import math

from agents.catalog.known_op import KnownOp
from agents.catalog.lookup import catalog
from agents.dev.expression import Expression, parse_expression
from agents.dev.expression_value import evaluate
from agents.dev.refused import Mistake

POINTS = (-7.3, -4.1, -2.9, -1.7, -0.61, -0.013, 0.0, 0.29, 0.83, 1.9, 3.3, 6.7, 8.9)
TOLERANCE = 1e-9  # the same expression in another order of operations differs by a few 1e-16; softplus and its expansion too


def recognise(parsed: Expression) -> tuple[KnownOp, tuple[str, ...]] | None:
    """The known op of the same value at every probe point, with the tensors in its order; None when there is none."""
    tensors = tuple(tensor.name for tensor in parsed.op.tensors)
    if len(tensors) > 2 or any(len(tensor.shape) != 2 for tensor in parsed.op.tensors):
        return None
    scalars = {scalar.name: scalar.default for scalar in parsed.op.scalars}
    for order in dict.fromkeys((tensors, tensors[::-1])):
        mine = _values(parsed.body, order, scalars)
        if mine is None:
            return None
        for known, theirs in _known_values():
            if _equal(mine, theirs):
                return known, order
    return None


@functools.cache
def _known_values() -> list[tuple[KnownOp, list[float]]]:
    found = []
    for known in catalog().ops.values():
        if known.expression is None:
            continue
        parsed = parse_expression(known.expression, known.op.name)
        scalars = {scalar.name: scalar.default for scalar in parsed.op.scalars}
        values = _values(parsed.body, tuple(tensor.name for tensor in parsed.op.tensors), scalars)
        if values is not None:
            found.append((known, values))
    return found


def _values(
    body: str, tensors: tuple[str, ...], scalars: dict[str, float | int | bool | str]
) -> list[float] | None:
    numbers = {name: float(value) for name, value in scalars.items() if not isinstance(value, str)}
    values = []
    for point in itertools.product(POINTS, repeat=len(tensors)):
        try:
            values.append(evaluate(body, {**numbers, **dict(zip(tensors, point, strict=True))}))
        except (ArithmeticError, ValueError):
            # outside the domain, e.g. log(-1); an expression with a row operation has no value at all
            values.append(math.nan)
        except Mistake:
            return None
    return values if any(math.isfinite(value) for value in values) else None


def _equal(left: list[float], right: list[float]) -> bool:
    same_size = len(left) == len(right)
    return same_size and all(
        (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
        for a, b in zip(left, right, strict=False)
    )
