"""Rebuilding an expression graph bottom-up, and what passes ask about it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kernels.passes.graph import Graph
from kernels.row_program import Cast, Gather, Map, Node, Reduce, Scan, Uniform, operands

# Given the new graph, the node with its operands already renamed, and the old id: a replacement, or None to copy.
Rewrite = Callable[[Graph, Node, int], int | None]


def renamed(node: Node, names: dict[int, int]) -> Node:
    """`node` with its operands renamed."""
    if isinstance(node, Map):
        return node.model_copy(update={"args": tuple(names[a] for a in node.args)})
    if isinstance(node, Reduce | Scan | Cast):
        return node.model_copy(update={"arg": names[node.arg]})
    if isinstance(node, Gather):
        return node.model_copy(update={"index": names[node.index]})
    if isinstance(node, Uniform):
        return node.model_copy(update={"seed": names[node.seed]})
    return node


def reachable(graph: Graph, roots: Iterable[int]) -> list[int]:
    """Nodes that the roots depend on, in topological order."""
    seen: set[int] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack.extend(operands(graph.nodes[node]))
    return sorted(seen)


def rebuild(
    graph: Graph, roots: Iterable[int], rewrite: Rewrite | None = None
) -> tuple[Graph, dict[int, int]]:
    """A new graph with what the roots need, rewritten bottom-up; and old id -> new id."""
    result = Graph(graph.tensors, graph.axes)
    names: dict[int, int] = {}
    for old in reachable(graph, roots):
        result.line = graph.lines[old]
        node = renamed(graph.nodes[old], names)
        replacement = rewrite(result, node, old) if rewrite else None
        names[old] = replacement if replacement is not None else copy(result, node)
    return result, names


def copy(graph: Graph, node: Node) -> int:
    """Add a node through the folding constructor, so that new identities apply."""
    return graph.map(node.fn, *node.args) if isinstance(node, Map) else graph.add(node)


def substitute(graph: Graph, root: int, replacements: dict[int, int]) -> int:
    """`root` with some nodes replaced by others of the same graph."""
    names: dict[int, int] = {}
    for old in reachable(graph, [root]):
        if old in replacements:
            names[old] = replacements[old]
            continue
        node = renamed(graph.nodes[old], names)
        names[old] = old if node == graph.nodes[old] else copy(graph, node)
    return names[root]


def uses(graph: Graph, roots: Iterable[int]) -> dict[int, int]:
    """How often each reachable node is read; a root counts as one more."""
    roots = list(roots)
    counts = dict.fromkeys(reachable(graph, roots), 0)
    for node in list(counts):
        for operand in operands(graph.nodes[node]):
            counts[operand] += 1
    for root in roots:
        counts[root] += 1
    return counts
