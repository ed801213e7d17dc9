"""Reports of pytest and ruff, read into verdicts."""

from __future__ import annotations

from pathlib import Path

import pytest

from runners.checkout import copy_checkout, inside
from runners.checks.imports import import_verdicts
from runners.checks.static import check_static
from runners.checks.style import satisfies
from runners.checks.target_tests import file_verdicts, parse_junit
from runners.protocol import Outcome

JUNIT = """<?xml version="1.0" encoding="utf-8"?><testsuites><testsuite name="pytest">
<testcase classname="test.transformers.test_a" file="test/transformers/test_a.py" name="test_one" time="0.5"/>
<testcase classname="test.transformers.test_a" name="test_two" time="0.25"><skipped message="no bf16"/></testcase>
<testcase classname="test.transformers.test_b.TestB" name="test_three" time="1"><failure message="assert 1 == 2&#10;more">trace</failure></testcase>
<testcase classname="test.transformers.test_c" name="test_four" time="0"><skipped message="needs a GPU"/></testcase>
</testsuite></testsuites>"""
A, B, C, D = (f"test/transformers/test_{x}.py" for x in "abcd")


@pytest.fixture
def counts(tmp_path: Path):
    (tmp_path / "junit.xml").write_text(JUNIT)
    return parse_junit(tmp_path / "junit.xml")


def test_one_verdict_a_file(counts) -> None:
    found = {v.path: v for v in file_verdicts([A, B], [C, D], counts, "", "log")}
    assert found[A].outcome is Outcome.passed
    assert found[A].summary == f"{A}: 1 passed, 1 skipped (no bf16)"
    assert found[B].outcome is Outcome.failed
    assert "first: test_three: assert 1 == 2" in found[B].summary
    assert "trace" in found[B].details
    assert found[C].outcome is Outcome.skipped
    assert found[D].outcome is Outcome.failed
    assert "no test ran" in found[D].summary


def test_a_generated_test_that_only_skips_has_not_passed(counts) -> None:
    (verdict,) = file_verdicts([C], [], counts, "", "")
    assert verdict.outcome is Outcome.failed


def test_a_run_that_was_killed_is_no_pass(counts) -> None:
    (verdict,) = file_verdicts([A], [], counts, "stopped at its deadline of 5 s", "")
    assert verdict.outcome is Outcome.failed
    assert "deadline" in verdict.summary


def test_no_report_at_all_is_one_failure() -> None:
    (verdict,) = file_verdicts([A, B], [], None, "killed by SIGKILL", "the log")
    assert "killed by SIGKILL" in verdict.summary
    assert verdict.details == "the log"


@pytest.mark.parametrize("text", ["<", '<!DOCTYPE x [<!ENTITY a "b">]><testsuites>&a;</testsuites>', ""])
def test_a_report_that_can_not_be_read_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "junit.xml").write_text(text)
    assert parse_junit(tmp_path / "junit.xml") is None


def test_imports() -> None:
    assert import_verdicts([], {}, "") == []
    (good,) = import_verdicts(["a", "b:c"], {"a": None, "b:c": None}, "")
    assert good.outcome is Outcome.passed
    (bad,) = import_verdicts(["a", "b:c"], {"a": None, "b:c": "b has no c"}, "")
    assert bad.summary == "b:c: b has no c"
    (unreached,) = import_verdicts(["a", "b"], {"a": None}, "")
    assert "was not reached" in unreached.summary
    (dead,) = import_verdicts(["a"], None, "killed by SIGSEGV")
    assert "killed by SIGSEGV" in dead.summary


@pytest.mark.parametrize(
    ("version", "requirement", "met"),
    [
        ("0.17.6", "ruff<0.16", False), ("0.15.22", "ruff<0.16", True), ("0.15.22", "ruff>=0.12,<0.16", True), ("0.11.0", "ruff>=0.12,<0.16", False),
        ("0.12.0", "ruff==0.12", True), ("0.12.1", "ruff==0.12", False), ("0.12.7", "ruff~=0.12.3", True), ("0.13.0", "ruff~=0.12.3", False),
        ("1.0.0", "ruff", True), ("0.12.0", "ruff!=0.12.0", False),
    ],
)  # fmt: skip
def test_versions(version: str, requirement: str, met: bool) -> None:
    assert satisfies(version, requirement) is met


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../../x", "link/x", ""])
def test_paths_that_leave_the_checkout_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "link").symlink_to(tmp_path)
    with pytest.raises(ValueError, match=r"not a path inside|through a link"):
        inside(tmp_path / "root", name)


def test_a_copy_leaves_the_original_alone(tmp_path: Path) -> None:
    original = tmp_path / "original"
    (original / ".git").mkdir(parents=True)
    (original / "a.py").write_text("old")
    copy = copy_checkout(original, tmp_path / "copy", {"a.py": "new", "new/b.py": "b"})
    assert (original / "a.py").read_text() == "old"
    assert (copy / "a.py").read_text() == "new"
    assert (copy / "new" / "b.py").read_text() == "b"
    assert not (copy / ".git").exists()


KERNEL = "import torch\nimport triton\nimport triton.language as tl\n\n\n@triton.jit\ndef k(x_ptr, N: tl.constexpr):\n    i = tl.program_id(0).to(tl.int64)\n    tl.store(x_ptr + i, tl.exp(tl.load(x_ptr + i)))\n"


def test_a_kernel_module_is_scanned_and_other_files_are_not() -> None:
    found = check_static(
        {"src/kit/ops/k.py": KERNEL, "test/test_k.py": "import os\n", "README.md": "import os"}
    )
    assert [(v.outcome, v.path) for v in found] == [(Outcome.passed, "src/kit/ops/k.py")]


def test_the_target_may_import_itself() -> None:
    found = check_static({"src/kit/ops/k.py": "from kit.ops.utils import settings\n" + KERNEL})
    assert [v.outcome for v in found] == [Outcome.passed]


def test_operations_of_triton_are_not_taken_for_torch() -> None:
    """tl.exp is the kernel's own work; torch.exp is not."""
    (verdict,) = check_static({"src/kit/ops/k.py": KERNEL + "\n\ndef f(x):\n    return torch.exp(x)\n"})
    assert verdict.outcome is Outcome.failed
    assert verdict.summary == "torch.exp computes outside the kernel"
    assert verdict.line == 13


def test_a_32_bit_program_id_is_flagged() -> None:
    found = check_static({"src/kit/ops/k.py": KERNEL.replace(".to(tl.int64)", "")})
    assert Outcome.flagged in [v.outcome for v in found]


def test_invalid_python_is_a_failure_with_its_line() -> None:
    (verdict,) = check_static({"src/kit/ops/k.py": "def f(:\n"})
    assert verdict.outcome is Outcome.failed
    assert verdict.line == 1
