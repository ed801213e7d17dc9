"""Which free names of an expression are tensors, per-column vectors and numbers. Guesses become questions. Pure."""

from __future__ import annotations

import ast

from agents.dev.expression_functions import FUNCTIONS
from agents.dev.expression_syntax import MODULES
from agents.dev.refused import Mistake
from kernels.op_spec import ScalarSpec, TensorSpec

MAX_TENSORS = 4

# Full tensors by custom, in the order of a signature: `b * silu(a)` takes (a, b).
_FULL = (
    "x",
    "input",
    "a",
    "gate",
    "up",
    "b",
    "left",
    "right",
    "u",
    "v",
    "q",
    "k",
    "y",
    "other",
    "residual",
    "z",
)
_COLUMN = {"weight": "ones", "w": "ones", "gamma": "ones", "scale": "ones", "bias": "zeros", "shift": "zeros"}
# fmt: off
_SCALAR = {
    "eps": 1e-6, "epsilon": 1e-6, "alpha": 1.0, "beta": 1.0, "lambda_": 1.0, "lam": 1.0, "tau": 1.0, "temperature": 1.0,
    "slope": 0.01, "negative_slope": 0.01, "limit": 7.0, "cap": 30.0, "softcap": 30.0, "threshold": 1.0, "t": 1.0, "c": 1.0,
}
# fmt: on


class Roles:
    """Decides which free names are tensors, columns and scalars."""

    def __init__(self, tree: ast.expr, parameters: list[tuple[str, float | None]]):
        called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
        found = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in called]
        found.sort(key=lambda node: (node.lineno, node.col_offset))
        names = [name for name in dict.fromkeys(node.id for node in found) if name not in {"pi", *MODULES}]
        names.sort(key=lambda name: _FULL.index(name) if name in _FULL else len(_FULL))
        defaults = dict(parameters)
        if defaults:
            undeclared = [name for name in names if name not in defaults]
            if undeclared:
                raise Mistake(f"`{undeclared[0]}` is used but not an argument on the left side.")
            unused = [name for name in defaults if name not in names]
            if unused:
                raise Mistake(
                    f"`{unused[0]}` is an argument on the left side but the expression does not use it."
                )
            names = list(defaults)
        self.tensors: list[TensorSpec] = []
        self.scalars: list[ScalarSpec] = []
        self.questions: list[str] = []
        exponents = {
            node.right.id
            for node in ast.walk(tree)
            if isinstance(node, ast.BinOp)
            and isinstance(node.op, ast.Pow)
            and isinstance(node.right, ast.Name)
        }
        has_gain = bool({"gamma", "weight", "w"} & set(names))
        if functions := [name for name in names if name in FUNCTIONS]:
            raise Mistake(f"`{functions[0]}` is a function: write `{functions[0]}(x)`.")
        only_exponent = exponents - {
            node.id
            for node in found
            if node.id in exponents
            and not any(node is p.right for p in ast.walk(tree) if isinstance(p, ast.BinOp))
        }
        for name in names:
            default = defaults.get(name)
            if default is None and name in only_exponent:
                default = 2.0
                self.questions.append(
                    f"The exponent `{name}` was taken as a number, {default}. Change it with `{name}=…`."
                )
            if default is None and name in _SCALAR and not (name == "beta" and has_gain):
                default = _SCALAR[name]
                self.questions.append(
                    f"`{name}` was taken as a number, {default}. Change it with `{name}=…`."
                )
            if default is not None:
                self.scalars.append(ScalarSpec(name=name, default=default, constexpr=name in exponents))
            elif name in _COLUMN or (name == "beta" and has_gain):
                init = _COLUMN.get(name, "zeros")
                self.tensors.append(
                    TensorSpec(
                        name=name,
                        shape=("n_cols",),
                        learnable=True,
                        init="ones" if init == "ones" else "zeros",
                    )
                )
                self.questions.append(
                    f"`{name}` was taken as a learnable vector, one value per column. A full tensor: `{name}.shape=full`."
                )
            else:
                self.tensors.append(TensorSpec(name=name, shape=("*", "n_cols")))
                if name not in _FULL:
                    self.questions.append(
                        f"`{name}` was taken as a full tensor. A vector, one value per column: `{name}.shape=column`."
                    )
        self.tensor_names = {tensor.name for tensor in self.tensors}
        if not any(tensor.shape != ("n_cols",) for tensor in self.tensors):
            raise Mistake("The expression has no tensor: use `x` (and `a`, `b`, … for more).")
        if len(self.tensors) > MAX_TENSORS:
            raise Mistake(
                f"The expression has {len(self.tensors)} tensors ({', '.join(t.name for t in self.tensors)}); at most {MAX_TENSORS} are supported."
            )
