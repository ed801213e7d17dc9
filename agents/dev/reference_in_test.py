"""An op's reference as a generated test shows it: imports apart, entry renamed. Pure; the source is data here."""

from __future__ import annotations

import ast
from dataclasses import dataclass

import libcst as cst

from kernels.op_spec import OpSpec
from kernels.syntax import syntax_tree


@dataclass(frozen=True)
class RenamedReference:
    """`future` and `imports` are whole lines; `required` are the constructor's arguments without a default, `accepted` all of them."""

    entry: str
    future: tuple[str, ...]
    imports: tuple[str, ...]
    code: str
    required: tuple[str, ...] = ()
    accepted: tuple[str, ...] = ()


def reference_in_test(op: OpSpec, entry: str) -> RenamedReference:
    """Split the reference's imports from its code and call its entry `entry`. `import torch` is left out: every test has it.

    Raises ValueError when the source does not parse.
    """
    try:
        tree = cst.parse_module(op.source)
    except cst.ParserSyntaxError as error:
        raise ValueError(f"the reference does not parse: line {error.raw_line}") from error
    renamed = tree.visit(_Rename(op.entry, entry))
    body: list[cst.BaseStatement] = []
    future: list[str] = []
    imports: list[str] = []
    for statement in renamed.body:
        if isinstance(statement, cst.SimpleStatementLine) and isinstance(
            statement.body[0], cst.Import | cst.ImportFrom
        ):
            line = tree.code_for_node(statement.with_changes(leading_lines=())).strip()
            (future if line.startswith("from __future__") else imports).append(line)
        else:
            body.append(statement)
    required, accepted = _constructor(op)
    return RenamedReference(
        entry=entry,
        future=tuple(future),
        imports=tuple(line for line in dict.fromkeys(imports) if line != "import torch"),
        code=tree.with_changes(body=body, header=(), footer=()).code.strip(),
        required=required,
        accepted=accepted,
    )


class _Rename(cst.CSTTransformer):
    """Renames a module-level name where it is defined and read; attributes, keyword arguments and imported names keep theirs."""

    def __init__(self, old: str, new: str):
        super().__init__()
        self.old, self.new = old, new

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:  # noqa: N802 - LibCST's name
        return updated_node.with_changes(value=self.new) if original_node.value == self.old else updated_node

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.Attribute:  # noqa: N802 - LibCST's name
        return updated_node.with_changes(attr=original_node.attr)

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:  # noqa: N802 - LibCST's name
        return updated_node.with_changes(keyword=original_node.keyword)

    def visit_ImportAlias(self, node: cst.ImportAlias) -> bool:  # noqa: ARG002, N802 - LibCST's signature
        return False


def _constructor(op: OpSpec) -> tuple[tuple[str, ...], tuple[str, ...]]:
    for node in syntax_tree(op.source).body:
        if not isinstance(node, ast.ClassDef) or node.name != op.entry:
            continue
        for item in node.body:
            if isinstance(item, ast.FunctionDef) and item.name == "__init__":
                names = [argument.arg for argument in (*item.args.posonlyargs, *item.args.args)][1:]
                required = names[: len(names) - len(item.args.defaults)]
                return tuple(required), (*names, *(argument.arg for argument in item.args.kwonlyargs))
    return (), ()
