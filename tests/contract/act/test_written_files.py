"""What act writes, and that the tests it generates tell a right kernel from a wrong one."""

from __future__ import annotations

import asyncio
import difflib
import re
import shutil
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from agents.candidate import Candidate
from agents.conventions.edits import AnchorMissing
from agents.dev.act import ActFailed, act, write
from agents.dev.verify import judge, plan
from app.dispatch import LocalBench
from kernels.derive import derive
from kernels.traced import TracedOp
from runners.protocol import CorrectnessPayload, Gate, Job, Outcome, Report, Status
from tests.contract.act.conftest import read

FUNCTIONAL = "src/liger_kernel/transformers/functional.py"


@pytest.fixture(scope="module")
def relu_squared(checkouts, profiles) -> Candidate:
    root = checkouts("0.7.0")
    tree, conventions = read(root)
    return asyncio.run(act(profiles("relu_squared", conventions), tree, LocalBench(), checkout=str(root)))


def test_existing_files_gain_only_these_lines(relu_squared, checkouts) -> None:
    tree, _ = read(checkouts("0.7.0"))
    edited = sorted(set(relu_squared.files) - set(relu_squared.created))
    diff = [
        line.rstrip("\n")
        for path in edited
        for line in difflib.unified_diff(
            (tree.read(path) or "").splitlines(), relu_squared.files[path].splitlines(), path, path, n=0
        )
        if not line.startswith("---")
    ]
    assert "\n".join(diff) == snapshot("""\
+++ src/liger_kernel/ops/__init__.py
@@ -67,0 +68,3 @@
+from liger_kernel.ops.relu_squared import LigerReLUSquaredFunction  # noqa: F401
+from liger_kernel.ops.relu_squared import relu_squared_backward  # noqa: F401
+from liger_kernel.ops.relu_squared import relu_squared_forward  # noqa: F401
+++ src/liger_kernel/transformers/__init__.py
@@ -18,0 +19 @@
+from liger_kernel.transformers.relu_squared import LigerReLUSquared  # noqa: F401
@@ -171,0 +173 @@
+    "LigerReLUSquared",
+++ src/liger_kernel/transformers/functional.py
@@ -19,0 +20 @@
+from liger_kernel.ops import LigerReLUSquaredFunction
@@ -295,0 +297,4 @@
+def liger_relu_squared(x):
+    return LigerReLUSquaredFunction.apply(x)
+
+\
""")


