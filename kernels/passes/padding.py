"""Pad-value analysis: what the lanes beyond n_cols hold, so that reductions need a mask only where they must. Pure.

Every masked load fills its dead lanes with 0 (or -inf where that makes a maximum right); the value is followed through
the program. A sum needs its dead lanes to be 0, a maximum -inf.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product

from kernels.passes.functions import FUNCTIONS
from kernels.row_program import Cast, Const, Gather, Load, Map, Node, Reduce, RowProgram, Scan

IDENTITY = {"sum": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf, "argmax": -math.inf, "argmin": math.inf}
MAX_CHOICES = 4  # loads for which both fillings are tried
CHEAP = {"exp": math.exp, "sigmoid": lambda a: 1 / (1 + math.exp(-a)) if a > -700 else 0.0, "tanh": math.tanh}


@dataclass(frozen=True)
class Padding:
    """`fill`: what each load puts in dead lanes. `masked`: reductions whose argument needs an explicit mask."""

    fill: dict[int, float]
    masked: frozenset[int]


def choose_padding(program: RowProgram) -> Padding:
    """The filling that needs the fewest explicit masks; zeros when it doesn't matter."""
    axes = program.node_axes()
    cols = set(program.cols)
    loads = [i for i, n in enumerate(program.nodes) if isinstance(n, Load | Gather) and axes[i] & cols]
    reduces = [i for i, n in enumerate(program.nodes) if isinstance(n, Reduce | Scan)]
    floats = [i for i in loads if program.tensor(program.nodes[i].tensor).dtype in ("float", "float32")]  # type: ignore[union-attr]
    best: Padding | None = None
    for filling in product((0.0, -math.inf), repeat=min(len(floats), MAX_CHOICES)):
        fill = dict.fromkeys(loads, 0.0) | dict(zip(floats, filling, strict=False))
        values = _propagate(program, fill, axes, cols)
        masked = frozenset(
            i
            for i in reduces
            if values[program.nodes[i].arg] != IDENTITY[program.nodes[i].fn]  # type: ignore[union-attr]
            and axes[program.nodes[i].arg] & cols  # type: ignore[union-attr]
        )
        if best is None or len(masked) < len(best.masked):
            best = Padding(fill, masked)
    assert best is not None
    return best


def _propagate(
    program: RowProgram, fill: dict[int, float], axes: list[frozenset[str]], cols: set[str]
) -> list[float | None]:
    """The value of each node in a dead lane; None where it isn't known."""
    values: list[float | None] = []
    for index, node in enumerate(program.nodes):
        values.append(fill[index] if index in fill else _value(program, node, values, axes, cols))
    return values


def _value(
    program: RowProgram, node: Node, values: list[float | None], axes: list[frozenset[str]], cols: set[str]
) -> float | None:
    if isinstance(node, Const):
        return node.value
    if isinstance(node, Cast):
        return values[node.arg]
    if not isinstance(node, Map):
        return None
    args = [values[a] for a in node.args]
    if node.fn == "mul" and 0.0 in args:
        other = args[1] if args[0] == 0.0 else args[0]
        other_id = node.args[1] if args[0] == 0.0 else node.args[0]
        # 0 times a value of the row: 0, unless that value is inf or NaN, and then the whole row is already.
        finite = other is not None and math.isfinite(other)
        return 0.0 if finite or (other is None and not axes[other_id] & cols) else None
    if node.fn == "where":
        if args[1] is not None and args[1] == args[2]:
            return args[1]
        return None
    if node.fn == "div" and args[0] == 0.0 and args[1] is None and not axes[node.args[1]] & cols:
        return 0.0
    if node.fn in ("add", "sub") and args[0] == -math.inf and not axes[node.args[1]] & cols:
        return -math.inf  # -inf plus a row value that is finite
    if any(a is None for a in args):
        return None
    if node.fn == "exp" and args[0] == -math.inf:
        return 0.0
    fold = FUNCTIONS[node.fn].fold or CHEAP.get(node.fn)
    if node.fn in ("maximum", "minimum"):
        fold = max if node.fn == "maximum" else min
    if fold is None:
        return None
    try:
        result = fold(*args)  # type: ignore[arg-type]
    except (ValueError, OverflowError):
        return None
    return None if result != result else result  # noqa: PLR0124 - nan
