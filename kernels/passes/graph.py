"""A growing expression graph: equal nodes are one node, and value-safe identities are folded as it grows. Pure."""

from __future__ import annotations

import math

from kernels.passes.functions import FUNCTIONS
from kernels.quantity import Quantity, number_text
from kernels.row_program import Axis, Const, Load, Map, Node, Reduce, Symbol, Tensor, axes_of


class Graph:
    """Nodes in topological order. `add` returns the id of an equal node when there is one (common subexpressions)."""

    def __init__(self, tensors: dict[str, Tensor] | None = None, axes: dict[str, Axis] | None = None):
        self.nodes: list[Node] = []
        self.axes_of: list[frozenset[str]] = []
        self.lines: list[int | None] = []
        self.tensors: dict[str, Tensor] = dict(tensors or {})
        self.axes: dict[str, Axis] = dict(axes or {})
        self.line: int | None = None
        self._ids: dict[Node, int] = {}

    def add(self, node: Node) -> int:
        known = self._ids.get(node)
        if known is not None:
            return known
        self.nodes.append(node)
        self.axes_of.append(axes_of(node, self.axes_of, self.tensors))
        self.lines.append(self.line)
        self._ids[node] = len(self.nodes) - 1
        return len(self.nodes) - 1

    # --- leaves ---

    def const(self, value: float) -> int:
        value = float(value)
        return self.add(Const(text="0" if value == 0 and math.copysign(1, value) > 0 else _text(value)))

    def symbol(self, quantity: Quantity) -> int:
        return self.const(quantity.coef) if quantity.is_number else self.add(Symbol(quantity=quantity))

    def load(self, tensor: str, at: tuple[tuple[str, int], ...] = ()) -> int:
        return self.add(Load(tensor=tensor, at=at))

    # --- questions ---

    def number(self, node: int) -> float | None:
        """The value of a constant node."""
        found = self.nodes[node]
        return found.value if isinstance(found, Const) else None

    def quantity(self, node: int) -> Quantity | None:
        """The quantity of a constant or symbol node."""
        found = self.nodes[node]
        if isinstance(found, Symbol):
            return found.quantity
        if isinstance(found, Const) and math.isfinite(found.value):
            return Quantity.number(found.value)
        return None

    def is_map(self, node: int, fn: str) -> tuple[int, ...] | None:
        """The arguments of `node` when it is that function."""
        found = self.nodes[node]
        return found.args if isinstance(found, Map) and found.fn == fn else None

    def is_boolean(self, node: int) -> bool:
        found = self.nodes[node]
        if isinstance(found, Map):
            if found.fn == "where":
                return self.is_boolean(found.args[1])
            return FUNCTIONS[found.fn].boolean
        return isinstance(found, Load) and self.tensors[found.tensor].dtype == "bool"

    # --- functions ---

    def map(self, fn: str, *args: int) -> int:
        """An element-wise function of nodes. Only identities that hold for every fp32 value are applied."""
        function = FUNCTIONS[fn]
        if len(args) != function.arity:
            raise ValueError(f"{fn} takes {function.arity} arguments, not {len(args)}")
        numbers = [self.number(a) for a in args]
        if function.fold is not None and all(n is not None for n in numbers):
            folded = function.fold(*numbers)
            if math.isfinite(folded):
                return self.const(folded)
        simpler = self._identity(fn, args, numbers)
        return simpler if simpler is not None else self.add(Map(fn=fn, args=args))

    def _identity(self, fn: str, args: tuple[int, ...], numbers: list[float | None]) -> int | None:
        a = args[0]
        if fn == "add":
            if numbers[0] == 0:
                return args[1]
            if numbers[1] == 0:
                return a
            negated = self.is_map(args[1], "neg")
            if negated:
                return self.map("sub", a, negated[0])
            negated = self.is_map(a, "neg")
            if negated:
                return self.map("sub", args[1], negated[0])
        elif fn == "sub":
            if numbers[1] == 0:
                return a
            if numbers[0] == 0:
                return self.map("neg", args[1])
            negated = self.is_map(args[1], "neg")
            if negated:
                return self.map("add", a, negated[0])
        elif fn == "mul":
            return self._multiply(args, numbers)
        elif fn == "div":
            if numbers[1] == 1:
                return a
            top, bottom = self.quantity(a), self.quantity(args[1])
            if top is not None and bottom is not None and bottom.coef:
                return self.symbol(top / bottom)
        elif fn == "neg":
            inner = self.is_map(a, "neg")
            if inner:
                return inner[0]
            inner = self.is_map(a, "sub")
            if inner and self.number(inner[0]) is None:
                return None
            quantity = self.quantity(a)
            if quantity is not None:
                return self.symbol(Quantity(coef=-quantity.coef, factors=quantity.factors))
        elif fn == "where":
            if args[1] == args[2]:
                return args[1]
            condition = self.is_map(a, "not")
            if condition:
                return self.map("where", condition[0], args[2], args[1])
            if numbers[0] is not None:
                return args[1] if numbers[0] else args[2]
        elif fn == "not":
            inner = self.is_map(a, "not")
            if inner:
                return inner[0]
        elif fn == "float":
            found = self.nodes[a]
            if isinstance(found, Const | Symbol):
                return a
        return None

    def _multiply(self, args: tuple[int, ...], numbers: list[float | None]) -> int | None:
        a, b = args
        for one, other, number in ((a, b, numbers[0]), (b, a, numbers[1])):
            if number == 1:
                return other
            if number == -1:
                return self.map("neg", other)
            if isinstance(self.nodes[one], Const | Symbol) and isinstance(self.nodes[other], Const | Symbol):
                left, right = self.quantity(one), self.quantity(other)
                if left is not None and right is not None:
                    return self.symbol(left * right)
        return None

    def total(self, node: int, over: tuple[str, ...], times: Quantity) -> int:
        """Sum over `over` of a node, times how often it repeats (axes that it doesn't vary over)."""
        axes = tuple(a for a in over if a in self.axes_of[node])
        value = self.add(Reduce(fn="sum", arg=node, axes=axes)) if axes else node
        return self.map("mul", value, self.symbol(times))


def _text(value: float) -> str:
    return number_text(value) if math.isfinite(value) else repr(value)
