"""Jobs end to end through `python -m runners`: JSON in, JSON out, whatever is in them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernels.op_spec import OpSpec, TensorSpec
from kernels.traced import TracedOp
from runners.jobs import run_job
from runners.protocol import (
    AnalyzePayload,
    AnalyzeResult,
    BenchmarkPayload,
    CompilePayload,
    CorrectnessPayload,
    Gate,
    Job,
    Outcome,
    Progress,
    Report,
    Status,
    StylePayload,
    StyleResult,
)  # fmt: skip
from tests.exhaustive import exhaustive
from tests.liger_checkout import liger_checkout
from tests.redteam.honest import HONEST, RELU_SQUARED, target

RELU2 = "import torch\n\ndef relu_squared(x):\n    return torch.relu(x) ** 2\n"


def job(payload: object, **settings: float) -> Job:
    return Job(id="job-1", nonce="nonce-1", payload=payload, **{"deadline_s": 120, **settings})  # type: ignore[arg-type]


def analyze(source: str, entry: str = "f", **settings: float) -> Report:
    return run_job(
        job(AnalyzePayload(op=OpSpec(name="op", entry=entry, source=source)), **settings), lambda _: None
    )


@pytest.fixture(scope="module")
def liger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Liger-Kernel 0.7.0 with an honest ReLU² in it: kernel, export, test."""
    checkout = liger_checkout(tmp_path_factory.mktemp("liger"))
    ops = checkout / "src" / "liger_kernel" / "ops"
    (ops / "relu_squared.py").write_text(RELU_SQUARED)
    (ops / "__init__.py").open("a").write(
        "from liger_kernel.ops.relu_squared import ReLUSquaredFunction  # noqa: F401\n"
    )
    (checkout / "test" / "transformers" / "test_relu_squared.py").write_text(
        "import pytest\nimport torch\n\nfrom test.utils import supports_bfloat16\n\nfrom liger_kernel.ops import ReLUSquaredFunction\n\n\n"
        '@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.bfloat16, marks=pytest.mark.skipif(not supports_bfloat16(), reason="no bf16"))])\n'
        "def test_relu_squared(dtype):\n    x = torch.randn(3, 17, dtype=dtype)\n    torch.testing.assert_close(ReLUSquaredFunction.apply(x), torch.relu(x) ** 2)\n"
    )
    return checkout


def test_the_command_line_takes_a_job_and_prints_a_report(tmp_path: Path) -> None:
    text = job(
        AnalyzePayload(op=OpSpec(name="relu_squared", entry="relu_squared", source=RELU2))
    ).model_dump_json()
    done = subprocess.run(
        [sys.executable, "-m", "runners"],
        input=text,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = Report.model_validate_json(done.stdout)
    assert (report.job_id, report.nonce, report.kind, report.status) == (
        "job-1",
        "nonce-1",
        "analyze",
        Status.completed,
    )
    assert isinstance(report.result, AnalyzeResult)
    assert TracedOp.model_validate(report.result.traced).op == report.result.op
    assert report.environment is not None
    assert report.environment.torch is not None
    progress = [
        line.removeprefix("progress ") for line in done.stderr.splitlines() if line.startswith("progress ")
    ]
    assert progress
    assert all(Progress.model_validate_json(line).job_id == "job-1" for line in progress)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"id": "x"}', '{"id": "x", "nonce": "n", "payload": {"kind": "other"}}', "\x00"]
)
def test_a_malformed_job_is_one_line_and_exit_2(text: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "runners"], input=text, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("not a job: ")
    assert len(done.stderr.splitlines()) == 1


