"""Row-program nodes as text: Triton expressions with minimal parentheses, or formulas for people. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from kernels.helpers import CONSTANTS, named_constant
from kernels.passes.names import stem
from kernels.quantity import Quantity, number_text
from kernels.row_program import (
    Cast,
    Const,
    Index,
    Load,
    Map,
    Node,
    Reduce,
    RowProgram,
    Scan,
    Symbol,
    Uniform,
    operands,
)

COMPARE, OR, AND, ADD, MUL, UNARY, ATOM = range(1, 8)
INFIX = {
    "add": ("+", ADD), "sub": ("-", ADD), "mul": ("*", MUL), "div": ("/", MUL), "lt": ("<", COMPARE),
    "le": ("<=", COMPARE), "gt": (">", COMPARE), "ge": (">=", COMPARE), "eq": ("==", COMPARE), "ne": ("!=", COMPARE),
    "and": ("&", AND), "or": ("|", OR),
}  # fmt: skip
CALLS = {
    "abs": "tl.abs", "exp": "tl.exp", "log": "tl.log", "sqrt": "tl.sqrt", "rsqrt": "tl.rsqrt", "sigmoid": "tl.sigmoid",
    "erf": "tl.erf", "sin": "tl.sin", "cos": "tl.cos", "floor": "tl.floor", "ceil": "tl.ceil", "tanh": "tanh",
    "log1p": "log1p", "expm1": "expm1", "sign": "sign", "atan": "atan",
}  # fmt: skip
HELPER_FUNCTIONS = {"tanh", "log1p", "expm1", "sign", "atan"}
LONGEST_FORMULA = 400
ASSOCIATIVE = {"add", "mul", "and", "or"}


@dataclass
class Text:
    """An expression and how tightly it binds."""

    text: str
    level: int

    def at(self, level: int) -> str:
        """The text, in parentheses where it binds less tightly than `level`."""
        return self.text if self.level >= level else f"({self.text})"


@dataclass
class KernelText:
    """Writes nodes as Triton. `names` holds the nodes that are statements; others are written in place."""

    program: RowProgram
    names: dict[int, str]
    symbols: dict[Quantity, str]
    col_offsets: str = "col_offsets"
    reduce_axis: str = "axis=0"
    powers_of_two: frozenset[int] = frozenset()  # exponentials written so
    helpers: set[str] = field(default_factory=set)
    constants: set[str] = field(default_factory=set)

    def write(self, node: int, *, definition: bool = False) -> Text:
        """The node's text: its name, unless `definition` asks for what it stands for."""
        if not definition and node in self.names:
            return Text(self.names[node], ATOM)
        found = self.program.nodes[node]
        if isinstance(found, Const):
            return self._const(found.value)
        if isinstance(found, Symbol):
            text = self.symbols[found.quantity]
            return Text(text, ATOM if text.isidentifier() or _enclosed(text) else MUL)
        if isinstance(found, Index):
            return Text(self.col_offsets, ATOM)
        if isinstance(found, Cast):
            return Text(
                f"{self.write(found.arg).at(ATOM)}.to({stem(found.like)}_ptr.dtype.element_ty).to(tl.float32)",
                ATOM,
            )
        if isinstance(found, Reduce):
            return Text(f"tl.{found.fn}({self.write(found.arg).text}, {self.reduce_axis})", ATOM)
        if isinstance(found, Scan):
            call = {"sum": "tl.cumsum", "prod": "tl.cumprod"}[found.fn]
            reverse = ", reverse=True" if found.reverse else ""
            return Text(f"{call}({self.write(found.arg).text}, {self.reduce_axis}{reverse})", ATOM)
        if not isinstance(found, Map):
            raise TypeError(f"a {found.kind} can't be written in place")
        if node in self.powers_of_two:
            return Text(self.power_of_two(self.write(found.args[0])), ATOM)
        return self._map(found)

    def power_of_two(self, exponent: Text) -> str:
        """exp(exponent), as a power of two."""
        self.constants.add("LOG2_E")
        return f"tl.exp2({exponent.at(MUL)} * LOG2_E)"

    def _const(self, value: float) -> Text:
        if not math.isfinite(value):
            return Text(f'float("{"-" if value < 0 else ""}{"inf" if math.isinf(value) else "nan"}")', ATOM)
        name = named_constant(abs(value))
        if name:
            self.constants.add(name)
            return Text(name if value > 0 else f"-{name}", ATOM if value > 0 else UNARY)
        return Text(number_text(value), ATOM if value >= 0 else UNARY)

    def _number(self, node: int) -> Text:
        """A constant as digits, even where it has a name."""
        found = self.program.nodes[node]
        value = found.value if isinstance(found, Const) else math.nan
        return Text(number_text(value), ATOM if value >= 0 else UNARY)

    def _float(self, node: int) -> str:
        """As a float: a bare 0 would be an integer to Triton."""
        found = self.program.nodes[node]
        if isinstance(found, Const) and math.isfinite(found.value) and found.value == int(found.value):
            return f"{number_text(found.value)}.0"
        return self.write(node).text

    def _is_label(self, node: int) -> bool:
        found = self.program.nodes[node]
        return isinstance(found, Load) and self.program.tensor(found.tensor).dtype == "int64"

    def _map(self, node: Map) -> Text:
        if node.fn in INFIX:
            return self._infix(node)
        if node.fn == "neg":
            return Text(f"-{self.write(node.args[0]).at(UNARY)}", UNARY)
        if node.fn == "not":
            return Text(f"{self.write(node.args[0]).at(ADD)} == 0", COMPARE)
        if node.fn == "float":
            return Text(f"{self.write(node.args[0]).at(ATOM)}.to(tl.float32)", ATOM)
        if node.fn == "where":
            condition, then, otherwise = node.args
            # Beside a label a constant stays whole: with a float the label would become one, and can't index.
            branches = [
                self.write(own).text if self._is_label(other) else self._float(own)
                for own, other in ((then, otherwise), (otherwise, then))
            ]
            return Text(f"tl.where({self.write(condition).text}, {', '.join(branches)})", ATOM)
        if node.fn in ("maximum", "minimum"):
            return self._extremum(node)
        if node.fn in HELPER_FUNCTIONS:
            self.helpers.add(node.fn)
        return Text(f"{CALLS[node.fn]}({self.write(node.args[0]).text})", ATOM)

    def _extremum(self, node: Map) -> Text:
        second = self.program.nodes[node.args[1]]
        if node.fn == "maximum" and isinstance(second, Const) and second.value == 0:
            self.helpers.add("relu")
            return Text(f"relu({self.write(node.args[0]).text})", ATOM)
        args = f"{self._float(node.args[0])}, {self._float(node.args[1])}"
        return Text(f"tl.{node.fn}({args}, propagate_nan=tl.PropagateNan.ALL)", ATOM)

    def _infix(self, node: Map) -> Text:
        symbol, level = INFIX[node.fn]
        left, right = self.write(node.args[0]), self.write(node.args[1])
        if left.text.lstrip("-") in CONSTANTS:
            # constexpr * tensor is a constexpr to the interpreter, so a named constant stands on the right.
            if node.fn in ("add", "mul"):
                left, right = right, left
            else:
                left = self._number(node.args[0])
        if node.fn in ("lt", "le", "gt", "ge", "eq", "ne"):
            return Text(f"{left.at(OR)} {symbol} {right.at(OR)}", level)
        # a - (b + c) and a / (b * c) need their parentheses; so does a * (b / c), to keep the rounding.
        right_level = level + 1
        if node.fn in ASSOCIATIVE and node.fn != "mul" and right.level == level:
            right_level = level + 1
        if right.text.startswith("-"):
            right_level = ATOM
        if node.fn == "div" and left.text == "1":
            left = Text("1.0", ATOM)
        return Text(f"{left.at(level)} {symbol} {right.at(right_level)}", level)


