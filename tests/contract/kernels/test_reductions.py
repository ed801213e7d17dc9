"""Reductions over every axis, and the reduction modes of losses, against fp64 autograd in the interpreter."""

from __future__ import annotations

import pytest

from kernels.op_spec import OpSpec, TensorSpec
from tests.contract.kernels.catalog_cases import Outcome, assert_close, case, run
from tests.exhaustive import EXHAUSTIVE

IMPORTS = "import torch\nimport torch.nn.functional as F\n"
THREE = (TensorSpec(name="x", shape=("batch", "seq_len", "n_cols")),)
EVERY_DIM = {
    "last": "-1",
    "middle": "1",
    "first": "0",
    "outer": "(0, 1)",
    "inner": "(1, 2)",
    "ends": "(0, 2)",
    "all": "(0, 1, 2)",
}
DIMS = EVERY_DIM if EXHAUSTIVE else {name: EVERY_DIM[name] for name in ("middle", "ends", "all")}
REDUCTIONS = {
    **{f"mean_{name}": f"x.mean({dim})" for name, dim in DIMS.items()},
    **{f"centered_{name}": f"x - x.mean({dim}, keepdim=True)" for name, dim in DIMS.items()},
    **{f"amax_{name}": f"x.amax({dim})" for name, dim in DIMS.items()},
    **{f"var_{name}": f"x.var({dim}, unbiased=False)" for name, dim in DIMS.items()},
    **{f"norm_{name}": f"x / torch.sqrt(torch.sum(x * x, {dim}, keepdim=True) + 1e-6)" for name, dim in DIMS.items()},
}  # fmt: skip
FULL = TensorSpec(name="x", shape=("n_rows", "n_cols"))
OTHER = TensorSpec(name="y", shape=("n_rows", "n_cols"))
LABELS = TensorSpec(name="y", shape=("n_rows", "n_cols"), needs_grad=False)
TARGET = TensorSpec(name="target", shape=("n_rows",), dtype="int64", needs_grad=False)
LOSSES = {
    "cross_entropy": ("F.cross_entropy(x, target, reduction='{}')", (FULL, TARGET)),
    "cross_entropy_smoothed": ("F.cross_entropy(x, target, reduction='{}', label_smoothing=0.1)", (FULL, TARGET)),
    "nll": ("F.nll_loss(torch.log_softmax(x, -1), target, reduction='{}')", (FULL, TARGET)),
    "kl": ("F.kl_div(torch.log_softmax(x, -1), torch.softmax(y, -1), reduction='{}')", (FULL, OTHER)),
    "kl_log": ("F.kl_div(torch.log_softmax(x, -1), torch.log_softmax(y, -1), reduction='{}', log_target=True)", (FULL, OTHER)),
    "bce": ("F.binary_cross_entropy_with_logits(x, torch.sigmoid(y), reduction='{}')", (FULL, OTHER)),
    "huber": ("F.huber_loss(x, y, reduction='{}', delta=1.25)", (FULL, OTHER)),
    "smooth_l1": ("F.smooth_l1_loss(x, y, reduction='{}', beta=0.75)", (FULL, OTHER)),
    "mse": ("F.mse_loss(x, y, reduction='{}')", (FULL, OTHER)),
    "l1": ("F.l1_loss(x, y, reduction='{}')", (FULL, OTHER)),
    "poisson": ("F.poisson_nll_loss(x, y, reduction='{}')", (FULL, OTHER)),
    "triplet": ("F.triplet_margin_loss(x, y, x + 0.5 * y, reduction='{}')", (FULL, OTHER)),
    "soft_margin": ("F.soft_margin_loss(x, torch.sign(y), reduction='{}')", (FULL, LABELS)),
    "cosine": ("F.cosine_embedding_loss(x, y, torch.ones(x.shape[0]), reduction='{}')", (FULL, OTHER)),
}  # fmt: skip
MODES = ["none", "sum", "mean"] if EXHAUSTIVE else ["mean"]
OF_NOTHING = {
    "sum_of_nothing": "x.sum(-1)",
    "mean_of_nothing": "x.mean(-1)",
    "norm_of_nothing": "torch.sqrt((x * x).sum(-1))",
    "logsumexp_of_nothing": "torch.logsumexp(x, -1)",
}


def op(name: str, body: str, tensors: tuple[TensorSpec, ...]) -> OpSpec:
    parameters = ", ".join(t.name for t in tensors)
    return OpSpec(
        name=name,
        entry="f",
        source=f"{IMPORTS}\n\ndef f({parameters}):\n    return {body}\n",
        tensors=tensors,
    )


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    ops = [op(name, body, THREE) for name, body in REDUCTIONS.items()]
    ops += [op(f"{n}_{m}", text.format(m), tensors) for n, (text, tensors) in LOSSES.items() for m in MODES]
    cases = []
    for each in ops:
        one = case(each)
        cases.append({**one, "op": {**one["op"], "name": each.name}})
    for name, body in OF_NOTHING.items():
        one = case(op(name, body, (FULL,)))
        sizes = [{"n_rows": 3, "n_cols": 0}, {"n_rows": 0, "n_cols": 0}]
        cases.append({**one, "op": {**one["op"], "name": name}, "sizes": sizes})
    return run(cases)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_reduction_over_any_axis(outcomes: dict[str, Outcome], name: str):
    assert_close(outcomes[name])


@pytest.mark.parametrize("name", [f"{n}_{m}" for n in LOSSES for m in MODES])
def test_a_loss_in_each_reduction_mode(outcomes: dict[str, Outcome], name: str):
    assert_close(outcomes[name])


@pytest.mark.parametrize("name", OF_NOTHING)
def test_rows_of_no_columns(outcomes: dict[str, Outcome], name: str):
    assert_close(outcomes[name])
