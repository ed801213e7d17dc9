"""Format-preserving edits of existing Python files: add an import, an entry of a list, a function. Pure; after LibCST.

Every edit is idempotent, leaves every other byte of the file alone, and raises AnchorMissing when the place that it
looks for isn't there.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

import libcst as cst
from libcst.helpers import get_full_name_for_node

from kernels.syntax import syntax_tree


class AnchorMissing(Exception):  # noqa: N818 - names what the file lacks
    """A file lacks the place an edit needs. The message names the file and what was looked for."""

    def __init__(self, path: str, looked_for: str):
        super().__init__(f"{path} has no {looked_for}, so I can't tell where the new export goes.")
        self.path, self.looked_for = path, looked_for


def add_import(
    source: str,
    module: str,
    name: str,
    *,
    path: str,
    noqa: bool = False,
    line_length: int = 120,
    block: str | None = None,
) -> str:
    """Add `from module import name`, one line a name, at its sorted place among the imports of the same package.

    `block`: put it inside the top-level `if <block>:` (e.g. "TYPE_CHECKING") instead of at module level.
    Raises AnchorMissing when there is no import of that package to stand beside, or no such block.
    """
    if block is None:
        head, rest = _through_imports(source, path)
        tree = _parse(head, path)
        with_import = _with_import(tree.body, module, name, path, noqa=noqa, line_length=line_length)
        return tree.with_changes(body=with_import).code + rest
    tree = _parse(source, path)
    body = list(tree.body)
    for index, statement in enumerate(body):
        if (
            isinstance(statement, cst.If)
            and get_full_name_for_node(statement.test) == block
            and isinstance(statement.body, cst.IndentedBlock)
        ):
            inner = statement.body.with_changes(
                body=_with_import(statement.body.body, module, name, path, noqa=noqa, line_length=line_length)
            )
            body[index] = statement.with_changes(body=inner)
            return tree.with_changes(body=body).code
    raise AnchorMissing(path, f"`if {block}:` block")


def _through_imports(source: str, path: str) -> tuple[str, str]:
    """The text up to the end of the last top-level import, and the rest, which LibCST then needn't parse (seconds in a test file)."""
    try:
        statements = syntax_tree(source).body
    except SyntaxError as error:
        raise AnchorMissing(path, f"valid Python (line {error.lineno})") from error
    ends = [node.end_lineno or 0 for node in statements if isinstance(node, ast.Import | ast.ImportFrom)]
    lines = source.splitlines(keepends=True)
    return "".join(lines[: max(ends, default=0)]), "".join(lines[max(ends, default=0) :])


def _with_import(
    statements: Sequence[cst.BaseStatement],
    module: str,
    name: str,
    path: str,
    *,
    noqa: bool,
    line_length: int,
) -> list[cst.BaseStatement]:
    body = list(statements)
    package = module.split(".", 1)[0]
    siblings = [
        (index, found)
        for index, statement in enumerate(body)
        if (found := _imported(statement)) and found[0].split(".", 1)[0] == package
    ]
    if (module, name) in (found for _, found in siblings):
        return body
    if not siblings:
        raise AnchorMissing(path, f"import from {package}")
    key = _import_key(module, name)
    after = [index for index, found in siblings if _import_key(*found) < key]
    new = cst.parse_statement(_import_line(module, name, noqa, line_length))
    if after:
        body.insert(after[-1] + 1, new)
        return body
    first = siblings[0][0]
    # the comment lines and blank lines above the block stay above it
    lines = body[first].leading_lines  # type: ignore[attr-defined]
    body[first] = body[first].with_changes(leading_lines=())
    body.insert(first, new.with_changes(leading_lines=lines))
    return body


def _imported(statement: cst.BaseStatement) -> tuple[str, str] | None:
    """(module, name) of a one-name `from module import name` statement."""
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return None
    node = statement.body[0]
    if (
        not isinstance(node, cst.ImportFrom)
        or node.relative
        or node.module is None
        or isinstance(node.names, cst.ImportStar)
    ):
        return None
    if len(node.names) != 1:
        return None
    return get_full_name_for_node(node.module) or "", get_full_name_for_node(node.names[0].name) or ""


def _import_key(module: str, name: str) -> tuple[object, ...]:
    """isort's order with force-single-line: module, then constants, classes, the rest; digits in names count as numbers."""
    kind = 0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2
    return (_natural(module), kind, _natural(name), name)


def _natural(text: str) -> tuple[tuple[int, int, str], ...]:
    return tuple(
        (0, int(part), "") if part.isdigit() else (1, 0, part)
        for part in re.split(r"(\d+)", text.lower())
        if part
    )


def _import_line(module: str, name: str, noqa: bool, line_length: int) -> str:
    comment = "  # noqa: F401" if noqa else ""
    line = f"from {module} import {name}{comment}"
    if len(line) <= line_length:
        return line + "\n"
    return f"from {module} import (\n    {name},{comment}\n)\n"


