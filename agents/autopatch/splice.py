"""Insert text into a file at a line, and find that line in its syntax tree: everything else stays byte for byte. Pure."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from agents.conventions.edits import AnchorMissing
from kernels.syntax import syntax_tree


def insert_after(text: str, line: int, block: str) -> str:
    """`block` (whole lines) below the 1-based `line`; 0 is the top of the file."""
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    if line and lines[line - 1].endswith("\r\n"):
        block = block.replace("\n", "\r\n")  # Liger's README has such lines
    return "".join([*lines[:line], block, *lines[line:]])


def replace_lines(text: str, first: int, last: int, block: str) -> str:
    """The 1-based lines from `first` to `last` replaced by `block`."""
    lines = text.splitlines(keepends=True)
    return "".join([*lines[: first - 1], block, *lines[last:]])


def parse(text: str, path: str) -> ast.Module:
    """The file's tree. Raises AnchorMissing when it is not valid Python."""
    try:
        return syntax_tree(text)
    except SyntaxError as error:
        raise AnchorMissing(path, f"valid Python (line {error.lineno})") from error


def end_of(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


def start_of(node: ast.stmt) -> int:
    """First line of a statement, its decorators included."""
    decorators = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def functions(tree: ast.Module, chosen: Callable[[str], bool]) -> list[ast.FunctionDef]:
    return [node for node in tree.body if isinstance(node, ast.FunctionDef) and chosen(node.name)]


def place(names: Sequence[str], value: str) -> int:
    """Index at which `value` leaves the fewest pairs out of order; of several, the last."""
    key = value.lower()
    costs = [
        sum(name.lower() > key for name in names[:index]) + sum(name.lower() < key for name in names[index:])
        for index in range(len(names) + 1)
    ]
    return max(index for index, cost in enumerate(costs) if cost == min(costs))


def relative(names: Sequence[str], value: str, shared: int = 4) -> str | None:
    """The name with the longest common beginning, of at least `shared` characters: the same family of models."""

    def common(name: str) -> int:
        return next(
            (i for i, (a, b) in enumerate(zip(name, value, strict=False)) if a != b),
            min(len(name), len(value)),
        )

    best = max(names, key=common, default=None)
    return best if best is not None and common(best) >= shared else None
