"""The jit helpers of printed modules against fp64, in the interpreter."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

# Largest relative error over [-88, 88] and near zero: a few fp32 roundings (6e-8 each) of the operations in each helper.
TOLERANCES = {
    "tanh": 1e-6,
    "log1p": 5e-7,
    "expm1": 2e-6,
    "atan": 5e-7,
    "softplus": 1e-6,
    "relu": 0.0,
    "sign": 0.0,
}
PROGRAM = '''
import json, os, sys
os.environ["TRITON_INTERPRET"] = "1"
from runners.interpreter import repair
repair()
import tempfile, torch
from pathlib import Path
from kernels.helpers import helper_sources
from tests.contract.kernels.interpreted import load
names = json.load(sys.stdin)
body = "import triton\\nimport triton.language as tl\\n\\n" + "\\n\\n".join(helper_sources(set(names)))
for name in names:
    body += f"""

@triton.jit
def run_{name}(Y, X, N: tl.constexpr):
    offsets = tl.arange(0, N)
    tl.store(Y + offsets, {name}(tl.load(X + offsets)))
"""
exact = {"tanh": torch.tanh, "log1p": torch.log1p, "expm1": torch.expm1, "atan": torch.atan, "relu": torch.relu,
         "sign": torch.sgn, "softplus": lambda x: torch.nn.functional.softplus(x)}
spread = torch.cat([torch.linspace(-88, 88, 4001), torch.logspace(-30, 0, 3000), -torch.logspace(-30, -0.01, 3000)])
answers = {}
with tempfile.TemporaryDirectory() as folder:
    module = load(body, "helpers_under_test", Path(folder))
    for name in names:
        x = spread[spread > -0.999] if name == "log1p" else spread
        x = torch.cat([x, torch.tensor([float("nan"), 0.0])])
        x = torch.cat([x, torch.zeros(16384 - x.numel())]).float()
        y = torch.empty_like(x)
        getattr(module, f"run_{name}")[(1,)](y, x, N=x.numel())
        truth = exact[name](x.double())
        error = ((y.double() - truth).abs() / truth.abs().clamp_min(1e-38)).nan_to_num()
        answers[name] = {"error": error.max().item(), "nan": bool((y.isnan() == truth.isnan()).all())}
json.dump(answers, sys.stdout)
'''


@pytest.fixture(scope="module")
def answers() -> dict[str, dict[str, float]]:
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps(sorted(TOLERANCES)),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-2000:]
    return json.loads(process.stdout)


@pytest.mark.parametrize("name", sorted(TOLERANCES))
def test_helper_is_accurate_near_zero_and_far_from_it(answers: dict[str, dict[str, float]], name: str):
    assert answers[name]["error"] <= TOLERANCES[name]


@pytest.mark.parametrize("name", sorted(TOLERANCES))
def test_helper_answers_nan_where_torch_does(answers: dict[str, dict[str, float]], name: str):
    assert answers[name]["nan"]
