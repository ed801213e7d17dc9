"""The gradient of a scalar loss is computed in the forward, when that spares the backward a pass over its inputs. Pure.

A loss that is one number has one incoming gradient, and `loss.backward()` makes it 1. The forward kernel has its inputs at
hand, so it writes the gradient for 1 as well; the backward has nothing left to do then, and computes it anew where the
incoming gradient is another number, or where it runs a second time.
Before: read x; read x, write dx. After: read x, write dx.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernels.passes.graph import Graph
from kernels.passes.rewrite import rebuild
from kernels.passes.stages import Stage
from kernels.row_program import Load, Map, Node, RowProgram


@dataclass(frozen=True)
class Decision:
    """Whether the forward computes the gradient, and why."""

    applies: bool
    why: str


def scalar_tangent(graph: Graph) -> str | None:
    """The incoming gradient, when there is one and it is one number; None otherwise."""
    tangents = [t for t in graph.tensors.values() if t.kind == "tangent"]
    return tangents[0].name if len(tangents) == 1 and not tangents[0].axes else None


def with_tangent_one(graph: Graph, roots: list[int], tangent: str) -> tuple[Graph, dict[int, int]]:
    """The roots for an incoming gradient of 1 in a graph of their own, and old id -> new id."""

    def rewrite(g: Graph, node: Node, _old: int) -> int | None:
        if isinstance(node, Load) and node.tensor == tangent:
            return g.const(1)
        if isinstance(node, Map) and node.fn == "div" and all(g.quantity(a) is not None for a in node.args):
            return g.add(
                node
            )  # stays `2 / n_elements`, which the kernel can write: folded, the host would have to
        return None

    result, names = rebuild(graph, roots, rewrite)
    # What another plan puts between its kernels isn't there in this one.
    result.tensors = {name: t for name, t in result.tensors.items() if t.kind != "partial"}
    return result, names


def decide(forward: list[Stage], backward: list[Stage], joint: list[Stage]) -> Decision:
    """Compare two plans: `forward` and `backward` apart, or `joint`, the forward with the gradients for 1."""
    kernels = [[s.program for s in plan if not s.host] for plan in (forward, backward, joint)]
    if any(len(plan) != 1 for plan in kernels):
        return Decision(False, "not done: it would take more than one kernel")
    (before,), (after,), (both,) = kernels
    written = [t.name for t in both.tensors if t.kind == "gradient"]
    if not set(written) <= {s.tensor for s in both.stores}:
        return Decision(False, "not done: a gradient is a sum over rows")
    if not full_loads(before) & full_loads(after):
        return Decision(False, "not done: the backward reads no full tensor that the forward reads")
    apart = full_tensors_moved(before) + full_tensors_moved(after)
    return Decision(
        True,
        f"the forward writes {' and '.join(written)} for an incoming gradient of 1, which loss.backward() gives: "
        f"{full_tensors_moved(both)} full tensors move instead of {apart}; for any other the backward computes it anew",
    )


def full_loads(program: RowProgram) -> set[str]:
    """Full tensors that a kernel reads in whole."""
    axes = program.node_axes()
    return {
        n.tensor
        for i, n in enumerate(program.nodes)
        if isinstance(n, Load) and program.role_of(axes[i]) == "full"
    }


def full_tensors_moved(program: RowProgram) -> int:
    """Full tensors that a kernel reads and writes; a packed tensor counts once for each part that it touches."""
    axes = program.node_axes()
    loads = sum(
        1 for i, n in enumerate(program.nodes) if isinstance(n, Load) and program.role_of(axes[i]) == "full"
    )
    stores = sum(
        1 for s in program.stores if program.role_of(frozenset(program.tensor(s.tensor).axes)) == "full"
    )
    return loads + stores
