"""Cut linear layers off a traced loss: logits = x @ weight.T (+ bias) become inputs of the loss that is left. Pure.

Before: `cross_entropy(x @ weight.t(), target)`. After: the linear (x, weight), and `cross_entropy(logits, target)`, whose
joint graph ends in dlogits; dx, dweight and dbias follow from it.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernels.derivation import Linear
from kernels.op_spec import TensorSpec
from kernels.traced import Arg, ListArg, NodeArg, TracedNode, TracedOp, TracedOutput, references


@dataclass(frozen=True)
class Cut:
    """The linears, and the traced loss of their logits."""

    linears: tuple[Linear, ...]
    loss: TracedOp
    rows: str  # the axis of the rows, "*" or a name


def cut_linear(traced: TracedOp) -> Cut | None:
    """The cut, when the reference ends in one number and every linear that it has takes two inputs as they are."""
    if (
        len(traced.outputs) != 1
        or traced.outputs[0].node is None
        or traced.nodes[traced.outputs[0].node].shape
    ):
        return None
    found = [_linear(traced, node, index) for index, node in enumerate(_products(traced))]
    linears = [linear for linear in found if linear is not None]
    if not linears or len(linears) != len(found):
        return None
    gradients: list[tuple[str, int]] = []
    for linear, _ in linears:
        upstream = _upstream(traced, linear)
        if upstream is not None:
            gradients.append((linear.logits, upstream))
    if not gradients:
        return None
    spec = {t.name: t for t in traced.op.tensors}
    rows = {spec[linear.x].shape[0] for linear, _ in linears}
    if len(rows) != 1:
        return None
    logits = {at: linear for linear, at in linears}
    loss = _loss(traced, logits, gradients)
    return Cut(tuple(linear for linear, _ in linears), loss, rows.pop()) if loss is not None else None


def _products(traced: TracedOp) -> list[TracedNode]:
    return [n for n in traced.nodes if n.op in ("aten.mm.default", "aten.addmm.default") and not n.backward]


def _linear(traced: TracedOp, node: TracedNode, index: int) -> tuple[Linear, int] | None:
    """The linear of a product, and the node that holds its logits."""
    first = 1 if node.op == "aten.addmm.default" else 0
    x, weight = _input(traced, node.args[first]), _transposed_input(traced, node.args[first + 1])
    bias = _input(traced, node.args[0]) if first else None
    if x is None or weight is None or (first and (bias is None or len(node.kwargs))):
        return None
    at = node.id
    readers = [n for n in traced.nodes if at in references(n) and not n.backward]
    if not first and len(readers) == 1 and readers[0].op == "aten.add.Tensor" and not readers[0].kwargs:
        added = [a for a in (_input(traced, arg) for arg in readers[0].args) if a is not None]
        if len(added) == 1 and len(traced.nodes[_node_of(traced, added[0])].shape) == 1:
            bias, at = added[0], readers[0].id
    name = "logits" if index == 0 else f"logits_{index + 1}"
    taken = {t.name for t in traced.op.tensors} | {s.name for s in traced.op.scalars}
    return None if name in taken else (Linear(x=x, weight=weight, bias=bias, logits=name), at)


def _upstream(traced: TracedOp, linear: Linear) -> int | None:
    """The node of dlogits: the left factor of dx, or the transposed one of dweight. None where no gradient is wanted."""
    by_name = {g.name: g.node for g in traced.gradients}
    node = by_name.get(linear.x)
    if node is not None and traced.nodes[node].op == "aten.mm.default":
        first = traced.nodes[node].args[0]
        return first.id if isinstance(first, NodeArg) else None
    return None


def _loss(traced: TracedOp, logits: dict[int, Linear], gradients: list[tuple[str, int]]) -> TracedOp | None:
    """What is left when the logits are inputs. None when it still needs an x, a weight or a bias."""
    cut = {name for linear in logits.values() for name in (linear.x, linear.weight, linear.bias) if name}
    spec = {t.name: t for t in traced.op.tensors}
    output = traced.outputs[0].node
    needed: set[int] = set()
    stack = [n for n in [output, *(node for _, node in gradients)] if n is not None]
    while stack:
        at = stack.pop()
        if at not in needed:
            needed.add(at)
            stack += [] if at in logits else references(traced.nodes[at])
    if any(traced.nodes[n].op == "input" and traced.nodes[n].name in cut for n in needed):
        return None
    wanted = {name for name, _ in gradients}
    tensors = [
        TensorSpec(
            name=linear.logits,
            shape=(spec[linear.x].shape[0], spec[linear.weight].shape[0]),
            needs_grad=linear.logits in wanted,
        )
        for linear in logits.values()
    ]
    kept = [t.model_copy(update={"needs_grad": False}) for t in traced.op.tensors if t.name not in cut]
    # Inputs come first, as in any trace, in the order of the tensors.
    first = sorted(logits, key=lambda at: [t.name for t in tensors].index(logits[at].logits))
    first += [n.id for t in kept for n in traced.nodes if n.op == "input" and n.name == t.name]
    order = first + [n for n in sorted(needed) if n not in first]
    new = {old: position for position, old in enumerate(order)}
    nodes: list[TracedNode] = []
    for old in order:
        node = traced.nodes[old]
        update: dict[str, object] = {"id": new[old]}
        if old in logits:
            # The sum of chunks is exact only in fp32: the loss is rounded at the end.
            update |= {
                "op": "input",
                "args": (),
                "kwargs": {},
                "name": logits[old].logits,
                "user_cast": False,
            }
        else:
            update |= {
                "args": tuple(_renamed(a, new) for a in node.args),
                "kwargs": {k: _renamed(a, new) for k, a in node.kwargs.items()},
            }
        if old == output:
            update["dtype"] = "float32"
        nodes.append(node.model_copy(update=update))
    known = {a for t in (*tensors, *kept) for a in t.shape}
    axes = {a: m for a, m in traced.axes.items() if a in known or a == "n_rows"}
    op = traced.op.model_copy(
        update={"name": "loss", "tensors": (*tensors, *kept), "source": "", "summary": ""}
    )
    return TracedOp(
        op=op,
        nodes=tuple(nodes),
        outputs=(TracedOutput(name="0", node=new[output] if output is not None else None),),
        gradients=tuple(TracedOutput(name=name, node=new[node]) for name, node in gradients),
        axes=axes,
        fixed=traced.fixed,
        tied={a: s for a, s in traced.tied.items() if a in axes},
    )


def _renamed(arg: Arg, new: dict[int, int]) -> Arg:
    if isinstance(arg, NodeArg):
        return arg.model_copy(update={"id": new[arg.id]})
    if isinstance(arg, ListArg):
        return ListArg(items=tuple(_renamed(item, new) for item in arg.items))
    return arg


def _input(traced: TracedOp, arg: Arg) -> str | None:
    node = traced.nodes[arg.id] if isinstance(arg, NodeArg) else None
    return node.name if node is not None and node.op == "input" else None


def _transposed_input(traced: TracedOp, arg: Arg) -> str | None:
    node = traced.nodes[arg.id] if isinstance(arg, NodeArg) else None
    if node is None or node.op not in ("aten.t.default", "aten.transpose.int", "aten.permute.default"):
        return None
    return _input(traced, node.args[0])


def _node_of(traced: TracedOp, name: str) -> int:
    return next(n.id for n in traced.nodes if n.op == "input" and n.name == name)
