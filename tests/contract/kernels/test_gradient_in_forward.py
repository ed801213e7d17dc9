"""A scalar loss whose forward writes the gradient for an incoming gradient of 1: that gradient, and every other."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from agents.catalog.lookup import catalog
from tests.contract.kernels.catalog_cases import Outcome, assert_close, case, run
from tests.contract.kernels.loss_probes import PROBES

# Looped rows: with a count before the kernel, class weights, two inputs read, two gradients written, a store in the loop
# that sums. Then flat ones, with one and with two gradients.
LOSSES = [
    "cross_entropy",
    "cross_entropy_smoothed",
    "cross_entropy_softcap",
    "cross_entropy_z_loss",
    "cross_entropy_weighted",
    "cross_entropy_soft_target",
    "cosine_loss",
    "triplet_loss",
    "jsd",
    "kl_div",
    "mse_loss",
    "gaussian_nll_loss",
]


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    """With an incoming gradient of 1: what the forward wrote."""
    ops = catalog().ops
    return run([case(ops[name].op) | {"incoming": 1.0} for name in LOSSES])


@pytest.mark.parametrize("name", LOSSES)
def test_the_forwards_gradient_matches_fp64_autograd(outcomes: dict[str, Outcome], name: str):
    assert_close(outcomes[name])


@pytest.fixture(scope="module")
def failures() -> dict[str, list[str]]:
    found = case(catalog().ops["cross_entropy"].op)
    process = subprocess.run(
        [sys.executable, "-m", "tests.contract.kernels.loss_probes"],
        input=json.dumps({"module": found["module"], "function": found["function"]}),
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-2000:]
    return json.loads(process.stdout)


@pytest.mark.parametrize("probe", PROBES)
def test_cross_entropy(failures: dict[str, list[str]], probe: str):
    assert failures[probe] == []