def test_module_and_test_read_as_their_siblings_do(relu_squared) -> None:
    assert relu_squared.files["src/liger_kernel/transformers/relu_squared.py"] == snapshot('''\
import torch.nn as nn

from liger_kernel.ops import LigerReLUSquaredFunction


class LigerReLUSquared(nn.Module):
    """y = max(x, 0)²"""

    def forward(self, x):
        return LigerReLUSquaredFunction.apply(x)
''')
    assert relu_squared.files["test/transformers/test_relu_squared.py"] == snapshot("""\
import pytest
import torch

from test.utils import assert_verbose_allclose
from test.utils import set_seed
from test.utils import supports_bfloat16

from liger_kernel.transformers.functional import liger_relu_squared
from liger_kernel.transformers.relu_squared import LigerReLUSquared
from liger_kernel.utils import infer_device

device = infer_device()
set_seed()

# The reference runs in float32 on the same values: in bfloat16 it would round after every operation, and its own
# error would have to be tolerated. The kernel computes in float32 and rounds its results.
DTYPES = [
    (torch.float32, 1e-5, 1e-5),
    pytest.param(
        torch.bfloat16,
        0.0117,
        0.0117,
        marks=pytest.mark.skipif(not supports_bfloat16(), reason="bfloat16 not supported on this device"),
    ),
]


def torch_relu_squared(x: torch.Tensor) -> torch.Tensor:
    return torch.square(torch.relu(x))


@pytest.mark.parametrize("shape", [(2, 8, 4096), (4, 16, 2048), (1, 1, 1023), (3, 7, 256), (2, 8), (1, 4096)])
@pytest.mark.parametrize("dtype, atol, rtol", DTYPES)
def test_liger_relu_squared_correctness(shape, dtype, atol, rtol):
    _x = torch.randn(shape, device=device, dtype=dtype)

    x1 = _x.clone().float().requires_grad_(True)
    x2 = _x.clone().requires_grad_(True)

    liger_layer = LigerReLUSquared().to(device)
    torch_output = torch_relu_squared(x1)
    liger_output = liger_layer(x2)
    assert liger_output.dtype == dtype
    assert_verbose_allclose(torch_output, liger_output, rtol=rtol, atol=atol, extra_info="[output]")

    grad_output = torch.randn_like(liger_output)
    torch_output.backward(grad_output.float())
    liger_output.backward(grad_output)

    assert_verbose_allclose(x1.grad, x2.grad, rtol=rtol, atol=atol, extra_info="[x.grad]")


@pytest.mark.parametrize("shape", [(2, 8, 4096), (1, 1, 1023), (2, 8)])
@pytest.mark.parametrize("dtype, atol, rtol", DTYPES)
def test_liger_relu_squared_functional(shape, dtype, atol, rtol):
    _x = torch.randn(shape, device=device, dtype=dtype)

    x1 = _x.clone().float().requires_grad_(True)
    x2 = _x.clone().requires_grad_(True)

    torch_output = torch_relu_squared(x1)
    liger_output = liger_relu_squared(x2)
    assert liger_output.dtype == dtype
    assert_verbose_allclose(torch_output, liger_output, rtol=rtol, atol=atol, extra_info="[output]")

    grad_output = torch.randn_like(liger_output)
    torch_output.backward(grad_output.float())
    liger_output.backward(grad_output)

    assert_verbose_allclose(x1.grad, x2.grad, rtol=rtol, atol=atol, extra_info="[x.grad]")


# every second column of wider tensors: inputs and incoming gradient are strided
@pytest.mark.parametrize("shape", [(4, 6, 256), (3, 127)])
@pytest.mark.parametrize("dtype, atol, rtol", DTYPES)
def test_liger_relu_squared_non_contiguous(shape, dtype, atol, rtol):
    _x = torch.randn((*shape[:-1], 2 * shape[-1]), device=device, dtype=dtype)

    x1 = _x.clone().float().requires_grad_(True)
    x2 = _x.clone().requires_grad_(True)

    torch_output = torch_relu_squared(x1[..., ::2])
    liger_output = liger_relu_squared(x2[..., ::2])
    assert liger_output.dtype == dtype
    assert_verbose_allclose(torch_output, liger_output, rtol=rtol, atol=atol, extra_info="[output]")

    wide_shape = (*liger_output.shape[:-1], 2 * liger_output.shape[-1])
    grad_output = torch.randn(wide_shape, device=device, dtype=liger_output.dtype)[..., ::2]
    torch_output.backward(grad_output.float())
    liger_output.backward(grad_output)

    assert_verbose_allclose(x1.grad, x2.grad, rtol=rtol, atol=atol, extra_info="[x.grad]")
""")


def test_words_and_jobs_follow_the_checkout(relu_squared) -> None:
    assert relu_squared.pull_title == "[Feature] Add Triton kernel for ReLU Squared"
    assert relu_squared.neighbours == ["test/transformers/test_transformers.py"]
    assert "- [ ] run `make test` to ensure correctness" in relu_squared.pull_body
    assert not re.search(r"liger-bot|generated by", relu_squared.commit_message, re.IGNORECASE)


async def test_the_same_profile_gives_the_same_files(relu_squared, checkouts, profiles) -> None:
    root = checkouts("0.7.0")
    tree, conventions = read(root)
    again = await act(profiles("relu_squared", conventions), tree, LocalBench(), checkout=str(root))
    assert again == relu_squared


def test_plan_has_one_job_a_gate_about_the_candidate(relu_squared, checkouts, profiles) -> None:
    _, conventions = read(checkouts("0.7.0"))
    jobs = plan(profiles("relu_squared", conventions), relu_squared, "/checkout", "a" * 40, seed=7)
    assert list(jobs) == [Gate.style, Gate.correctness, Gate.compile, Gate.benchmark]
    assert jobs[Gate.style].files == relu_squared.files
    assert jobs[Gate.correctness].seed == 7
    assert jobs[Gate.benchmark].traffic["forward_tensors"] == 2
    assert all(job.checkout == "/checkout" for job in jobs.values())


