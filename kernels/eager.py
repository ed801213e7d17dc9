"""What eager PyTorch moves and holds for an op, read off its traced graph: the baseline of the bytes model. Pure."""

from __future__ import annotations

from collections.abc import Callable

from kernels.traced import TracedOp, references

VIEWS = {
    "detach", "alias", "expand", "view", "reshape", "permute", "transpose", "t", "unsqueeze", "squeeze", "slice", "select",
    "split", "chunk", "unbind", "_unsafe_view", "split_with_sizes", "expand_as", "empty_like",
}  # fmt: skip


def _backward_temporaries(
    traced: TracedOp,
    source: dict[int, int],
    live: set[int],
    fused: set[int | None],
    kept: set[int],
    full: Callable[[int], bool],
) -> int:
    """Most full tensors alive at once in eager's backward besides inputs, results and incoming gradients.

    A kept tensor dies with its last reader. A formula's intermediates live until the formula ends: they are temporaries of
    one C++ expression, and one autograd number.
    """
    gradients = {source.get(o.node, o.node) for o in traced.gradients if o.node is not None}
    order = [
        n for n in traced.nodes if n.backward and n.id in live and n.id not in source and n.op != "tangent"
    ]
    ends: dict[int, int] = {}
    formula_ends = {node.sequence: step for step, node in enumerate(order)}
    for step, node in enumerate(order):
        for read in {source.get(r, r) for r in references(node)}:
            ends[read] = max(ends.get(read, 0), step)
    for node in order:
        if node.sequence is not None:
            ends[node.id] = max(ends.get(node.id, 0), formula_ends[node.sequence])
    alive = set(kept)
    most = len(alive)
    for step, node in enumerate(order):
        if full(node.id) and (node.sequence not in fused or node.id in gradients):
            alive.add(node.id)
        most = max(most, len(alive))
        alive = {one for one in alive if ends.get(one, 0) > step or one in gradients}
    return most


def eager_traffic(traced: TracedOp) -> tuple[int, int, int]:
    """Full tensors that eager reads and writes, forward and backward, and how many it holds beyond what any version must.

    Each ATen operation reads its inputs and writes its output; views move nothing, and the exporter's closing clone
    isn't there in eager.
    """
    largest = max((len(n.shape) for n in traced.nodes), default=0)
    closing = {o.node for o in traced.outputs}
    live = _used(traced, [o.node for o in (*traced.outputs, *traced.gradients) if o.node is not None])

    def full(index: int) -> bool:
        node = traced.nodes[index]
        return len(node.shape) == largest and not any(q.is_number and q.coef == 1 for q in node.shape)

    # With double backward allowed, as in a trace, these two gradients are spelt out; eager runs one kernel for each.
    fused = {n.sequence for n in traced.nodes if n.op in ("aten.silu.default", "aten.mish.default")} - {None}
    counted: set[int | None] = set()
    source: dict[int, int] = {}  # what a view looks at
    totals = {False: 0, True: 0}
    kept: set[int] = set()
    for node in traced.nodes:
        reads = [source.get(r, r) for r in references(node)]
        view = node.op == "getitem" or (node.op.startswith("aten.") and node.op.split(".")[1] in VIEWS)
        if view or (node.op == "aten.clone.default" and node.id in closing):
            source[node.id] = reads[0] if reads else node.id
            continue
        if node.op in ("input", "tangent") or node.id not in live:
            continue
        if node.backward and node.sequence in fused:
            if node.sequence not in counted:
                counted.add(node.sequence)
                totals[True] += 3  # reads the gradient and the input, writes the gradient
            continue
        writes = 1 if full(node.id) or node.dtype == "none" else 0
        totals[node.backward] += sum(1 for r in set(reads) if full(r)) + writes
        if node.backward:
            inputs = ("input", "tangent")
            kept |= {
                r
                for r in reads
                if full(r) and not traced.nodes[r].backward and traced.nodes[r].op not in inputs
            }
    results = {source.get(o, o) for o in closing if o is not None}
    kept -= results
    temporaries = _backward_temporaries(traced, source, live, fused, kept, full)
    return totals[False], totals[True], temporaries


def _used(traced: TracedOp, roots: list[int]) -> set[int]:
    """Traced nodes that the roots depend on."""
    seen: set[int] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack.extend(references(traced.nodes[node]))
    return seen
