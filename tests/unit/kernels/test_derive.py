"""Deriving: what is decided about an op, and what is answered when the rules don't reach."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kernels.derivation import Derivation, Unsupported
from kernels.derive import derive
from kernels.op_spec import TensorSpec
from tests.unit.kernels.references import RELU_SQUARED, RMS_NORM, SWIGLU_PACKED, derived, traced

LAYER_NORM = (
    "def f(x, weight, bias, eps=1e-5):\n    return F.layer_norm(x, (x.shape[-1],), weight, bias, eps)\n"
)


def test_relu_squared():
    d = derived(RELU_SQUARED)
    assert d.tier == 1
    assert d.forward_formula == "y = max(x, 0)²"
    assert d.gradient_formulas == {"x": "(0 if x <= 0 else 2 * dy * x)"}
    assert [s.name for s in d.saved] == ["x"]
    assert d.recomputed == ()
    assert (d.traffic.forward_tensors, d.traffic.backward_tensors) == (2, 3)
    assert (d.forward_schedule.name, d.backward_schedule.name) == ("flat", "flat")


def test_a_derivation_survives_json():
    d = derived(RMS_NORM)
    assert Derivation.model_validate_json(d.model_dump_json()) == d


def test_rms_norm_saves_rstd_and_keeps_the_references_cast():
    d = derived(RMS_NORM)
    assert [s.name for s in d.saved] == ["x", "weight", "rstd"]
    assert [s.role for s in d.saved] == ["full", "column", "row"]
    assert len(d.casts_kept) == 1
    assert d.casts_kept[0].startswith("line 7")
    assert (d.forward_schedule.name, d.backward_schedule.name) == ("persistent_row", "row_block")


def test_layer_norm_has_the_textbook_gradient():
    d = derived(LAYER_NORM)
    assert d.definitions["mean"] == "sum(x) / n_cols"
    assert d.gradient_formulas["bias"] == "sum(dy)"
    assert {s.name for s in d.saved} == {"x", "weight", "mean", "rstd"}


def test_softmax_saves_its_result():
    assert [s.name for s in derived("def f(x):\n    return torch.softmax(x, -1)\n").saved] == ["y"]


def test_packed_halves_are_two_loads_of_one_tensor():
    d = derived(SWIGLU_PACKED)
    assert (d.traffic.forward_tensors, d.traffic.backward_tensors) == (3, 5)
    assert d.forward_schedule.name == "tile"


@pytest.mark.parametrize(
    ("source", "eager"),
    [
        # aten.silu reads x, mul reads both and writes; backward: two products, and silu_backward as one kernel.
        ("def f(a, b):\n    return F.silu(a) * b\n", (5, 9)),
        (RELU_SQUARED, (4, 10)),
    ],
)
def test_eagers_traffic_counts_the_kernels_that_eager_runs(source: str, eager: tuple[int, int]):
    t = derived(source).traffic
    assert (t.eager_forward_tensors, t.eager_backward_tensors) == eager


def test_a_mean_of_losses_is_one_kernel_and_a_sum():
    d = derived("def f(x, y):\n    return F.mse_loss(x, y)\n")
    assert [s.schedule.name for s in d.forward_steps if s.schedule] == ["flat"]
    assert d.forward.accumulates[0].tensor == "out"


def test_cross_entropy_divides_by_the_valid_rows_on_the_host():
    d = derived("def f(x, target):\n    return F.cross_entropy(x, target)\n")
    assert [s.schedule is None for s in d.forward_steps] == [True, False, True]


def test_q_and_k_with_different_heads_get_kernels_of_their_own():
    tensors = (
        TensorSpec(name="q", shape=("b", "t", "h", "d")),
        TensorSpec(name="k", shape=("b", "t", "g", "d")),
    )
    d = derived("def f(q, k):\n    return F.normalize(q, dim=-1), F.normalize(k, dim=-1)\n", tensors=tensors)
    assert len(d.forward_steps) == 2


@pytest.mark.parametrize(
    ("source", "node", "word"),
    [
        ("def f(x):\n    return x.sort()[0]\n", "aten.sort.default", "sort"),
        ("def f(x):\n    return torch.linalg.matrix_exp(x[:13, :13])\n", None, ""),
        ("def f(x):\n    return F.dropout(x, 0.5)\n", None, ""),
        ("def f(x):\n    return x ** 2.3\n", "aten.pow.Tensor_Scalar", "power"),
        ("def f(x):\n    return x[..., :3]\n", "aten.slice.Tensor", "slice"),
        ("def f(x, y):\n    return x @ y.t()\n", "aten.mm.default", "mm"),
    ],
)
def test_an_op_outside_the_rules_says_where_and_what(source: str, node: str | None, word: str):
    with pytest.raises(Unsupported) as refused:
        derived(source)
    assert word in refused.value.reason
    if node:
        assert refused.value.node == node
        assert refused.value.where is not None
        assert refused.value.where.startswith("line 6: return")


def test_deriving_and_printing_need_no_torch():
    code = (
        "import sys\n"
        "import kernels.derive, kernels.printer, kernels.schedules, kernels.traced\n"
        "assert not {'torch', 'triton'} & set(sys.modules), 'torch was imported'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_equal_gradients_share_one_tensor():
    d = derived("def f(x, residual):\n    return torch.exp(x + residual)\n")
    assert d.aliases == {"dresidual": "dx"}
    assert [s.tensor for s in d.backward.stores] == ["dx"]


def test_the_k_largest_are_k_rounds_of_maximum_and_mask():
    d = derived("def f(x):\n    values, indices = torch.topk(x, 2, dim=-1)\n    return values, indices\n")
    assert [o.dtype for o in d.outputs] == ["same as input", "int64"]
    assert d.traffic.forward_tensors == 1


def test_an_embeddings_gradient_is_a_scatter():
    tensors = (
        TensorSpec(name="tokens", shape=("*",), dtype="int64", needs_grad=False),
        TensorSpec(name="weight", shape=("vocab", "n_cols")),
    )
    d = derived("def f(tokens, weight):\n    return F.embedding(tokens, weight)\n", tensors=tensors)
    assert [(s.tensor, s.axis) for s in d.backward.scatters] == [("dweight", "vocab")]


def test_wide_rows_are_read_in_loops():
    source = "def f(x):\n    return torch.softmax(x, -1)\n"
    assert derived(source).forward_schedule.name == "persistent_row"
    assert derive(traced(source), wide_rows=True).forward_schedule.name == "looped_row"


def test_a_name_that_is_no_identifier_is_refused():
    op = traced(RELU_SQUARED)
    bad = op.model_copy(update={"op": op.op.model_copy(update={"name": "x(y)"})})
    with pytest.raises(Unsupported, match="not a usable name"):
        derive(bad)
