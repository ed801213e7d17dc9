"""What a template is, and how a reference or a traced op is matched to one. Pure.

A template answers where derivation ends: its reference is known word for word, so it is not traced; its kernels are text with
the names of a ModuleStyle. To everything else (profile, act, gauntlet) it is a Derivation like any other.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Protocol

from kernels.derivation import Derivation
from kernels.module_style import ModuleStyle
from kernels.op_spec import OpSpec, TensorSpec
from kernels.row_program import RowProgram
from kernels.syntax import syntax_tree
from kernels.traced import NodeArg, TracedNode, TracedOp, TracedOutput

PREFIX = "template."


class Template(Protocol):
    """One template."""

    name: str
    reference: str  # the source of its reference: what a catalog file carries
    entry: str

    def tensors(self) -> tuple[TensorSpec, ...]:
        """Roles of the reference's tensors."""
        ...

    def derivation(self, op: OpSpec) -> Derivation:
        """The decisions, as the rules would record them."""
        ...

    def print(self, derivation: Derivation, style: ModuleStyle) -> str:
        """The source of the ops module."""
        ...

    def kernel_names(self, style: ModuleStyle) -> list[str]:
        """Names of the kernels that the module launches."""
        ...


def is_reference_of(template: Template, op: OpSpec) -> bool:
    """Whether the op's entry is the template's reference; names of the function, docstrings and layout don't count."""
    return op.kind == "function" and _body(op.source, op.entry) == _body(template.reference, template.entry)


def as_traced(template: Template, op: OpSpec, sizes: Sequence[str]) -> TracedOp:
    """The op as one node, in place of a graph. `sizes`: its axes."""
    filled = op if op.tensors else op.model_copy(update={"tensors": template.tensors()})
    inputs = [
        TracedNode(id=i, op="input", dtype="int64" if t.dtype == "int64" else "float", name=t.name)
        for i, t in enumerate(filled.tensors)
    ]
    node = TracedNode(
        id=len(inputs),
        op=PREFIX + template.name,
        args=tuple(NodeArg(id=n.id) for n in inputs),
        dtype="float",
    )
    return TracedOp(
        op=filled,
        nodes=(*inputs, node),
        outputs=(TracedOutput(name="0", node=node.id),),
        gradients=tuple(TracedOutput(name=t.name, node=node.id) for t in filled.tensors if t.needs_grad),
        axes=dict.fromkeys(sizes, 1),
    )


def no_program() -> RowProgram:
    """The row program of a template: there is none."""
    return RowProgram(axes=(), rows=(), cols=(), tensors=(), nodes=(), stores=())


def _body(source: str, entry: str) -> str | None:
    """A function's parameters and statements, without its name, docstring and annotations."""
    try:
        tree = syntax_tree(source)
    except SyntaxError:
        return None
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == entry:
            body = node.body
            if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
                body = body[1:]
            parameters = ", ".join(a.arg for a in node.args.args)
            return f"({parameters}) " + "\n".join(ast.dump(statement) for statement in body)
    return None
