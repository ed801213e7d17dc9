"""Exponentials of what a row's own number is subtracted from, as in a softmax: which may be written as powers of two. Pure.

A GPU computes powers of two. `tl.exp` scales its argument and keeps results below 2**-126, which takes three instructions
more than `tl.exp2` after the same scaling; where exponentials are what a loop over the row waits for, that is a quarter of
its time. Such results are nothing beside the row's largest, so that 0 serves for them, unless a logarithm reads them.
"""

from __future__ import annotations

from kernels.row_program import Map, RowProgram, operands

# What tells a number below 2**-126 from 0.
SEES_SMALL = {"log", "sqrt", "rsqrt"}


def powers_of_two(program: RowProgram) -> frozenset[int]:
    """The nodes exp(value of a column - number of its row) that no function which sees the smallest numbers reads."""
    axes = program.node_axes()
    cols = set(program.cols)
    found = {
        index
        for index, node in enumerate(program.nodes)
        if isinstance(node, Map) and node.fn == "exp" and _is_relative(program, node.args[0], axes, cols)
    }
    return frozenset(found - _read_by(program, SEES_SMALL))


def _is_relative(program: RowProgram, node: int, axes: list[frozenset[str]], cols: set[str]) -> bool:
    shifted = program.nodes[node]
    if not isinstance(shifted, Map) or shifted.fn != "sub":
        return False
    value, number = shifted.args
    return bool(axes[value] & cols) and bool(axes[number]) and not axes[number] & cols


def _read_by(program: RowProgram, functions: set[str]) -> set[int]:
    """The nodes that one of these functions reads, be it through other functions of the same element."""
    read: set[int] = set()
    for index in reversed(range(len(program.nodes))):
        node = program.nodes[index]
        if isinstance(node, Map) and (node.fn in functions or index in read):
            read.update(operands(node))
    return read
