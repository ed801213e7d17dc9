"""The arguments of the printed Function, in the reference's order. Pure."""

from __future__ import annotations

import ast

from kernels.derivation import Derivation
from kernels.op_spec import OpSpec, ScalarSpec
from kernels.syntax import syntax_tree


def call_order(derivation: Derivation) -> list[str]:
    """Names of the Function's apply arguments: the reference's own parameters, in its order, then module parameters."""
    return [name for name, _ in arguments(derivation)]


def arguments(derivation: Derivation) -> list[tuple[str, ScalarSpec | None]]:
    """Apply arguments in order: (name, None) for a tensor, (name, scalar) for a scalar that isn't built in."""
    op = derivation.op
    tensors = {t.name for t in op.tensors}
    fixed = {w.split(" is fixed at ")[0] for w in derivation.warnings if " is fixed at " in w}
    scalars = {s.name: s for s in op.scalars if s.name not in fixed}
    order = [n for n in _parameter_names(op) if n in tensors or n in scalars]
    order += [t.name for t in op.tensors if t.name not in order]
    order += [s for s in scalars if s not in order]
    # Parameters with defaults must come last in the printed signature.
    result: list[tuple[str, ScalarSpec | None]] = [(n, None) for n in order if n in tensors]
    return [*result, *((n, scalars[n]) for n in order if n in scalars)]


def _parameter_names(op: OpSpec) -> list[str]:
    """Parameter names of the reference, read from its source without executing it."""
    try:
        tree = syntax_tree(op.source)
    except SyntaxError:
        return []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == op.entry:
            return [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        if isinstance(node, ast.ClassDef) and node.name == op.entry:
            for item in node.body:
                if isinstance(item, ast.FunctionDef) and item.name == "forward":
                    return [a.arg for a in item.args.args if a.arg != "self"]
    return []
