"""The value of an expression at one point, in Python floats; used to recognise known ops. Pure."""

from __future__ import annotations

import ast
import math

from agents.dev.expression_syntax import called_function, parse
from agents.dev.refused import Mistake


def evaluate(text: str, values: dict[str, float]) -> float:
    """The expression at one point, in Python floats. Raises Mistake when it has a row operation; ArithmeticError outside its domain."""
    parsed = parse(text)
    return Evaluator(
        {**{name: value for name, value in parsed.parameters if value is not None}, **values}
    ).visit(parsed.tree)


class Evaluator(ast.NodeVisitor):
    """The expression in Python floats."""

    def __init__(self, values: dict[str, float]):
        self.values = values

    def generic_visit(self, node: ast.AST) -> float:
        raise Mistake(f"Cannot evaluate `{type(node).__name__}`.")

    def visit_Constant(self, node: ast.Constant) -> float:
        return float(node.value)  # type: ignore[arg-type]

    def visit_Attribute(self, node: ast.Attribute) -> float:  # noqa: ARG002
        return math.pi

    def visit_Name(self, node: ast.Name) -> float:
        if node.id == "pi":
            return math.pi
        if node.id not in self.values:
            raise Mistake(f"`{node.id}` has no value.")
        return self.values[node.id]

    def visit_UnaryOp(self, node: ast.UnaryOp) -> float:
        value = self.visit(node.operand)
        return -value if isinstance(node.op, ast.USub) else value

    def visit_BinOp(self, node: ast.BinOp) -> float:
        left, right = self.visit(node.left), self.visit(node.right)
        match node.op:
            case ast.Add():
                return left + right
            case ast.Sub():
                return left - right
            case ast.Mult():
                return left * right
            case ast.Div():
                return left / right
        return math.pow(left, right)

    def visit_Compare(self, node: ast.Compare) -> float:
        left, right = self.visit(node.left), self.visit(node.comparators[0])
        match node.ops[0]:
            case ast.Lt():
                return left < right
            case ast.LtE():
                return left <= right
            case ast.Gt():
                return left > right
            case ast.GtE():
                return left >= right
            case ast.Eq():
                return left == right
        return left != right

    def visit_IfExp(self, node: ast.IfExp) -> float:
        return self.visit(node.body) if self.visit(node.test) else self.visit(node.orelse)

    def visit_Call(self, node: ast.Call) -> float:
        name, function = called_function(node)
        if function.value is None or node.keywords:
            raise Mistake(f"`{name}` has no value at one point.")
        return function.value(*(self.visit(argument) for argument in node.args))
