"""The functions that a typed expression may call: how each is written in PyTorch, and its value in Python floats. Pure data."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from rapidfuzz import process
from rapidfuzz.distance import DamerauLevenshtein

from agents.dev.refused import Mistake
from kernels.syntax import syntax_tree

Value = Callable[..., float]


@dataclass(frozen=True)
class Function:
    """One function of the expression language."""

    name: str
    torch: str = field(metadata={"help": 'source with {0}, {1} for arguments, e.g. "torch.sigmoid({0})"'})
    arguments: tuple[int, int] = (1, 1)
    value: Value | None = None
    keywords: tuple[str, ...] = ()
    scalar: str | None = None  # how it is written when no argument is a tensor
    form: str = "plain"  # "minimum" and "maximum" choose by which arguments are tensors

    @staticmethod
    def nearest(name: str) -> list[str]:
        """Known functions most like `name`."""
        scorer = DamerauLevenshtein.normalized_similarity
        found = process.extract(name.lower(), list(FUNCTIONS), scorer=scorer, limit=2, score_cutoff=0.5)
        return [choice for choice, _, _ in found]

    def check(self, called: str, node: ast.Call) -> None:
        """Refuse a wrong number of arguments or an unknown keyword. Raises Mistake."""
        low, high = self.arguments
        if (
            any(isinstance(argument, ast.Starred) for argument in node.args)
            or not low <= len(node.args) <= high
        ):
            count = str(low) if low == high else f"{low} to {high}"
            raise Mistake(
                f"`{called}` takes {count} argument{'s' if count != '1' else ''}.",
                where=ast.unparse(node)[:120],
            )
        for key in node.keywords:
            if key.arg not in self.keywords:
                raise Mistake(f"`{called}` takes no keyword `{key.arg}` here.", where=ast.unparse(node)[:120])

    def torch_call(
        self, called: str, arguments: list[ast.expr], is_tensor: list[bool], keywords: dict[str, ast.expr]
    ) -> ast.expr:
        """The call in PyTorch. Raises Mistake for a form that PyTorch doesn't have."""
        texts = [ast.unparse(argument) for argument in arguments]
        if not any(is_tensor):
            if self.scalar is None:
                raise Mistake(f"`{called}({', '.join(texts)})` has no tensor in it; write its value.")
            return _parse(self.scalar.format(*texts))
        template = self.torch
        if self.form in {"minimum", "maximum"}:
            template, texts = self._extremum(texts, is_tensor)
        elif self.name == "where" and not is_tensor[0]:
            raise Mistake("The condition of where() must compare a tensor.")
        elif self.name == "clamp":
            texts += ["None"] * (3 - len(texts))
        elif len(texts) < self.arguments[1]:
            template = template.replace(", {1}", "")
        call = _parse(template.format(*texts))
        if keywords and isinstance(call, ast.Call):
            call.keywords = [key for key in call.keywords if key.arg not in keywords]
            call.keywords += [ast.keyword(arg=name, value=value) for name, value in keywords.items()]
        return call

    def _extremum(self, texts: list[str], is_tensor: list[bool]) -> tuple[str, list[str]]:
        if len(texts) == 1:
            return f"torch.a{self.name[:3]}({{0}}, dim=-1, keepdim=True)", texts
        if all(is_tensor):
            return f"torch.{self.name}({{0}}, {{1}})", texts
        tensor, bound = (texts[0], texts[1]) if is_tensor[0] else (texts[1], texts[0])
        # relu's gradient at 0 is 0 and clamp's is 1: max(x, 0) means relu.
        if self.name == "maximum" and bound in {"0", "0.0"}:
            return "torch.relu({0})", [tensor]
        return f"torch.clamp({{0}}, {'min' if self.name == 'maximum' else 'max'}={{1}})", [tensor, bound]


def _parse(source: str) -> ast.expr:
    return syntax_tree(source, mode="eval").body


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def _gelu_tanh(x: float) -> float:
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _normal_cdf(x: float) -> float:
    return 0.5 * (1 + math.erf(x / math.sqrt(2)))


def _relu(x: float) -> float:
    return max(x, 0.0)


