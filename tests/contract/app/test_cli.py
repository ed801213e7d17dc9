"""The command line as a process: exit codes, and one line for a mistake."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.exhaustive import exhaustive
from tests.liger_checkout import liger_checkout


def run(*arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "app.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = liger_checkout(tmp_path_factory.mktemp("cli"))
    git(root, "init", "--quiet", "--initial-branch=main")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "import")
    return root


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "dev relu2", "--repo", "/nowhere"], "is not a folder"),
        (["run", "deev relu2"], 'try: liger-bot run "dev relu2"'),
        (["run", "status"], "can't be run in a local checkout"),
        (["derive", "no_such_file.py:f"], "can't read no_such_file.py"),
    ],
)
def test_a_wrong_call_is_one_line_and_exit_code_2(arguments: list[str], words: str):
    done = run(*arguments)

    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.strip().splitlines()) == 1
    assert words in done.stderr


def test_a_folder_that_is_no_repository_says_what_to_do(tmp_path: Path):
    done = run("run", "dev relu2", "--repo", str(tmp_path))
    assert done.returncode == 2
    assert "git init" in done.stderr

    git(tmp_path, "init", "--quiet")
    done = run("run", "dev relu2", "--repo", str(tmp_path))
    assert done.returncode == 2
    assert "has no commit yet" in done.stderr


def test_a_refused_op_is_exit_code_1_and_the_json_says_why(checkout: Path, tmp_path: Path):
    out = tmp_path / "request.json"

    done = run("run", "dev swiglu", "--repo", str(checkout), "--yes", "--json", str(out))

    assert done.returncode == 1
    assert "already has" in done.stdout
    record = json.loads(out.read_text())
    assert record["refused"]["where"] == "src/liger_kernel/ops/swiglu.py"
    assert record["files"] == {}
    assert git(checkout, "branch", "--list", "liger-bot/*") == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "reason", "try_next"),
    [
        pytest.param("minstral", "has no model called", "/liger autopatch ministral", marks=exhaustive),
        ("llama", "already patches", "/liger autopatch llama --add rms_norm"),
        pytest.param("bert", "is an encoder", None, marks=exhaustive),
        pytest.param("acme/tiny", "nothing is fetched from the Hub", None, marks=exhaustive),
    ],
)
def test_a_model_that_can_not_be_patched_is_exit_code_1_and_one_sentence(
    checkout: Path, tmp_path: Path, model: str, reason: str, try_next: str | None
):
    out = tmp_path / "request.json"

    done = run("run", f"autopatch {model}", "--repo", str(checkout), "--yes", "--json", str(out), timeout=240)

    assert done.returncode == 1, done.stdout + done.stderr
    (sentence,) = [line for line in done.stdout.splitlines() if line.startswith("refused: ")]
    assert reason in sentence
    record = json.loads(out.read_text())
    assert record["files"] == {}
    assert try_next is None or try_next in record["refused"]["suggestions"]
    assert git(checkout, "branch", "--list", "liger-bot/*") == ""


def test_watch_finds_what_a_release_expects_of_transformers_in_vain(checkout: Path, tmp_path: Path):
    other = tmp_path / "transformers"
    (other / "models" / "llama").mkdir(parents=True)
    (other / "__init__.py").write_text('__version__ = "5.99.0"\n')
    (other / "models" / "llama" / "modeling_llama.py").write_text("class LlamaModel: ...\n")
    out = tmp_path / "findings.json"

    done = run("watch", "--repo", str(checkout), "--against", str(tmp_path), "--json", str(out))

    assert done.returncode == 1, done.stdout + done.stderr
    found = [one for one in json.loads(out.read_text()) if one["model"] == "llama"]
    assert [(one["kind"], one["new"]) for one in found if "LlamaForCausalLM" in one["what"]] == [
        ("breaks", True)
    ]
    assert any(one["kind"] == "dead" and "LlamaRMSNorm" in one["what"] for one in found)
    assert "under transformers 5.99.0" in done.stdout


def test_watch_without_a_transformers_is_a_wrong_call(checkout: Path, tmp_path: Path):
    done = run("watch", "--repo", str(checkout), "--against", str(tmp_path))
    assert done.returncode == 2
    assert "holds no transformers" in done.stderr


@pytest.mark.slow
def test_a_run_leaves_a_commit_on_a_branch_and_the_whole_request_as_json(checkout: Path, tmp_path: Path):
    out = tmp_path / "request.json"

    done = run("run", "dev relu2", "--repo", str(checkout), "--yes", "--json", str(out), timeout=280)

    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads(out.read_text())
    assert len(record["files"]) == 7
    assert {gate: check["conclusion"] for gate, check in record["checks"].items()} == {
        "style": "success",
        "correctness": "success",
        "compile": "success",
        "benchmark": "neutral",
    }
    assert record["profile"]["operation_name"] == "relu_squared"
    assert git(checkout, "rev-parse", record["branch"]).strip() == record["commit"]
    assert git(checkout, "diff", "--name-only", "main", record["branch"]).split() == sorted(record["files"])
    assert git(checkout, "status", "--short") == ""
    assert git(checkout, "branch", "--show-current").strip() == "main"


@exhaustive
@pytest.mark.slow
@pytest.mark.timeout(1200)  # two verifications of a model, a minute or two of computing each
def test_a_patch_that_the_repository_lets_down_is_made_again_without_that_part(tmp_path: Path):
    """The repository's own helper for built models does nothing: its norms run on one path alone, which a repair leaves out."""
    root, out = liger_checkout(tmp_path / "files"), tmp_path / "request.json"
    file = root / "src/liger_kernel/transformers/monkey_patch.py"
    helper = re.compile(r"^def _patch_rms_norm_module\(.*\):\n", re.MULTILINE)
    file.write_text(helper.sub(lambda found: found[0] + "    return\n", file.read_text(), count=1))
    git(root, "init", "--quiet", "--initial-branch=main")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "import")

    done = run("run", "autopatch ministral", "--repo", str(root), "--yes", "--json", str(out), timeout=1100)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "Repair 1: " in done.stdout
    record = json.loads(out.read_text())
    assert record["checks"]["correctness"]["conclusion"] == "success"
    first, second = record["attempts"]
    assert "failure" in first["checks"]["correctness"]
    assert second["commit"] == record["commit"]
    assert git(root, "rev-parse", f"{record['commit']}^").strip() == first["commit"]
    patched = record["files"]["src/liger_kernel/transformers/monkey_patch.py"]
    made = patched[patched.index("def apply_liger_kernel_to_ministral(") :]
    made = made[: made.index("\ndef ")]
    assert "MinistralMLP = LigerSwiGLUMLP" in made
    assert "MinistralRMSNorm =" not in made
    assert "MinistralRMSNorm is not patched: rms_norm changes no kernel call" in made
    message = git(root, "log", "-1", "--format=%B", record["commit"])
    assert "RMSNorm" in message
