"""The language of typed expressions: spelling, parsing, and the allow-list. Nothing outside it gets past `parse`. Pure."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from agents.dev.expression_functions import FUNCTIONS, Function
from agents.dev.naming import is_operation_name
from agents.dev.refused import Mistake
from kernels.syntax import syntax_tree

MAX_CHARACTERS = 2_000
MAX_NODES = 400

_GENERIC_LEFT = {"f", "y", "out", "output", "result", "act", "g", "h"}
# fmt: off
_SPELLING = {
    "^": "**", "·": "*", "×": "*", "⊙": "*", "∘": "*", "÷": "/", "−": "-", "–": "-", "≥": ">=", "≤": "<=",
    "²": "**2", "³": "**3", "⁴": "**4", "½": "0.5", "¼": "0.25", "\u2009": " ", "\u00a0": " ",
    "σ": "sigmoid", "√": "sqrt", "Φ": "normal_cdf", "π": "pi",
    "α": "alpha", "β": "beta", "γ": "gamma", "ε": "eps", "λ": "lambda_", "μ": "mu", "τ": "tau",
}
# fmt: on
_TRANSLATE = str.maketrans(_SPELLING)
MODULES = {"torch", "F", "math", "np", "nn", "functional", "jnp", "tl"}
LARGEST = 1e30  # constants beyond it overflow float32 soon
_COMPARISONS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)
_BINARY = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow)


@dataclass(frozen=True)
class Parsed:
    """An expression inside the language: a name and parameters from the left side, when there is one, and the tree."""

    name: str | None
    parameters: list[tuple[str, float | None]]
    tree: ast.expr


def parse(text: str) -> Parsed:
    """Parse and check an expression. Raises Mistake."""
    parsed = parse_python(text)
    _Allowed().visit(parsed.tree)
    return parsed


def normalised(text: str) -> str:
    """The expression in Python's spelling."""
    text = re.sub(r"(?<=[\w)])\s*(?=[σ√Φ])", "*", text.strip().strip("`"))  # xσ(x), x Φ(x)
    text = re.sub(r"\|([^|]+)\|", r"abs(\1)", text.translate(_TRANSLATE))
    # "2x" and "3(x+1)" are products; 1e-5 and names that end in a digit are not.
    return re.sub(r"(?<![\w.])(\d+\.?\d*)(?=(?!e[+-]?\d)[A-Za-z_(])", r"\1*", text)


def parse_python(text: str) -> Parsed:
    """Parse an expression that may hold anything that Python can: for telling what a text is. Raises Mistake."""
    if len(text) > MAX_CHARACTERS:
        raise Mistake(
            f"The expression has {len(text):,} characters; at most {MAX_CHARACTERS:,} are read. Use a ```python block instead."
        )
    left, right = split_sides(normalised(text))
    try:
        tree = syntax_tree(right, mode="eval").body
        head = syntax_tree(left, mode="eval").body if left else None
    except SyntaxError as error:
        raise Mistake(
            f"The expression does not parse: {error.msg}.",
            where=f"column {error.offset}: {right.strip()[:120]}",
        ) from error
    except (RecursionError, MemoryError, ValueError) as error:
        raise Mistake("The expression is nested too deeply. Use a ```python block instead.") from error
    if sum(1 for _ in ast.walk(tree)) > MAX_NODES:
        raise Mistake(f"The expression has more than {MAX_NODES} parts. Use a ```python block instead.")
    name, parameters = _left_side(head)
    return Parsed(name, parameters, tree)


def split_sides(text: str) -> tuple[str, str]:
    """(left, right) of the assignment; left is empty when there is none."""
    depth = 0
    for position, character in enumerate(text):
        depth += (character in "([") - (character in ")]")
        is_assignment = (
            character == "="
            and text[position - 1 : position] not in ("<", ">", "=", "!")
            and text[position + 1 : position + 2] != "="
        )
        if is_assignment and depth == 0 and position > 0:
            return text[:position].strip().rstrip(":"), text[position + 1 :].strip()
    return "", text.strip()


def _left_side(head: ast.expr | None) -> tuple[str | None, list[tuple[str, float | None]]]:
    if head is None:
        return None, []
    parameters: list[tuple[str, float | None]] = []
    if (
        isinstance(head, ast.Call)
        and isinstance(head.func, ast.Name)
        and all(isinstance(a, ast.Name) for a in head.args)
    ):
        parameters += [(argument.id, None) for argument in head.args if isinstance(argument, ast.Name)]
        for key in head.keywords:
            try:
                value = ast.literal_eval(key.value)
            except ValueError:
                value = None
            if key.arg is None or isinstance(value, bool) or not isinstance(value, int | float):
                raise Mistake(f"The default of `{key.arg}` must be a number, as in `f(x, alpha=1.0) = …`.")
            parameters.append((key.arg, float(value)))
        head = head.func
    if not isinstance(head, ast.Name):
        raise Mistake("The left side of `=` must be a name or `name(x, alpha=1.0)`.")
    name = head.id.lower()
    return (name if name not in _GENERIC_LEFT and is_operation_name(name) else None), parameters


def called_function(node: ast.Call) -> tuple[str, Function]:
    """The called function. Raises Mistake with the nearest known names."""
    target = node.func
    if isinstance(target, ast.Attribute):
        root: ast.expr = target
        while isinstance(root, ast.Attribute):
            root = root.value
        name = target.attr if isinstance(root, ast.Name) and root.id in MODULES else ast.unparse(target)
    else:
        name = target.id if isinstance(target, ast.Name) else ast.unparse(target)
    found = FUNCTIONS.get(name.lower())
    if found is None:
        near = tuple(f"`{other}`" for other in Function.nearest(name))
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        raise Mistake(
            f"`{name[:60]}` is not a function that expressions know.{hint}",
            where=ast.unparse(node)[:120],
            needed="Functions: "
            + ", ".join(sorted({f.name for f in FUNCTIONS.values()}))
            + ". Anything else: a ```python block.",
        )
    return name, found


class _Allowed(ast.NodeVisitor):
    """Refuses every node outside the language."""

    def generic_visit(self, node: ast.AST) -> None:
        match node:
            case ast.BinOp():
                allowed = isinstance(node.op, _BINARY)
            case ast.UnaryOp():
                allowed = isinstance(node.op, ast.USub | ast.UAdd)
            case ast.Compare():
                allowed = len(node.ops) == 1 and isinstance(node.ops[0], _COMPARISONS)
            case ast.Constant():
                allowed = type(node.value) in {int, float} and abs(node.value) < LARGEST  # type: ignore[operator]
            case ast.Name():
                allowed = not node.id.startswith("__")
            case _:
                allowed = isinstance(
                    node, ast.IfExp | ast.operator | ast.unaryop | ast.cmpop | ast.expr_context
                )
        if not allowed:
            shown = ast.unparse(node) if isinstance(node, ast.expr) else type(node).__name__
            raise Mistake(
                f"Expressions can't contain `{shown[:80]}`. Use a ```python block for anything beyond arithmetic and functions."
            )
        super().generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if not (isinstance(node.value, ast.Name) and node.value.id in MODULES and node.attr == "pi"):
            raise Mistake(f"Expressions can't contain `{ast.unparse(node)[:80]}`.")

    def visit_Call(self, node: ast.Call) -> None:
        name, function = called_function(node)
        function.check(name, node)
        for argument in (*node.args, *(key.value for key in node.keywords)):
            if not (isinstance(argument, ast.Constant) and isinstance(argument.value, str)):
                self.visit(argument)
