"""Whether a joint graph is determined by its inputs, and what of it a kernel can't reproduce: random numbers, memory that
nobody wrote, views of an input, gradients that aren't there. Imports torch."""

from __future__ import annotations

import torch
from torch import fx

from kernels.derivation import Unsupported

UNWRITTEN = {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted"}
OVERWRITES = {
    "fill",
    "copy",
    "zero",
    "slice_scatter",
    "select_scatter",
    "full_like",
    "zeros_like",
    "ones_like",
}
# A gradient that starts here doesn't come from the result: it is a constant.
CONSTANTS = {
    "zeros_like",
    "new_zeros",
    "zeros",
    "full_like",
    "full",
    "new_full",
    "empty_like",
    "scalar_tensor",
}
STEPS = {"floor", "ceil", "round", "trunc", "sign", "sgn", "heaviside"}


def require_determined(graph: fx.Graph) -> None:
    """Raises Unsupported when a result depends on anything but the inputs."""
    for node in graph.nodes:
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            raise Unsupported(
                f"the reference draws random numbers ({name_of(node)}): it is no function of its arguments",
                where=line_of(node),
                needed="the random tensor as an argument, or a seed and philox_uniform (docs/add-an-op.md)",
            )
    for node in graph.nodes:
        if name_of(node) in UNWRITTEN and _is_read(node):
            raise Unsupported(
                f"the reference reads memory that it has not written ({name_of(node)})",
                where=line_of(node),
                needed="torch.zeros_like, or a tensor that is filled first",
            )


def require_gradient(graph: fx.Graph, wanted: list[fx.Node | None]) -> list[bool]:
    """For each wanted gradient whether it depends on the results' gradients. Raises Unsupported when none does."""
    reached = [node is not None and _comes_from_result(node) for node in wanted]
    if wanted and not any(reached):
        steps = [n for n in graph.nodes if name_of(n) in STEPS]
        which = f" ({name_of(steps[-1])})" if steps else ""
        raise Unsupported(
            f"the reference has no gradient{which}: it is zero or missing for every input",
            where=line_of(steps[-1]) if steps else None,
            needed="a differentiable function; a step passes its gradient on as x + (step(x) - x).detach()",
        )
    return reached


def viewed_input(result: fx.Node) -> str | None:
    """The input that a result is, or is a view of; None when it is computed."""
    node = result
    while node.op == "call_function" and (_is_view(node) or name_of(node) == "clone"):
        first = node.args[0]
        if not isinstance(first, fx.Node):
            return None
        node = first
    return node.name if node.op == "placeholder" else None


def name_of(node: fx.Node) -> str:
    """ "rand_like" of aten.rand_like.default."""
    return str(node.target).removeprefix("aten.").split(".")[0]


def line_of(node: fx.Node) -> str | None:
    """The line of the reference that the tracer has marked the node with."""
    stack = node.meta.get("stack_trace") or ""
    return stack.splitlines()[0] if stack.startswith("line ") else None


def _is_view(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return bool(schema and schema.returns and schema.returns[0].alias_info is not None)


def _is_read(node: fx.Node) -> bool:
    for user in node.users:
        if user.op == "output":
            return True
        if name_of(user) in OVERWRITES and user.args[0] is node:
            continue
        if (_is_view(user) and not _is_read(user)) or name_of(user) == "sym_size":
            continue
        return True
    return False


def _comes_from_result(gradient: fx.Node) -> bool:
    seen: set[fx.Node] = set()
    stack = [gradient]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.op == "placeholder" and str(node.target).startswith("tangents"):
            return True
        if name_of(node) not in CONSTANTS:
            stack.extend(node.all_input_nodes)
    return False
