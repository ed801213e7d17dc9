"""What every printed module must withstand: NaN, empty tensors, strides, a second backward, extreme values."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from agents.catalog.lookup import catalog
from tests.contract.kernels.catalog_cases import case
from tests.contract.kernels.probes import PROBES

# One of each kind: element-wise with a maximum, with helpers, a saved result, one and two reductions, a scan.
OPS = [
    "relu_squared",
    "gelu_tanh",
    "mish",
    "softplus",
    "elu",
    "sigmoid",
    "softmax",
    "log_softmax",
    "l2_norm",
    "rms_norm_no_weight",
    "layer_norm_no_affine",
    "cumsum",
]
EXCEPTIONS = {
    ("cumsum", "nan_propagates"),  # linear: its gradient never sees the input
    (
        "elu",
        "extremes_stay_finite",
    ),  # the reference's own torch.where multiplies 0 by exp(x) = inf, as eager does
}
PAIRS = [(op, probe) for op in OPS for probe in PROBES if (op, probe) not in EXCEPTIONS]


@pytest.fixture(scope="module")
def failures() -> dict[tuple[str, str], list[str]]:
    ops = catalog().ops
    modules = {op: case(ops[op].op) for op in OPS}
    jobs = [
        {"module": modules[op]["module"], "function": modules[op]["function"], "probe": probe}
        for op, probe in PAIRS
    ]
    process = subprocess.run(
        [sys.executable, "-m", "tests.contract.kernels.probes"],
        input=json.dumps(jobs),
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-2000:]
    return dict(zip(PAIRS, json.loads(process.stdout), strict=True))


@pytest.mark.parametrize(("op", "probe"), PAIRS)
def test_printed_module(failures: dict[tuple[str, str], list[str]], op: str, probe: str):
    assert failures[op, probe] == []
