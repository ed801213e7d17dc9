"""A scalar loss's gradient in the forward: when, what it becomes, and what is said about it."""

from __future__ import annotations

import pytest

from kernels.derivation import Derivation
from kernels.op_spec import TensorSpec
from kernels.passes.gradient_in_forward import scalar_tangent, with_tangent_one
from kernels.passes.graph import Graph
from kernels.quantity import Quantity
from kernels.row_program import Axis, Load, Tensor
from tests.unit.kernels.references import derived, printed

ROWS, COLS = ("n_rows",), ("n_cols",)
CROSS_ENTROPY = "def f(x, target):\n    return F.cross_entropy(x, target)\n"
MSE = "def f(x, y):\n    return F.mse_loss(x, y)\n"


def graph(*tangents: Tensor) -> Graph:
    axes = {name: Axis(name=name, size=Quantity.of(name)) for name in ("n_rows", "n_cols")}
    x = Tensor(name="x", dims=(ROWS, COLS), dtype="float", kind="input")
    return Graph({t.name: t for t in (x, *tangents)}, axes)


def tangent(name: str = "dy", dims: tuple[tuple[str, ...], ...] = ()) -> Tensor:
    return Tensor(name=name, dims=dims, dtype="float", kind="tangent")


def decision(d: Derivation) -> list[str]:
    return [r.note for r in d.rules if r.rule == "gradient in the forward"]


# --- the pass alone ---


def test_only_one_number_is_a_scalar_tangent():
    assert scalar_tangent(graph(tangent())) == "dy"
    assert scalar_tangent(graph(tangent(dims=(ROWS,)))) is None
    assert scalar_tangent(graph(tangent("dy0"), tangent("dy1"))) is None


def test_the_incoming_gradient_becomes_one():
    before = graph(tangent())
    n_cols = before.symbol(Quantity.of("n_cols"))
    scaled = before.map("div", before.map("mul", before.const(2), before.load("dy")), n_cols)
    root = before.map("mul", scaled, before.load("x"))
    after, names = with_tangent_one(before, [root], "dy")
    assert [n.tensor for n in after.nodes if isinstance(n, Load)] == ["x"]
    factor, x = after.is_map(names[root], "mul") or ()
    # 2 * dy / n_cols * x became 2 / n_cols * x: a division that the kernel can write.
    top, bottom = after.is_map(factor, "div") or ()
    assert (after.number(top), after.quantity(bottom)) == (2, Quantity.of("n_cols"))
    assert after.nodes[x] == before.nodes[before.load("x")]


# --- when ---


@pytest.mark.parametrize(
    ("source", "moved"),
    [
        # x read and dx written; before x was read twice.
        (CROSS_ENTROPY, (2, 0)),
        ("def f(x, target):\n    return F.cross_entropy(x, target, label_smoothing=0.1)\n", (2, 0)),
        # Two inputs read; both have gradients.
        (MSE, (4, 0)),
        ("def f(x, y):\n    return (1 - F.cosine_similarity(x, y, dim=-1)).mean()\n", (4, 0)),
    ],
)
def test_a_scalar_loss_writes_its_gradient_in_the_forward(source: str, moved: tuple[int, int]):
    d = derived(source)
    assert d.gradient_in_forward
    assert (d.traffic.forward_tensors, d.traffic.backward_tensors) == moved
    assert decision(d)[0].startswith("the forward writes")
    kernels = [s.program for s in d.forward_steps if s.schedule]
    assert len(kernels) == 1
    written = {s.tensor for s in kernels[0].stores}
    assert {t.name for t in kernels[0].tensors if t.kind == "gradient"} <= written
    assert all(t.kind != "tangent" for t in kernels[0].tensors)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        # Its backward reads nothing.
        ("def f(x):\n    return x.mean()\n", "reads no full tensor"),
        # The gradient needs the norm of everything first.
        ("def f(x):\n    return x.float().square().sum().sqrt()\n", "more than one kernel"),
    ],
)
def test_not_where_no_pass_is_saved(source: str, reason: str):
    d = derived(source)
    assert not d.gradient_in_forward
    assert reason in decision(d)[0]
    assert "HAS_GRADIENTS" not in printed(source)


def test_not_for_a_weight_whose_gradient_is_a_sum_over_rows():
    tensors = (TensorSpec(name="x", shape=("*", "n_cols")), TensorSpec(name="weight", shape=("n_cols",)))
    d = derived("def f(x, weight):\n    return (x * weight).square().mean()\n", tensors=tensors)
    assert not d.gradient_in_forward
    assert decision(d)


@pytest.mark.parametrize(
    "source",
    [
        "def f(x, target):\n    return F.cross_entropy(x, target, reduction='none')\n",
        "def f(x):\n    return torch.softmax(x, -1)\n",
        "def f(x, y):\n    return F.mse_loss(x, y), F.l1_loss(x, y)\n",
    ],
)
def test_not_considered_without_one_scalar_result(source: str):
    d = derived(source)
    assert not d.gradient_in_forward
    assert decision(d) == []


# --- what is printed and said ---


def test_memory_at_the_peak_is_the_inputs_and_their_gradients():
    assert derived(CROSS_ENTROPY).traffic.peak_tensors == 2


def test_the_count_of_labels_is_made_once_and_under_its_name():
    module = printed(CROSS_ENTROPY)
    assert module.count("count = (target != -100).float().sum()") == 1
    assert module.index("count = (target") < module.index("_op_forward_kernel[")


def test_a_long_row_is_read_again_from_the_cache():
    d = derived(CROSS_ENTROPY)
    assert (d.forward_schedule.name, d.backward_schedule.name) == ("looped_row", "looped_row")
    module = printed(CROSS_ENTROPY)
    assert module.index("evict_last") < module.index("if HAS_GRADIENTS:") < module.index("evict_first")


def test_a_backward_that_may_find_its_gradient_starts_few_programs():
    assert derived(MSE).backward_schedule.block_size.startswith("8192 elements")
    assert derived("def f(x):\n    return F.relu(x)\n").backward_schedule.block_size.startswith(
        "1024 elements"
    )