@dataclass
class FormulaText:
    """Writes a value as a formula for people: powers, cases, sums over columns."""

    nodes: list[Node]
    tensor_names: dict[str, str]
    named: dict[int, str]  # nodes that go by a name
    written: dict[int, Text] = field(default_factory=dict)

    def write(self, root: int) -> Text:
        """The formula, bottom-up: each node once, and cut where it gets too long to help anybody."""
        needed: set[int] = set()
        stack = [root]
        while stack:
            node = stack.pop()
            if node not in needed and node not in self.written:
                needed.add(node)
                stack.extend(() if node in self.named else operands(self.nodes[node]))
        for node in sorted(needed):
            text = self._write(node)
            self.written[node] = text if len(text.text) <= LONGEST_FORMULA else Text("…", ATOM)
        return self.written[root]

    def _write(self, node: int) -> Text:
        found = self.nodes[node]
        if node in self.named:
            return Text(self.named[node], ATOM)
        if isinstance(found, Const):
            return Text(_formula_number(found.value), ATOM if found.value >= 0 else UNARY)
        if isinstance(found, Symbol):
            text = found.quantity.text()
            return Text(text, MUL if " " in text and not _enclosed(text) else ATOM)
        if isinstance(found, Cast):
            return Text(f"round({self.written[found.arg].text})", ATOM)
        if isinstance(found, Reduce):
            return Text(f"{found.fn}({self.written[found.arg].text})", ATOM)
        if isinstance(found, Scan):
            return Text(f"cum{found.fn}({self.written[found.arg].text})", ATOM)
        if isinstance(found, Index):
            return Text("column", ATOM)
        if isinstance(found, Uniform):
            return Text(f"uniform({self.written[found.seed].text})", ATOM)
        if not isinstance(found, Map):
            return Text(_load_name(found, self.tensor_names), ATOM)
        return self._map(found)

    def _map(self, node: Map) -> Text:
        args = [self.written[a] for a in node.args]
        if node.fn == "mul" and node.args[0] == node.args[1]:
            base = args[0].at(ATOM)
            return Text(f"({base})²" if base.endswith("²") else f"{base}²", ATOM)
        reciprocal = self.nodes[node.args[1]] if node.fn == "mul" else None
        if isinstance(reciprocal, Map) and reciprocal.fn == "div" and node.args[1] not in self.named:
            above = self.nodes[reciprocal.args[0]]
            if isinstance(above, Const) and above.value == 1:
                return Text(f"{args[0].at(MUL)} / {self.written[reciprocal.args[1]].at(MUL + 1)}", MUL)
        if node.fn in INFIX:
            symbol, level = INFIX[node.fn]
            if node.fn in ("lt", "le", "gt", "ge", "eq", "ne"):
                return Text(f"{args[0].at(OR)} {symbol} {args[1].at(OR)}", level)
            right_level = level if node.fn in ASSOCIATIVE else level + 1
            return Text(f"{args[0].at(level)} {symbol} {args[1].at(right_level)}", level)
        if node.fn == "neg":
            return Text(f"-{args[0].at(UNARY)}", UNARY)
        if node.fn == "scatter":
            return Text(f"sum({args[0].text}) by {args[1].text}", ATOM)
        if node.fn == "where":
            return Text(f"({args[1].text} if {args[0].text} else {args[2].text})", ATOM)
        words = {"maximum": "max", "minimum": "min", "float": ""}
        return Text(f"{words.get(node.fn, node.fn)}({', '.join(a.text for a in args)})", ATOM)