def test_a_job_from_a_file_and_a_report_to_a_file(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text(
        job(
            BenchmarkPayload(checkout="", target=target("relu_squared"), shapes=[(8192, 4096)])
        ).model_dump_json()
    )
    command = [
        sys.executable,
        "-m",
        "runners",
        str(tmp_path / "job.json"),
        "--out",
        str(tmp_path / "report.json"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    assert Report.model_validate_json((tmp_path / "report.json").read_text()).kind == "benchmark"


def test_the_environment_is_printed() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "runners", "--environment"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert json.loads(done.stdout)["cpu_count"] >= 1


# --- bad references ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "where", "words"),
    [
        ("def f(x:\n", "line 1", "not valid Python"),
        ("import os\ndef f(x):\n    return x", "line 1: import os", "`import os` is not allowed"),
        ("import torch\ndef f(x):\n    return eval('x')", "line 3: return eval('x')", "`eval`"),
        ("x" * 1_000_001, None, "characters long"),
    ],
    ids=["syntax", "imports os", "eval", "a megabyte"],
)
def test_the_scan_refuses_before_anything_runs(source: str, where: str | None, words: str) -> None:
    report = analyze(source)
    assert report.status is Status.refused
    assert report.refusal is not None
    assert words in report.refusal.reason
    assert where is None or (report.refusal.where or "").startswith(where)
    assert report.isolation is None, "nothing ran"


def test_a_reference_that_loops_for_ever_times_out() -> None:
    report = analyze("def f(x):\n    while True:\n        pass\n", deadline_s=8)
    assert report.status is Status.timeout
    assert report.refusal is not None
    assert "8 s" in report.refusal.reason
    assert report.elapsed_s < 20


def test_a_reference_that_allocates_100_gb_is_refused() -> None:
    report = analyze("import torch\ndef f(x):\n    return x * len([0] * (14 * 1024**3))\n")
    assert report.status in (Status.refused, Status.crashed)
    assert report.refusal is not None
    assert "memory" in report.refusal.reason.lower()


@pytest.mark.parametrize(
    ("source", "words"),
    [
        pytest.param("import torch\ndef f(x):\n    return torch.sort(x)[0]\n", "", marks=exhaustive),
        ("def f(x):\n    return 3\n", "int"),
        pytest.param("def g(x):\n    return x\n", "called f", marks=exhaustive),
        pytest.param("def f(x):\n    return x + undefined\n", "undefined", marks=exhaustive),
    ],
    ids=["sort", "returns an int", "no such entry", "undefined name"],
)
def test_what_can_not_be_traced_is_a_refusal_in_words(source: str, words: str) -> None:
    report = analyze(source)
    if report.status is Status.completed:  # tracing may succeed where deriving will refuse
        assert words == ""
        return
    assert report.status is Status.refused
    assert report.refusal is not None
    assert words in report.refusal.reason


def test_a_dotted_path_is_read_from_the_installed_package() -> None:
    op = OpSpec(name="relu_squared", entry="", source="")
    report = run_job(
        job(AnalyzePayload(op=op, dotted_path="transformers.activations:ReLUSquaredActivation")),
        lambda _: None,
    )
    assert report.status is Status.completed, report.refusal
    assert isinstance(report.result, AnalyzeResult)
    assert "class ReLUSquaredActivation" in report.result.op.source


@pytest.mark.parametrize(
    "path", ["os:system", "nothing", "a.b:c d", "transformers.activations:nope", "../x:y"]
)
def test_a_bad_dotted_path_is_refused(path: str) -> None:
    report = run_job(
        job(AnalyzePayload(op=OpSpec(name="x", entry="", source=""), dotted_path=path)), lambda _: None
    )
    assert report.status is Status.refused
    assert report.refusal is not None


# --- candidates --------------------------------------------------------------------------------------------------------


def test_style_judges_and_fixes_by_the_target_s_own_rules(liger: Path) -> None:
    path = "src/liger_kernel/ops/relu_squared.py"
    untidy = RELU_SQUARED.replace(
        "import torch\nimport triton\n", "import triton\nimport torch\nimport math\n"
    ).replace("    X = X.contiguous()\n", "    X =  X.contiguous( )\n")
    judged = run_job(
        job(StylePayload(checkout=str(liger), files={path: untidy}, ruff="ruff<0.1")), lambda _: None
    )
    found = {(v.check, v.outcome) for v in judged.verdicts}
    assert ("style/ruff-check", Outcome.failed) in found
    assert ("style/ruff-format", Outcome.failed) in found
    assert ("style/ruff-version", Outcome.flagged) in found
    assert {v.gate for v in judged.verdicts} == {Gate.style}
    unsorted = next(v for v in judged.verdicts if v.summary.startswith("I001"))
    assert (unsorted.path, unsorted.line) == (path, 1)

    fixed = run_job(job(StylePayload(checkout=str(liger), files={path: untidy}, fix=True)), lambda _: None)
    assert fixed.ok, fixed.verdicts
    assert isinstance(fixed.result, StyleResult)
    assert "import math" not in fixed.result.files[path]
    assert (liger / path).read_text() == RELU_SQUARED, "the checkout is not changed"
    again = run_job(job(StylePayload(checkout=str(liger), files=fixed.result.files)), lambda _: None)
    assert again.ok, again.verdicts


def test_a_path_outside_the_checkout_is_our_fault_not_a_write(liger: Path, tmp_path: Path) -> None:
    report = run_job(
        job(StylePayload(checkout=str(liger), files={"../../escaped.py": "x = 1\n"})), lambda _: None
    )
    assert report.status is Status.error
    assert "not a path inside the repository" in report.log_tail


def test_correctness_of_a_candidate_in_liger(liger: Path) -> None:
    """The target's own environment: its tests, imports of its package, the gauntlet; ours invisible to all of them."""
    path = "test/transformers/test_own_packages.py"
    (liger / path).write_text(
        "import importlib.util\n\n\ndef test_nothing_of_the_runner_is_visible():\n"
        "    assert [importlib.util.find_spec(n) for n in ('app', 'agents', 'kernels', 'runners')] == [None] * 4\n"
    )
    honest = target("relu_squared").model_copy(update={"module": "liger_kernel.ops.relu_squared"})
    seen: list[Progress] = []
    payload = CorrectnessPayload(
        checkout=str(liger), target=honest, tests=["test/transformers/test_relu_squared.py", path],
        imports=["liger_kernel.ops:ReLUSquaredFunction", "liger_kernel.ops:Missing"], seed=7,
    )  # fmt: skip
    report = run_job(job(payload, deadline_s=200), seen.append)
    assert report.status is Status.completed
    found = {verdict.check: verdict for verdict in report.verdicts}
    assert found["tests/test_relu_squared"].summary.endswith("2 passed"), (
        "bf16 runs too, in the repaired interpreter"
    )
    assert found["tests/test_own_packages"].outcome is Outcome.passed
    assert found["imports"].outcome is Outcome.failed
    assert "liger_kernel.ops has no Missing" in found["imports"].summary
    gauntlet = [v for v in report.verdicts if v.check.startswith("gauntlet/")]
    assert len(gauntlet) > 15
    assert not [v for v in gauntlet if v.outcome is Outcome.failed]
    assert report.isolation is not None
    assert seen[-1].total


def test_a_candidate_that_kills_its_process_is_a_verdict_not_a_fault(tmp_path: Path) -> None:
    checkout = small_repository(
        tmp_path,
        RELU_SQUARED.replace(
            "        return relu_squared_forward(X)\n", "        import os\n        os.kill(os.getpid(), 9)\n"
        ),
    )
    (checkout / "test_it.py").write_text(
        "from kit.ops.relu_squared import ReLUSquaredFunction as F\nimport torch\n\n\ndef test_it():\n    F.apply(torch.ones(2, 2))\n"
    )
    payload = CorrectnessPayload(
        checkout=str(checkout),
        target=target("relu_squared"),
        tests=["test_it.py"],
        imports=["kit.ops.relu_squared"],
    )
    report = run_job(job(payload), lambda _: None)
    assert report.status is Status.completed
    assert not report.ok
    found = {verdict.check: verdict for verdict in report.verdicts}
    assert "SIGKILL" in found["tests"].summary
    assert "SIGKILL" in found["gauntlet/shapes"].summary
    assert found["imports"].outcome is Outcome.passed


def test_a_candidate_that_does_not_load_says_why(tmp_path: Path) -> None:
    report = run_job(
        job(
            CorrectnessPayload(
                checkout=str(small_repository(tmp_path, "raise ImportError('broken')\n")),
                target=target("relu_squared"),
                tests=[],
            )
        ),
        lambda _: None,
    )
    assert "ImportError: broken" in next(v for v in report.verdicts if v.check == "gauntlet/shapes").summary


def test_compile_reads_every_architecture(tmp_path: Path) -> None:
    checkout = small_repository(tmp_path, RELU_SQUARED)
    report = run_job(
        job(CompilePayload(checkout=str(checkout), target=target("relu_squared"), n_cols=[2048])),
        lambda _: None,
    )
    assert [v.check for v in report.verdicts] == [
        "compile/sm_80",
        "compile/sm_90",
        "compile/sm_100",
        "compile/gfx942",
    ]
    assert report.ok, report.verdicts
    for verdict in report.verdicts:
        names = {m.name.split(" _")[0] for m in verdict.measurements}
        assert names == {"registers", "spill", "shared memory", "theoretical occupancy"}
        assert all(m.median > 0 for m in verdict.measurements if m.name.startswith("registers"))


def test_compile_of_a_kernel_that_does_not_compile_fails(tmp_path: Path) -> None:
    checkout = small_repository(
        tmp_path, RELU_SQUARED.replace("relu_x * relu_x, mask=mask)", "relu_x @ relu_x, mask=mask)")
    )
    report = run_job(
        job(
            CompilePayload(
                checkout=str(checkout), target=target("relu_squared"), n_cols=[2048], archs=["sm_90"]
            )
        ),
        lambda _: None,
    )
    (verdict,) = report.verdicts
    assert verdict.outcome is Outcome.failed
    assert "does not compile" in verdict.summary


def test_benchmark_without_a_gpu_predicts_and_says_so() -> None:
    if shutil.which("nvidia-smi"):
        pytest.skip("this machine has a GPU")
    payload = BenchmarkPayload(
        checkout="",
        target=target("relu_squared"),
        shapes=[(8192, 4096)],
        traffic={"forward_tensors": 2, "backward_tensors": 3},
    )
    (verdict,) = run_job(job(payload), lambda _: None).verdicts
    assert verdict.outcome is Outcome.skipped
    assert verdict.summary.startswith("no GPU on this runner")
    assert "134,217,728 bytes, at least 0.031 ms" in verdict.summary
    assert {m.unit for m in verdict.measurements} == {"bytes", "ms"}


def test_a_reference_that_can_not_be_run_refuses_the_whole_gauntlet(tmp_path: Path) -> None:
    op = OpSpec(
        name="relu_squared",
        entry="f",
        source="def f(X):\n    return X.no_such_method()\n",
        tensors=(TensorSpec(name="X", shape=("*", "n_cols")),),
    )
    broken = target("relu_squared").model_copy(update={"op": op})
    report = run_job(
        job(
            CorrectnessPayload(
                checkout=str(small_repository(tmp_path, RELU_SQUARED)), target=broken, tests=[]
            )
        ),
        lambda _: None,
    )
    assert report.status is Status.refused
    assert report.refusal is not None
    assert "no_such_method" in report.refusal.reason


def small_repository(root: Path, source: str) -> Path:
    ops = root / "checkout" / "src" / "kit" / "ops"
    ops.mkdir(parents=True)
    for folder in (ops.parent, ops):
        (folder / "__init__.py").write_text("")
    (ops / "relu_squared.py").write_text(source)
    return root / "checkout"


@pytest.fixture(autouse=True)
def no_leftovers(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing of a job stays in the temporary folder."""
    own = tmp_path_factory.mktemp("tmp")
    own.chmod(0o711)
    monkeypatch.setattr(tempfile, "tempdir", str(own))
    yield
    assert list(own.iterdir()) == []


def test_the_honest_ops_are_those_the_red_team_starts_from() -> None:
    assert set(HONEST) == {"relu_squared", "rms_norm", "linear_loss"}
