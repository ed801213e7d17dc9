"""Each repair of Triton's interpreter: right with it, wrong without it, and its probe says so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
INTERPRETER = HERE.parents[2] / "runners" / "interpreter.py"
EXPERIMENTS = [
    "bf16_arithmetic/add", "bf16_arithmetic/mul", "bf16_arithmetic/less", "bf16_arithmetic/maximum", "bf16_arithmetic/sum",
    "bf16_arithmetic/max", "bf16_arithmetic/negate", "bf16_arithmetic/cumsum", "bf16_arithmetic/fma", "bf16_arithmetic/clamp",
    "bf16_arithmetic/where", "bf16_arithmetic/dot", "bf16_arithmetic/atomic_add", "bf16_cast/round to nearest even",
    "bf16_cast/random", "float_arguments/to", "index/a loop over an argument", "libdevice/tanh", "libdevice/rsqrt", "libdevice/erf", "libdevice/pow",
    "libdevice/isnan", "autotune/first configuration", "sm_count/several", "supports_bfloat16/test helper",
]  # fmt: skip


def outcome(state: str) -> dict[str, Any]:
    command = [sys.executable, str(HERE / "interpreter_experiments.py"), str(INTERPRETER), state]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def repaired() -> dict[str, Any]:
    return outcome("repaired")["results"]


@pytest.fixture(scope="module")
def stock() -> dict[str, Any]:
    return outcome("stock")


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_the_repaired_interpreter_computes_what_a_gpu_does(experiment: str, repaired: dict[str, Any]) -> None:
    assert repaired[experiment] is True


def test_every_experiment_is_listed(repaired: dict[str, Any]) -> None:
    assert list(repaired) == EXPERIMENTS


@pytest.mark.parametrize(
    "repair",
    [
        "bf16_arithmetic",
        "bf16_cast",
        "float_arguments",
        "libdevice",
        "autotune",
        "sm_count",
        "supports_bfloat16",
    ],
)
def test_every_repair_is_still_needed(repair: str, stock: dict[str, Any]) -> None:
    """Red when a new Triton needs it no longer: then the repair can go."""
    assert stock["needed"][repair] is True
    wrong = [
        name
        for name, result in stock["results"].items()
        if name.startswith(repair + "/") and result is not True
    ]
    assert wrong, f"nothing of {repair} fails without it"


def test_loops_are_repaired_where_triton_and_numpy_disagree(stock: dict[str, Any]) -> None:
    """Triton 3.6 with NumPy 2.5 needs it, Triton 3.9 doesn't; a probe that is wrong on either is red."""
    assert stock["needed"]["index"] is (stock["results"]["index/a loop over an argument"] is not True)
