"""A typed expression ("x * sigmoid(1.702 * x)") -> reference source. Parsed with ast against an allow-list; never executed.

Accepted: + - * / **, comparisons inside where() or `a if c else b`, the functions of `expression_functions`, numbers and pi,
and an optional left side that names the op, its arguments and their defaults: "snake(x, alpha=1.0) = x + sin(alpha*x)**2/alpha".
Unicode mathematics (σ, √, ², ·, ×, π, Φ, |x|), `^` for powers and "2x" for products are understood.
"""

from __future__ import annotations

import ast
import re

from pydantic import Field

from agents.dev.expression_roles import Roles
from agents.dev.expression_syntax import (
    MAX_CHARACTERS,
    called_function,
    normalised,
    parse,
    parse_python,
    split_sides,
)
from agents.dev.naming import is_operation_name
from agents.dev.refused import Mistake
from kernels.op_spec import Frozen, OpSpec
from kernels.syntax import syntax_tree


class Expression(Frozen):
    """A parsed expression."""

    name: str | None = Field(description="the op's name, when the left side gives one")
    op: OpSpec
    body: str = Field(description="the expression, normalised, in this module's own language")
    questions: tuple[str, ...] = ()


def looks_like_expression(text: str) -> bool:
    """Whether to treat `text` as an expression: it has a call or an operator, and parses as one Python expression."""
    if len(text) > MAX_CHARACTERS:
        return False
    try:
        tree = parse_python(text).tree
    except Mistake:
        # An expression with a slip in it is answered as an expression, words are not.
        return bool(re.search(r"\w\s*\(|[*/^²³·√]", text)) and not re.search(
            r"[A-Za-z]{2,}\s+[A-Za-z]{2,}\s+[A-Za-z]{2,}", text
        )
    return not isinstance(
        tree, ast.Name | ast.Attribute | ast.Constant | ast.Tuple | ast.List | ast.Set | ast.Dict
    )


def parse_expression(text: str, name: str | None = None) -> Expression:
    """Parse an expression. `name` names the op unless the left side does. Raises Mistake."""
    parsed = parse(text)
    roles = Roles(parsed.tree, parsed.parameters)
    chosen = parsed.name or name
    entry = chosen or _descriptive_name(parsed.tree)
    body = ast.fix_missing_locations(_ToTorch(roles.tensor_names).visit(parsed.tree))
    op = OpSpec(
        name=entry,
        entry=entry,
        source=_source(entry, roles, ast.unparse(body)),
        tensors=tuple(roles.tensors),
        scalars=tuple(roles.scalars),
        summary=f"y = {text.strip()}" if "=" not in text.replace("==", "") else text.strip(),
    )
    questions = list(roles.questions)
    if chosen is None:
        questions.insert(
            0,
            f"The expression has no name; `{entry}` was made from its functions. Change it with `operation_name=…`.",
        )
    return Expression(name=chosen, op=op, body=split_sides(normalised(text))[1], questions=tuple(questions))


class _ToTorch(ast.NodeTransformer):
    """Rewrites the expression into PyTorch calls; scalars stay Python arithmetic."""

    def __init__(self, tensor_names: set[str]):
        self.tensor_names = tensor_names

    def _is_tensor(self, node: ast.expr) -> bool:
        return any(isinstance(part, ast.Name) and part.id in self.tensor_names for part in ast.walk(node))

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return _expression("math.pi") if node.id == "pi" else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:  # noqa: ARG002
        return _expression("math.pi")

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        return self.visit(
            ast.Call(func=ast.Name("where"), args=[node.test, node.body, node.orelse], keywords=[])
        )

    def visit_Call(self, node: ast.Call) -> ast.expr:
        name, function = called_function(node)
        is_tensor = [self._is_tensor(argument) for argument in node.args]
        arguments = [self.visit(argument) for argument in node.args]
        keywords = {key.arg: self.visit(key.value) for key in node.keywords if key.arg}
        return function.torch_call(name, arguments, is_tensor, keywords)


def _expression(source: str) -> ast.expr:
    return syntax_tree(source, mode="eval").body


def _descriptive_name(tree: ast.expr) -> str:
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    calls.sort(key=lambda node: (node.lineno, node.col_offset))
    names = list(dict.fromkeys(called_function(node)[1].name for node in calls))[:3]
    name = "_".join([*names, "expression"]) if len(names) < 2 else "_".join(names)
    return name if is_operation_name(name) else "expression"


def _source(entry: str, roles: Roles, body: str) -> str:
    parameters = [f"{tensor.name}: torch.Tensor" for tensor in roles.tensors]
    parameters += [
        f"{scalar.name}: {type(scalar.default).__name__} = {scalar.default!r}" for scalar in roles.scalars
    ]
    imports = ["import math\n"] if "math." in body else []
    imports.append("import torch\n")
    if "F." in body:
        imports.append("import torch.nn.functional as F\n")
    return f"{''.join(imports)}\n\ndef {entry}({', '.join(parameters)}) -> torch.Tensor:\n    return {body}\n"
