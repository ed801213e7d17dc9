"""Pad-value analysis: what the lanes beyond n_cols hold, so that reductions need a mask only where they must. Pure.

Every masked load fills its dead lanes with 0 (or -inf where that makes a maximum right); the value is followed through
the program. A sum needs its dead lanes to be 0, a maximum -inf.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from itertools import product

from kernels.passes.functions import FUNCTIONS
from kernels.row_program import SPLITS, Cast, Const, Gather, Load, Map, Node, Reduce, RowProgram, Scan

IDENTITY = {
    "sum": 0.0,
    "prod": 1.0,
    "max": -math.inf,
    "min": math.inf,
    "argmax": -math.inf,
    "argmin": math.inf,
}
MAX_CHOICES = 4  # loads for which both fillings are tried
COMPARE = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
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
    return best or Padding({}, frozenset())


def parts_fill(program: RowProgram) -> dict[int, float]:
    """What the loads of a split row's parts put in dead lanes: what changes nothing where they are brought together."""
    fill: dict[int, float] = {}
    for node in program.nodes:
        if isinstance(node, Reduce) and node.axes == (SPLITS,):
            found = program.nodes[node.arg]
            if isinstance(found, Load):
                fill[node.arg] = IDENTITY[node.fn]
            elif isinstance(found, Map):
                fill.setdefault(found.args[0], 0.0)
    return fill


class _OfTheRow(float):
    """Not known, but made of the row's values by sums and products alone: as finite as the row is."""


OF_THE_ROW = _OfTheRow("nan")
LINEAR = {"add", "sub", "mul", "neg", "abs"}
Lane = float | None  # a number, OF_THE_ROW, or None: anything


def _propagate(
    program: RowProgram, fill: dict[int, float], axes: list[frozenset[str]], cols: set[str]
) -> list[Lane]:
    """The value of each node in a dead lane."""
    values: list[Lane] = []
    for index, node in enumerate(program.nodes):
        if index in fill:
            values.append(fill[index])
        elif not axes[index] & cols and not isinstance(node, Const):
            values.append(OF_THE_ROW)
        else:
            values.append(_value(node, values))
    return values


def _known(lane: Lane) -> bool:
    return lane is not None and lane is not OF_THE_ROW


def _value(node: Node, values: list[Lane]) -> Lane:
    if isinstance(node, Const):
        return node.value
    if isinstance(node, Cast):
        return values[node.arg]
    if not isinstance(node, Map):
        return None
    args = [values[a] for a in node.args]
    if node.fn == "where" and _known(args[0]):
        return args[1] if args[0] else args[2]
    if all(_known(a) for a in args):
        return _folded(node.fn, [float(a) for a in args])  # type: ignore[arg-type]
    if node.fn in ("mul", "div") and args[0] == 0.0 and args[1] is OF_THE_ROW:
        # 0 times a value of the row is 0, unless that value is inf or NaN, and then the whole row is already.
        return 0.0
    if node.fn == "mul" and args[1] == 0.0 and args[0] is OF_THE_ROW:
        return 0.0
    if node.fn == "where" and args[1] is not None and args[1] == args[2]:
        return args[1]
    if node.fn in ("add", "sub") and args[0] == -math.inf and args[1] is OF_THE_ROW:
        return -math.inf
    finite = all(a is OF_THE_ROW or (a is not None and math.isfinite(a)) for a in args)
    return OF_THE_ROW if node.fn in LINEAR and finite else None


def _folded(fn: str, args: list[float]) -> Lane:
    if fn == "exp" and args[0] == -math.inf:
        return 0.0
    if fn in ("maximum", "minimum"):
        return max(args) if fn == "maximum" else min(args)
    if fn in COMPARE:
        return float(COMPARE[fn](*args))
    fold = FUNCTIONS[fn].fold or CHEAP.get(fn)
    if fold is None:
        return None
    try:
        result = fold(*args)
    except (ValueError, OverflowError):
        return None
    return None if math.isnan(result) else result