def add_to_collection(source: str, collection: str, value: str, *, path: str) -> str:
    """Add a string to the list or set literal assigned to `collection` (e.g. "__all__"), wherever it is assigned first.

    In a sorted collection it goes to its sorted place; in an unsorted one to the place that leaves the fewest pairs out of order.
    Raises AnchorMissing when no such literal is assigned.
    """
    tree = _parse(source, path)
    adder = _CollectionAdder(collection, value)
    changed = tree.visit(adder)
    if not adder.found:
        raise AnchorMissing(path, f"list or set literal named `{collection}`")
    return changed.code


class _CollectionAdder(cst.CSTTransformer):
    def __init__(self, collection: str, value: str):
        super().__init__()
        self.collection, self.value, self.found = collection, value, False

    def leave_Assign(self, original_node: cst.Assign, updated_node: cst.Assign) -> cst.Assign:  # noqa: N802 - LibCST's name
        named = any(
            get_full_name_for_node(target.target) == self.collection for target in original_node.targets
        )
        literal = updated_node.value
        if self.found or not named or not isinstance(literal, cst.List | cst.Set):
            return updated_node
        self.found = True
        return updated_node.with_changes(value=_with_element(literal, self.value))


def _with_element(literal: cst.List | cst.Set, value: str) -> cst.List | cst.Set:
    elements = list(literal.elements)
    texts = [str(e.value.evaluated_value) if isinstance(e.value, cst.SimpleString) else "" for e in elements]
    if value in texts:
        return literal
    new = cst.Element(cst.SimpleString(f'"{value}"'))
    if not elements:
        return literal.with_changes(elements=[new])
    index = _place(texts, value)
    separator = _separator(literal)
    if index < len(elements):
        return literal.with_changes(
            elements=[*elements[:index], new.with_changes(comma=separator), *elements[index:]]
        )
    last = elements[-1]
    if isinstance(last.comma, cst.Comma):
        new = new.with_changes(comma=cst.Comma())
    literal, separator = _with_comment_kept(literal, separator)
    return literal.with_changes(elements=[*elements[:-1], last.with_changes(comma=separator), new])


def _with_comment_kept(
    literal: cst.List | cst.Set, separator: cst.Comma
) -> tuple[cst.List | cst.Set, cst.Comma]:
    """A comment behind the last element belongs to the closing bracket in LibCST; it goes with the element instead."""
    side = "rbracket" if isinstance(literal, cst.List) else "rbrace"
    bracket = getattr(literal, side)
    before, between = bracket.whitespace_before, separator.whitespace_after
    if (
        not isinstance(before, cst.ParenthesizedWhitespace)
        or not isinstance(between, cst.ParenthesizedWhitespace)
        or not before.first_line.comment
    ):
        return literal, separator
    bracket = bracket.with_changes(whitespace_before=before.with_changes(first_line=cst.TrailingWhitespace()))
    return literal.with_changes(**{side: bracket}), separator.with_changes(
        whitespace_after=between.with_changes(first_line=before.first_line)
    )


def _separator(literal: cst.List | cst.Set) -> cst.Comma:
    """What stands between two elements: as between the first two, or the line break after the opening bracket."""
    first = literal.elements[0].comma
    if len(literal.elements) > 1 and isinstance(first, cst.Comma):
        between = first.whitespace_after
        if isinstance(between, cst.ParenthesizedWhitespace):
            return first.with_changes(
                whitespace_after=between.with_changes(first_line=cst.TrailingWhitespace(), empty_lines=())
            )
        return first
    bracket = literal.lbracket if isinstance(literal, cst.List) else literal.lbrace
    if isinstance(bracket.whitespace_after, cst.ParenthesizedWhitespace):
        return cst.Comma(
            whitespace_after=bracket.whitespace_after.with_changes(first_line=cst.TrailingWhitespace())
        )
    return cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))


def _place(texts: Sequence[str], value: str) -> int:
    """Index that leaves the fewest pairs out of order; of several, the last."""
    key = value.lower()
    costs = [
        sum(text.lower() > key for text in texts[:index]) + sum(text.lower() < key for text in texts[index:])
        for index in range(len(texts) + 1)
    ]
    return max(index for index, cost in enumerate(costs) if cost == min(costs))


def add_function(source: str, code: str, *, path: str, after: Sequence[str] = ()) -> str:
    """Add a top-level function: below the first of `after` that the file has, else at its end; two blank lines between.

    Nothing changes when the file already has a function of that name. Raises AnchorMissing when the file has no function at all.
    """
    tree = _parse(source, path)
    new = cst.parse_statement(code.strip("\n") + "\n")
    if not isinstance(new, cst.FunctionDef):
        raise TypeError("add_function takes the code of one function")
    functions = {
        node.name.value: index for index, node in enumerate(tree.body) if isinstance(node, cst.FunctionDef)
    }
    if new.name.value in functions:
        return source
    if not functions:
        raise AnchorMissing(path, "function to stand beside")
    relative = next((functions[name] for name in after if name in functions), len(tree.body) - 1)
    blank = cst.EmptyLine(indent=False, whitespace=cst.SimpleWhitespace(""))
    body = list(tree.body)
    body.insert(relative + 1, new.with_changes(leading_lines=(blank, blank)))
    return tree.with_changes(body=body).code


def _parse(source: str, path: str) -> cst.Module:
    try:
        return cst.parse_module(source)
    except cst.ParserSyntaxError as error:
        raise AnchorMissing(path, f"valid Python (line {error.raw_line})") from error