_ALL = [
    Function("sigmoid", "torch.sigmoid({0})", value=_sigmoid),
    Function("tanh", "torch.tanh({0})", value=math.tanh, scalar="math.tanh({0})"),
    Function("exp", "torch.exp({0})", value=math.exp, scalar="math.exp({0})"),
    Function("expm1", "torch.expm1({0})", value=math.expm1, scalar="math.expm1({0})"),
    Function("log", "torch.log({0})", value=math.log, scalar="math.log({0})"),
    Function("log1p", "torch.log1p({0})", value=math.log1p, scalar="math.log1p({0})"),
    Function("log2", "torch.log2({0})", value=math.log2, scalar="math.log2({0})"),
    Function("sqrt", "torch.sqrt({0})", value=math.sqrt, scalar="math.sqrt({0})"),
    Function("rsqrt", "torch.rsqrt({0})", value=lambda x: 1 / math.sqrt(x), scalar="1 / math.sqrt({0})"),
    Function("square", "torch.square({0})", value=lambda x: x * x, scalar="({0}) ** 2"),
    Function("pow", "torch.pow({0}, {1})", (2, 2), value=math.pow, scalar="({0}) ** ({1})"),
    Function("abs", "torch.abs({0})", value=math.fabs, scalar="abs({0})"),
    Function("sign", "torch.sign({0})", value=lambda x: float((x > 0) - (x < 0))),
    Function("reciprocal", "torch.reciprocal({0})", value=lambda x: 1 / x, scalar="1 / ({0})"),
    Function("sin", "torch.sin({0})", value=math.sin, scalar="math.sin({0})"),
    Function("cos", "torch.cos({0})", value=math.cos, scalar="math.cos({0})"),
    Function("atan", "torch.atan({0})", value=math.atan, scalar="math.atan({0})"),
    Function("sinh", "torch.sinh({0})", value=math.sinh, scalar="math.sinh({0})"),
    Function("cosh", "torch.cosh({0})", value=math.cosh, scalar="math.cosh({0})"),
    Function("asinh", "torch.asinh({0})", value=math.asinh, scalar="math.asinh({0})"),
    Function("erf", "torch.erf({0})", value=math.erf, scalar="math.erf({0})"),
    Function("normal_cdf", "(0.5 * (1 + torch.erf(({0}) / math.sqrt(2))))", value=_normal_cdf),
    Function("relu", "torch.relu({0})", value=_relu),
    Function("relu6", "F.relu6({0})", value=lambda x: min(max(x, 0.0), 6.0)),
    Function(
        "leaky_relu",
        "F.leaky_relu({0}, {1})",
        (1, 2),
        value=lambda x, s=0.01: x if x > 0 else s * x,
        keywords=("negative_slope",),
    ),
    Function(
        "elu",
        "F.elu({0}, {1})",
        (1, 2),
        value=lambda x, a=1.0: x if x > 0 else a * math.expm1(x),
        keywords=("alpha",),
    ),
    Function("selu", "F.selu({0})"),
    Function("silu", "F.silu({0})", value=lambda x: x * _sigmoid(x)),
    Function("gelu", "F.gelu({0})", value=lambda x: x * _normal_cdf(x), keywords=("approximate",)),
    Function("gelu_tanh", "F.gelu({0}, approximate='tanh')", value=_gelu_tanh),
    Function("quick_gelu", "(({0}) * torch.sigmoid(1.702 * ({0})))", value=lambda x: x * _sigmoid(1.702 * x)),
    Function("mish", "F.mish({0})", value=lambda x: x * math.tanh(math.log1p(math.exp(x)))),
    Function("softplus", "F.softplus({0})", value=lambda x: math.log1p(math.exp(x))),
    Function("softsign", "F.softsign({0})", value=lambda x: x / (1 + abs(x))),
    Function("logsigmoid", "F.logsigmoid({0})", value=lambda x: -math.log1p(math.exp(-x))),
    Function("hardsigmoid", "F.hardsigmoid({0})", value=lambda x: min(max(x + 3, 0.0), 6.0) / 6),
    Function("hardswish", "F.hardswish({0})", value=lambda x: x * min(max(x + 3, 0.0), 6.0) / 6),
    Function("hardtanh", "F.hardtanh({0})", value=lambda x: min(max(x, -1.0), 1.0)),
    Function(
        "clamp",
        "torch.clamp({0}, min={1}, max={2})",
        (2, 3),
        value=lambda x, low, high=math.inf: min(max(x, low), high),
    ),
    Function("where", "torch.where({0}, {1}, {2})", (3, 3), value=lambda c, a, b: a if c else b),
    Function("maximum", "", (1, 2), value=max, scalar="max({0}, {1})", form="maximum"),
    Function("minimum", "", (1, 2), value=min, scalar="min({0}, {1})", form="minimum"),
    Function("sum", "torch.sum({0}, dim=-1, keepdim=True)"),
    Function("mean", "torch.mean({0}, dim=-1, keepdim=True)"),
    Function("var", "torch.var({0}, dim=-1, correction=0, keepdim=True)"),
    Function("std", "torch.std({0}, dim=-1, correction=0, keepdim=True)"),
    Function("norm", "torch.linalg.vector_norm({0}, dim=-1, keepdim=True)"),
    Function("softmax", "torch.softmax({0}, dim=-1)"),
    Function("log_softmax", "torch.log_softmax({0}, dim=-1)"),
    Function("logsumexp", "torch.logsumexp({0}, dim=-1, keepdim=True)"),
    Function("cumsum", "torch.cumsum({0}, dim=-1)"),
]
# fmt: off
_ALIASES = {
    "max": "maximum", "min": "minimum", "fmax": "maximum", "fmin": "minimum", "clip": "clamp", "swish": "silu",
    "log_sigmoid": "logsigmoid", "arctan": "atan", "arcsinh": "asinh", "power": "pow", "logistic": "sigmoid", "ln": "log",
    "sgn": "sign", "gelu_new": "gelu_tanh", "phi": "normal_cdf", "hard_swish": "hardswish", "hard_sigmoid": "hardsigmoid",
}
# fmt: on
FUNCTIONS: dict[str, Function] = {function.name: function for function in _ALL}
FUNCTIONS |= {alias: FUNCTIONS[name] for alias, name in _ALIASES.items()}
