"""Few rows of very many columns: a row is split over programs, checked where the parts are not equally long."""

from __future__ import annotations

import pytest

from agents.catalog.lookup import catalog
from kernels.derivation import Derivation, Unsupported
from kernels.derive import derive
from kernels.module_style import ModuleStyle
from kernels.op_spec import OpSpec, TensorSpec
from kernels.printer import call_order, print_module
from tests.contract.kernels.catalog_cases import BF16_TOLERANCE, Outcome, assert_close, run, trace_source

X = TensorSpec(name="x", shape=("n_rows", "n_cols"))
Y = TensorSpec(name="y", shape=("n_rows", "n_cols"))
IMPORTS = "import torch\nimport torch.nn.functional as F\n\n\n"


def _op(name: str, body: str, *tensors: TensorSpec) -> OpSpec:
    source = f"{IMPORTS}def f({', '.join(t.name for t in tensors)}):\n    return {body}\n"
    return OpSpec(name=name, entry="f", source=source, tensors=tensors)


OWN = [
    _op("row_sum", "(x * x).sum(-1)", X),
    # Below zero everywhere: what dead lanes hold where the parts meet would show.
    _op("row_max", "(-1 - x * x).amax(-1)", X),
    _op("logsumexp", "torch.logsumexp(x, -1)", X),
    _op("variance", "x.var(-1, unbiased=False)", X),
    # One number, with its gradient in the forward, and a backward that reduces rows too.
    _op("kl", "F.kl_div(torch.log_softmax(x, -1), torch.softmax(y, -1), reduction='batchmean')", X, Y),
    # A row whose columns are not neighbours in memory.
    _op("strided", "x.softmax(1)", TensorSpec(name="x", shape=("batch", "length", "width"))),
]
NAMES = [
    "softmax",
    "rms_norm",
    "rms_norm_no_weight",
    "layer_norm",
    "layer_norm_no_affine",
    "fused_add_rms_norm",
    "cross_entropy",
    "group_norm",
]
OPS = {op.name: op for op in OWN} | {name: catalog().ops[name].op for name in NAMES}
IN_FP32 = [n for n in OPS if n not in ("rms_norm_no_weight", "layer_norm_no_affine")]
IN_BF16 = ["row_sum", "softmax", "rms_norm_no_weight", "layer_norm_no_affine", "logsumexp", "kl"]
# Triton's interpreter has 4 multiprocessors. Four blocks over three parts a row, the last block with seven columns; and a row that is one block.
SIZES = [{"*": [11], "n_rows": 11, "n_cols": 6151}, {"*": [2], "n_rows": 2, "n_cols": 37}]
TWO_BLOCKS = [{"*": [11], "n_rows": 11, "n_cols": 2051}]
OTHER_SIZES = {
    "row_max": SIZES[:1],
    "kl": TWO_BLOCKS,
    "rms_norm": SIZES[:1],
    "layer_norm": TWO_BLOCKS,
    "fused_add_rms_norm": TWO_BLOCKS,
    "strided": [{"batch": 2, "length": 4099, "width": 3}],
    "group_norm": [{"batch": 2, "channels": 8, "space": 1031}],
}


def _derived(name: str) -> Derivation:
    return derive(trace_source(OPS[name]), split_rows=True)


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    cases = []
    wanted = [(n, "float32", {}) for n in IN_FP32] + [(n, "bfloat16", {}) for n in IN_BF16]
    # What the forward has written for an incoming gradient of 1 is what the backward finds.
    wanted.append(("kl", "float32", {"incoming": 1.0}))
    for name, dtype, more in wanted:
        derivation, style = _derived(name), ModuleStyle.standalone(name)
        cases.append(
            {
                "op": derivation.op.model_dump(mode="json") | {"name": " ".join([name, dtype, *more])},
                "module": print_module(derivation, style),
                "function": style.function_class,
                "call_order": call_order(derivation),
                "sizes": OTHER_SIZES.get(name, SIZES),
                "dtype": dtype,
                **more,
            }
        )
    return run(cases)


@pytest.mark.parametrize("name", IN_FP32)
def test_split_rows_match_fp64_autograd(outcomes: dict[str, Outcome], name: str):
    assert_close(outcomes[f"{name} float32"])


@pytest.mark.parametrize("name", IN_BF16)
def test_split_rows_in_bf16(outcomes: dict[str, Outcome], name: str):
    assert_close(outcomes[f"{name} bfloat16"], BF16_TOLERANCE)


def test_a_gradient_in_the_forward_for_an_incoming_gradient_of_1(outcomes: dict[str, Outcome]):
    assert _derived("kl").gradient_in_forward
    assert_close(outcomes["kl float32 incoming"])


@pytest.mark.parametrize(
    ("name", "forward", "backward"),
    [("logsumexp", 2, 0), ("softmax", 2, 2), ("layer_norm", 3, 2), ("kl", 3, 2)],
)
def test_one_kernel_for_each_level_of_reductions(name: str, forward: int, backward: int):
    derivation = _derived(name)
    for steps, count in ((derivation.forward_steps, forward), (derivation.backward_steps, backward)):
        assert sum(s.schedule is not None and s.schedule.name == "split_row" for s in steps) == count


def test_nothing_is_split_where_no_row_is_reduced():
    op = _op("scaled", "x * 2", X)
    assert derive(trace_source(op), split_rows=True) == derive(trace_source(op))


@pytest.mark.parametrize(
    ("body", "node", "needed"),
    [
        ("x.cumsum(-1)", "aten.cumsum.default", "the sum of the parts before it"),
        ("x.max(-1)", "aten.argmax.default", "a value and its place"),
    ],
)
def test_what_cannot_be_split_names_the_node_and_what_is_missing(body: str, node: str, needed: str):
    with pytest.raises(Unsupported) as refused:
        derive(trace_source(_op("refused", body, X)), split_rows=True)
    assert refused.value.node == node
    assert needed in (refused.value.needed or "")


def test_a_template_says_that_it_does_not_split():
    with pytest.raises(Unsupported, match="come from a template"):
        derive(trace_source(catalog().ops["segment_mean_pooling"].op), split_rows=True)
