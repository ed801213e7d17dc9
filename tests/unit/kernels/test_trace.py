"""Tracing: what is found, and what is refused with a reason and a line."""

from __future__ import annotations

import pytest

from kernels.derivation import Unsupported
from kernels.op_spec import ScalarSpec, TensorSpec
from kernels.traced import QuantityArg, TracedOp
from tests.unit.kernels.references import RELU_SQUARED, RMS_NORM, SWIGLU_PACKED, traced


def ops(op: TracedOp) -> list[str]:
    return [n.op for n in op.nodes]


def test_a_traced_op_survives_json():
    op = traced(RMS_NORM)
    assert TracedOp.model_validate_json(op.model_dump_json()) == op


def test_every_operation_carries_its_source_line():
    op = traced(RMS_NORM)
    assert {n.line for n in op.nodes if n.op == "aten.rsqrt.default"} == {6}
    assert {n.line for n in op.nodes if n.backward and n.op != "tangent"} <= {6, 7}


def test_a_size_baked_into_a_constant_is_found():
    op = traced("def f(x):\n    return x / math.sqrt(x.shape[-1])\n")
    division = next(n for n in op.nodes if n.op == "aten.div.Tensor")
    assert isinstance(division.args[1], QuantityArg)
    assert division.args[1].quantity.text() == "n_cols**0.5"


def test_only_the_references_own_casts_are_marked():
    op = traced(RMS_NORM)
    assert [n.line for n in op.nodes if n.user_cast] == [6, 7]


def test_an_axis_that_is_halved_gets_an_even_size():
    assert traced(SWIGLU_PACKED).axes == {"n_rows": 1, "n_cols": 2}


def test_an_axis_that_a_scalar_divides_is_tied_to_it():
    op = traced(
        "def f(x, num_groups=4):\n    return F.group_norm(x, num_groups)\n",
        tensors=(TensorSpec(name="x", shape=("n", "c", "s")),),
        scalars=(ScalarSpec(name="num_groups", default=4),),
    )
    assert op.tied == {"c": "num_groups"}


@pytest.mark.parametrize(
    ("source", "fixed"),
    [
        ("def f(x, p=2.0):\n    return x.abs() ** p\n", {"p": "2.0"}),
        (
            "def f(x, approximate='tanh'):\n    return F.gelu(x, approximate=approximate)\n",
            {"approximate": "'tanh'"},
        ),
        ("def f(x, square=True):\n    return x * x if square else x\n", {"square": "True"}),
        ("def f(x, n=2):\n    for _ in range(n):\n        x = x * x\n    return x\n", {"n": "2"}),
    ],
)
def test_a_scalar_that_changes_the_graph_is_built_in(source: str, fixed: dict[str, str]):
    assert traced(source).fixed == fixed


def test_a_run_time_scalar_is_not_built_in():
    op = traced("def f(x, alpha=1.702):\n    return x * torch.sigmoid(alpha * x)\n")
    assert op.fixed == {}


def test_roles_are_guessed_by_name_and_asked_about():
    op = traced("def f(x, weight, mask):\n    return torch.where(mask, x * weight, 0.0)\n")
    assert [t.shape for t in op.op.tensors] == [("*", "n_cols"), ("n_cols",), ("*", "n_cols")]
    assert [t.dtype for t in op.op.tensors] == ["float", "float", "bool"]
    assert len(op.questions) == 2


def test_a_name_that_lies_falls_back_to_full_tensors():
    op = traced("def f(gamma, beta):\n    return torch.softmax(gamma, 0) * beta.sum(1, keepdim=True)\n")
    assert all(t.shape == ("*", "n_cols") or t.shape == ("n_rows", "n_cols") for t in op.op.tensors)


def test_a_modules_parameters_are_learnable_tensors():
    source = (
        "class Norm(nn.Module):\n"
        "    def __init__(self, hidden_size, eps=1e-6):\n"
        "        super().__init__()\n"
        "        self.weight = nn.Parameter(torch.ones(hidden_size))\n"
        "        self.eps = eps\n"
        "    def forward(self, x):\n"
        "        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight\n"
    )
    op = traced(source, "Norm", kind="module").op
    assert [(t.name, t.learnable, t.init) for t in op.tensors] == [
        ("x", False, None),
        ("weight", True, "ones"),
    ]
    assert [(s.name, s.default) for s in op.scalars] == [("eps", 1e-6)]


def test_a_reference_that_means_two_dimensions_says_so():
    op = traced("def f(x):\n    return x - x.mean(0)\n")
    assert op.op.tensors[0].shape == ("n_rows", "n_cols")
    assert any("(rows, columns) only" in q for q in op.questions)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("def f(x):\n    x.add_(1)\n    return x * 2\n", "in place"),
        ("def f(x):\n    return x if x.sum() > 0 else -x\n", "depend on the data"),
        ("def f(x):\n    return x.argmax(-1)\n", "int64"),
        ("def f(x):\n    return x.sum().item()\n", ""),
        ("def f(x):\n    return None\n", "returns None"),
        ("def f(x):\n    return ()\n", "nothing"),
        ("def f(x):\n    return 3\n", "int"),
        ("def f(x):\n    raise RuntimeError('no such luck')\n", "no such luck"),
        ("def f(*args):\n    return args[0]\n", "fixed list"),
        ("def f(scale=1.0):\n    return scale\n", "no tensors"),
        ("def f(x, factor: float):\n    return x * factor\n", "no default"),
        ("table = torch.ones(1)\ndef f(x):\n    return x * table\n", "isn't one of its arguments"),
    ],
)
def test_what_is_no_function_of_its_tensors_is_refused(source: str, reason: str):
    with pytest.raises(Unsupported) as refused:
        traced(source)
    assert reason in refused.value.reason or reason in (refused.value.needed or "")


def test_a_refusal_names_the_line():
    with pytest.raises(Unsupported) as refused:
        traced("def f(x):\n    y = x * 2\n    return y if y.sum() > 0 else x\n")
    assert refused.value.where is not None
    assert "line 7" in refused.value.where


def test_relu_squared_traces_to_its_joint_graph():
    assert "aten.threshold_backward.default" in ops(traced(RELU_SQUARED))
