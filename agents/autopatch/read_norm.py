"""Reads a norm class: its formula, casting mode and offset from its source, and where its gradient is shared. Pure."""

from __future__ import annotations

import ast
import re
import textwrap
from dataclasses import dataclass

from kernels.syntax import syntax_tree

_UPCAST = re.compile(r"\.float\(\)|torch\.float32|\.to\(.*float32")
_OFFSET = re.compile(
    r"\b1(?:\.0)?\s*\+\s*\(?self\.weight|self\.weight(?:\.\w+\([^)]*\))?\s*\+\s*1(?:\.0)?\b|self\.weight\s*\+\s*self\.offset"
)


@dataclass(frozen=True)
class NormReading:
    """What the source says. None: it isn't written in a form that these rules know."""

    kind: str | None = None
    casting_mode: str | None = None
    offset: float | None = None
    line: str = ""


def read_norm(source: str) -> NormReading:
    """The reading of a norm class's source."""
    text = textwrap.dedent(source)
    if re.search(r"class \w+\(nn\.LayerNorm\)", text) and "def forward" not in text:
        return NormReading("layer_norm", None, 0.0)
    body = _method(text, "forward")
    helper = _method(text, "_norm")
    if body is None:
        return NormReading("layer_norm") if "LayerNorm(Module)" in text else NormReading()
    code = "\n".join(ast.unparse(statement) for statement in [*(helper or []), *body])
    weighted = next((line for line in code.splitlines() if "self.weight" in line), "")
    if "layer_norm(" in code:
        return NormReading(
            "layer_norm_1p" if _OFFSET.search(code) else "layer_norm",
            None,
            1.0 if _OFFSET.search(code) else 0.0,
            weighted,
        )
    if "rsqrt(" not in code and "-0.5" not in code and ".sqrt(" not in code:
        return NormReading()
    if re.search(r"-\s*\w+\.mean\(|-\s*mean\b|\bmean\s*=", code):
        return NormReading("layer_norm", None, 1.0 if _OFFSET.search(code) else 0.0, weighted)
    return NormReading("rms_norm", _casting(code, body), 1.0 if _OFFSET.search(code) else 0.0, weighted)


def _method(text: str, name: str) -> list[ast.stmt] | None:
    try:
        tree = syntax_tree(text)
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return node.body
    return None


def _casting(code: str, body: list[ast.stmt]) -> str | None:
    """llama: downcast before the weight; gemma: after it; none: no upcast at all."""
    if not _UPCAST.search(code):
        return "none"
    lowered: set[str] = set()  # names that hold a value in the input's dtype
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
                sides = (node.left, node.right)
                weighted = [side for side in sides if "self.weight" in ast.unparse(side)]
                if weighted:
                    other = next(side for side in sides if side is not weighted[0])
                    return "llama" if _is_lowered(other, lowered) else "gemma"
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name = statement.targets[0].id
            (lowered.add if _is_lowered(statement.value, lowered) else lowered.discard)(name)
    return None


def _is_lowered(node: ast.expr, lowered: set[str]) -> bool:
    """Whether an expression ends in a cast to the input's dtype."""
    if isinstance(node, ast.Name):
        return node.id in lowered
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("to", "type_as", "type")
    ):
        return "float32" not in ast.unparse(node)
    return False


def shared_gradients(layer: str, norms: set[str]) -> set[str]:
    """Norm attributes whose output a residual addition takes as it is: both operands of an addition get the same gradient tensor.

    layer: source of a decoder layer's class · norms: its attributes that hold a norm.
    """
    body = _method(textwrap.dedent(layer), "forward")
    walker = _Dataflow(norms)
    for statement in body or []:
        walker.run(statement)
    return walker.shared


class _Dataflow:
    """Follows norm outputs through a forward, statement by statement: name -> the norms whose very output it holds."""

    def __init__(self, norms: set[str]):
        self.norms, self.shared = norms, set[str]()
        self.held: dict[str, set[str]] = {}

    def run(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self.held[name] = self.value(value)
            case ast.Assign(targets=[ast.Tuple(elts=elements)], value=value):
                self.value(value)
                for element in elements:
                    if isinstance(element, ast.Name):
                        self.held[element.id] = set()
            case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                found = self.held.get(name, set()) | self.value(value)
                if isinstance(op, ast.Add):
                    self.shared |= found
                self.held[name] = set()
            case ast.If(body=body, orelse=otherwise):
                for inner in [*body, *otherwise]:
                    self.run(inner)
            case ast.With(body=body) | ast.For(body=body):
                for inner in body:
                    self.run(inner)
            case ast.Expr(value=value) | ast.Return(value=ast.expr() as value):
                self.value(value)
            case _:
                pass

    def value(self, node: ast.expr) -> set[str]:
        """The norms whose output this expression is, unchanged; notes additions on the way."""
        match node:
            case ast.Name(id=name):
                return set(self.held.get(name, set()))
            case ast.BinOp(left=left, op=op, right=right):
                found = self.value(left) | self.value(right)
                if isinstance(op, ast.Add):
                    self.shared |= found
                return set()
            case ast.IfExp(body=body, orelse=otherwise):
                return self.value(body) | self.value(otherwise)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name), args=args):
                inner = set().union(*(self.value(arg) for arg in args)) if args else set()
                if name in self.norms:
                    return {name}
                return inner if "dropout" in name or "drop_path" in name else set()
            case ast.Call(func=ast.Attribute(value=value, attr=attr), args=args):
                found = self.value(value)
                for arg in args:
                    found |= self.value(arg) if attr == "dropout" else set()
                    self.value(arg)
                return (
                    found
                    if attr in ("to", "view", "reshape", "transpose", "contiguous", "dropout", "type_as")
                    else set()
                )
            case ast.Call(args=args, keywords=keywords):
                for arg in [*args, *(keyword.value for keyword in keywords)]:
                    self.value(arg)
                return set()
            case _:
                return set()