class RewritingBench:
    """A runner that answers a style job with other files, as one that a candidate has taken over would."""

    def __init__(self, files: dict[str, str], status: Status = Status.completed):
        self.files, self.status = files, status

    async def run(self, job: Job, on_progress=None) -> Report:
        result = {"kind": "style", "files": {**job.payload.files, **self.files}}
        return Report(job_id=job.id, nonce=job.nonce, kind="style", status=self.status, result=result)  # type: ignore[arg-type]


async def test_report_can_not_add_a_file_to_a_candidate(checkouts, profiles) -> None:
    tree, conventions = read(checkouts("0.7.0"))
    bench = RewritingBench({".github/workflows/evil.yml": "on: push", "setup.py": "import os"})
    candidate = await act(profiles("relu_squared", conventions), tree, bench)
    assert not {".github/workflows/evil.yml", "setup.py"} & set(candidate.files)


async def test_runner_that_can_not_format_stops_the_stage(checkouts, profiles) -> None:
    tree, conventions = read(checkouts("0.7.0"))
    with pytest.raises(ActFailed, match="the job ended as crashed"):
        await act(profiles("relu_squared", conventions), tree, RewritingBench({}, Status.crashed))


class Changed:
    """A checkout in which somebody has changed files since."""

    def __init__(self, tree, **texts: str):
        self.tree, self.texts = tree, {path.replace("__", "/"): text for path, text in texts.items()}

    def read(self, path: str) -> str | None:
        return self.texts.get(path, self.tree.read(path))

    def files(self, pattern: str) -> list[str]:
        return self.tree.files(pattern)


def test_file_that_has_appeared_since_is_not_written_over(checkouts, profiles) -> None:
    tree, conventions = read(checkouts("0.7.0"))
    profile = profiles("relu_squared", conventions)
    taken = Changed(tree, **{"src/liger_kernel/ops/relu_squared.py": "x = 1\n"})
    with pytest.raises(ActFailed, match=r"ops/relu_squared\.py already exists"):
        write(profile, derive(TracedOp.model_validate(profile.traced)), conventions, taken)


def test_file_that_lost_its_anchor_is_named(checkouts, profiles) -> None:
    tree, conventions = read(checkouts("0.7.0"))
    profile = profiles("relu_squared", conventions)
    gone = Changed(tree, **{FUNCTIONAL: "x = 1\n"})
    with pytest.raises(AnchorMissing, match=r"transformers/functional\.py has no import from liger_kernel"):
        write(profile, derive(TracedOp.model_validate(profile.traced)), conventions, gone)


@pytest.mark.slow
async def test_generated_tests_find_the_one_wrong_gradient(checkouts, profiles, tmp_path: Path) -> None:
    root = checkouts("0.7.0")
    tree, conventions = read(root)
    candidate = await act(profiles("swiglu_beta", conventions), tree, LocalBench(), checkout=str(root))
    copy = tmp_path / "checkout"
    shutil.copytree(root, copy)
    gradient, wrong = spoiled(candidate.files[candidate.target.path])
    for path, text in {**candidate.files, candidate.target.path: wrong}.items():
        (copy / path).write_text(text)
    payload = CorrectnessPayload(checkout=str(copy), tests=candidate.tests)
    report = await LocalBench().run(Job(id="wrong", nonce="n" * 32, payload=payload))
    [verdict] = [one for one in report.verdicts if one.check.startswith("tests/")]
    assert verdict.outcome is Outcome.failed
    # outputs and the other gradient are compared first, and were right
    assert set(re.findall(r"AssertionError: \[(\S+)\]", verdict.details)) == {f"{gradient}.grad"}
    assert judge(Gate.correctness, report).conclusion == "failure"


def spoiled(source: str) -> tuple[str, str]:
    """(input, module): the sign of the last gradient that the backward stores is turned round, and nothing else."""
    last = list(re.finditer(r"tl\.store\(d(\w+)_ptr \+ (\w+), (.+), mask=mask\)", source))[-1]
    store = f"tl.store(d{last[1]}_ptr + {last[2]}, -({last[3]}), mask=mask)"
    return last[1].lower(), source[: last.start()] + store + source[last.end() :]
