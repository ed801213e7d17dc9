"""Exponentials of what the row's largest was subtracted from, as in a softmax: which may be written as powers of two. Pure.

A GPU computes powers of two. `tl.exp` scales its argument and keeps results below 2**-126, which takes three instructions
more than `tl.exp2` after the same scaling; where exponentials are what a loop over the row waits for, that is a quarter of
its time. Such results are nothing beside the row's largest, which is about 1, so that 0 serves for them, unless a logarithm
or a root reads them. Beside a number that somebody gives, all of a row may be that small, and its sum may matter.
"""

from __future__ import annotations

from kernels.row_program import Load, Map, Reduce, RowProgram, operands

# What tells a number below 2**-126 from 0.
SEES_SMALL = {"log", "sqrt", "rsqrt"}


def powers_of_two(program: RowProgram) -> frozenset[int]:
    """The nodes exp(value of a column - the row's largest, or more) that no function which sees the smallest numbers reads."""
    found = {
        index
        for index, node in enumerate(program.nodes)
        if isinstance(node, Map) and node.fn == "exp" and _is_relative(program, node.args[0])
    }
    return frozenset(found - _read_by(program, SEES_SMALL))


def _is_relative(program: RowProgram, node: int) -> bool:
    axes, cols = program.node_axes(), set(program.cols)
    shifted = program.nodes[node]
    if not isinstance(shifted, Map) or shifted.fn != "sub":
        return False
    value, number = shifted.args
    return bool(axes[value] & cols) and not axes[number] & cols and _is_statistic(program, number)


def _is_statistic(program: RowProgram, node: int) -> bool:
    """Whether a number is the row's largest, the logarithm of its sum, their total, or what the forward has kept of these."""
    found = program.nodes[node]
    if isinstance(found, Reduce):
        return found.fn == "max"
    if isinstance(found, Load):
        return program.tensor(found.tensor).kind == "saved"
    if isinstance(found, Map) and found.fn == "log":
        total = program.nodes[found.args[0]]
        return isinstance(total, Reduce) and total.fn == "sum"
    return isinstance(found, Map) and found.fn == "add" and all(_is_statistic(program, a) for a in found.args)


def _read_by(program: RowProgram, functions: set[str]) -> set[int]:
    """The nodes that one of these functions reads, be it through other functions of the same element."""
    read: set[int] = set()
    for index in reversed(range(len(program.nodes))):
        node = program.nodes[index]
        if isinstance(node, Map) and (node.fn in functions or index in read):
            read.update(operands(node))
    return read
