"""Host steps as torch code: small tensors between kernels, and losses made of sums. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from kernels.derivation import Unsupported
from kernels.expressions import ADD, ATOM, COMPARE, INFIX, MUL, OR, UNARY, Text
from kernels.passes.names import stem
from kernels.quantity import Quantity, number_text
from kernels.row_program import Cast, Const, Gather, Load, Map, Reduce, RowProgram, Symbol

CALLS = {
    "exp": "torch.exp", "log": "torch.log", "log1p": "torch.log1p", "expm1": "torch.expm1", "sqrt": "torch.sqrt",
    "rsqrt": "torch.rsqrt", "abs": "torch.abs", "sigmoid": "torch.sigmoid", "tanh": "torch.tanh", "erf": "torch.erf",
    "sin": "torch.sin", "cos": "torch.cos", "floor": "torch.floor", "ceil": "torch.ceil", "sign": "torch.sgn",
    "atan": "torch.atan", "maximum": "torch.maximum", "minimum": "torch.minimum",
}  # fmt: skip
REDUCTIONS = {"sum": "sum", "max": "amax", "min": "amin"}


@dataclass
class HostText:
    """Writes a host program's values as torch expressions over small fp32 tensors."""

    program: RowProgram
    size: object  # Callable[[Quantity], str]: a quantity as host code
    flattened: frozenset[str]  # tensors whose leading dimensions are still unflattened
    named: dict[int, tuple[str, tuple[str, ...]]] = field(
        default_factory=dict
    )  # values that a variable holds already

    def write(self, node: int) -> tuple[Text, tuple[str, ...]]:
        """The expression and the axes of its dimensions."""
        if node in self.named:
            name, axes = self.named[node]
            return Text(name, ATOM), axes
        found = self.program.nodes[node]
        if isinstance(found, Const):
            return Text(_number(found.value), ATOM if found.value >= 0 else UNARY), ()
        if isinstance(found, Symbol):
            return self._symbol(found.quantity), ()
        if isinstance(found, Load):
            return self._load(found)
        if isinstance(found, Reduce):
            return self._reduce(found)
        if isinstance(found, Gather):
            return self._gather(found)
        if isinstance(found, Cast):
            text, axes = self.write(found.arg)
            return Text(f"{text.at(ATOM)}.to({stem(found.like)}.dtype).float()", ATOM), axes
        if isinstance(found, Map):
            return self._map(found)
        raise Unsupported(f"a {found.kind} outside a kernel")

    def _symbol(self, quantity: Quantity) -> Text:
        text = self.size(quantity)  # type: ignore[operator]
        return Text(text, ATOM if text.isidentifier() or text.endswith(")") else MUL)

    def _load(self, node: Load) -> tuple[Text, tuple[str, ...]]:
        tensor = self.program.tensor(node.tensor)
        name = stem(node.tensor)
        axes = tuple(a for a in tensor.axes if a not in {x for x, _ in node.at})
        if node.at:
            raise Unsupported("a part of a packed tensor outside a kernel")
        text = name if tensor.dtype != "float" else f"{name}.float()"
        if name in self.flattened:
            text = f"{text}.reshape(-1)"
        return Text(text, ATOM), axes

    def _gather(self, node: Gather) -> tuple[Text, tuple[str, ...]]:
        tensor = self.program.tensor(node.tensor)
        if tensor.axes != (node.axis,):
            raise Unsupported("a gather from a large tensor outside a kernel")
        index, axes = self.write(node.index)
        text = f"{stem(node.tensor)}[{index.text}]"
        return Text(text if tensor.dtype != "float" else f"{text}.float()", ATOM), axes

    def _reduce(self, node: Reduce) -> tuple[Text, tuple[str, ...]]:
        text, axes = self.write(node.arg)
        dims = [axes.index(a) for a in node.axes if a in axes]
        rest = tuple(a for a in axes if a not in node.axes)
        if not rest and node.fn == "sum":
            return Text(f"{text.at(ATOM)}.sum()", ATOM), ()
        argument = str(dims[0]) if len(dims) == 1 else f"({', '.join(map(str, dims))})"
        return Text(f"{text.at(ATOM)}.{REDUCTIONS[node.fn]}(dim={argument})", ATOM), rest

    def _map(self, node: Map) -> tuple[Text, tuple[str, ...]]:
        args = [self.write(a) for a in node.args]
        axes = max((a for _, a in args), key=len)
        texts: list[Text] = []
        for written, own in args:
            text = written
            if own and own != axes:
                if not set(own) <= set(axes):
                    raise Unsupported("small tensors with different axes are combined outside a kernel")
                index = ", ".join(":" if a in own else "None" for a in axes)
                text = Text(f"{text.at(ATOM)}[{index}]", ATOM)
            texts.append(text)
        return self._text(node, texts), axes

    @staticmethod
    def _text(node: Map, args: list[Text]) -> Text:
        if node.fn in INFIX:
            symbol, level = INFIX[node.fn]
            if level == COMPARE:
                return Text(f"{args[0].at(OR)} {symbol} {args[1].at(OR)}", level)
            right = args[1].at(ATOM if args[1].text.startswith("-") else level + 1)
            return Text(f"{args[0].at(level)} {symbol} {right}", level)
        if node.fn == "neg":
            return Text(f"-{args[0].at(UNARY)}", UNARY)
        if node.fn == "not":
            return Text(f"{args[0].at(ADD)} == 0", COMPARE)
        if node.fn == "float":
            return Text(f"{args[0].at(ATOM)}.float()", ATOM)
        if node.fn == "where":
            return Text(f"torch.where({', '.join(a.text for a in args)})", ATOM)
        if node.fn in ("maximum", "minimum") and _is_number(args[1].text):
            bound = "min" if node.fn == "maximum" else "max"
            return Text(f"{args[0].at(ATOM)}.clamp({bound}={args[1].text})", ATOM)
        return Text(f"{CALLS[node.fn]}({', '.join(a.text for a in args)})", ATOM)


def _number(value: float) -> str:
    return number_text(value) if math.isfinite(value) else f'float("{value}")'


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