def _enclosed(text: str) -> bool:
    """Whether parentheses enclose the text as a whole: "(1 - p)", but not "(1 - p) * (1 - q)"."""
    return text.startswith("(") and text.endswith(")") and "(" not in text[1:]


def _formula_number(value: float) -> str:
    name = named_constant(abs(value))
    if name:
        pretty = {
            "SQRT_2_OVER_PI": "√(2/π)",
            "SQRT_1_2": "√½",
            "ONE_OVER_SQRT_2_PI": "1/√(2π)",
            "LN_2": "ln 2",
        }
        if name in pretty:
            return pretty[name] if value > 0 else f"-{pretty[name]}"
    return number_text(value) if math.isfinite(value) else repr(value)


def _load_name(node: Node, names: dict[str, str]) -> str:
    tensor = getattr(node, "tensor", "?")
    at = "".join(f"[{c}]" for _, c in getattr(node, "at", ()))
    return names.get(tensor, tensor) + at


def count_uses(program: RowProgram) -> list[int]:
    """How often each node is read by others and by writes."""
    counts = [0] * len(program.nodes)
    for node in program.nodes:
        for operand in operands(node):
            counts[operand] += 1
    for write in (*program.stores, *program.accumulates, *program.scatters):
        counts[write.value] += 1
    for write in program.scatters:
        counts[write.index] += 1
    return counts
