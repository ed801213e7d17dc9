"""Every supported release: what is detected, and a candidate that its own lint rules accept."""

from __future__ import annotations

import difflib
import importlib.metadata
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from agents.dev.act import act
from app.dispatch import LocalBench
from tests.contract.act.conftest import VERSIONS, read

DETECTED = snapshot(
    {
        "0.5.10": {
            "ops_import": "submodule",
            "exports_wrappers": False,
            "transformers_init": "lazy",
            "calculate_settings": True,
            "ensure_contiguous": True,
            "device_context": False,
            "extra_repr": True,
            "ruff_requirement": None,
            "line_length": 120,
            "benchmark_api": "functions",
            "bytes_per_token_sweep": False,
            "test_helpers": ("assert_verbose_allclose", "set_seed", "supports_bfloat16"),
            "allclose_extra_info": False,
            "infer_device_module": "liger_kernel.utils",
            "transformers_requirement": "transformers>=4.44.2",
            "ops": 16,
        },
        "0.7.0": {
            "ops_import": "package",
            "exports_wrappers": True,
            "transformers_init": "lazy",
            "calculate_settings": True,
            "ensure_contiguous": True,
            "device_context": False,
            "extra_repr": True,
            "ruff_requirement": "ruff>=0.12.0",
            "line_length": 120,
            "benchmark_api": "functions",
            "bytes_per_token_sweep": False,
            "test_helpers": ("assert_verbose_allclose", "set_seed", "supports_bfloat16"),
            "allclose_extra_info": True,
            "infer_device_module": "liger_kernel.utils",
            "transformers_requirement": "transformers>=4.52.0",
            "ops": 23,
        },
        "0.8.0": {
            "ops_import": "package",
            "exports_wrappers": True,
            "transformers_init": "lazy",
            "calculate_settings": True,
            "ensure_contiguous": True,
            "device_context": False,
            "extra_repr": True,
            "ruff_requirement": "ruff>=0.12.0",
            "line_length": 120,
            "benchmark_api": "sweeps",
            "bytes_per_token_sweep": True,
            "test_helpers": ("assert_verbose_allclose", "set_seed", "supports_bfloat16"),
            "allclose_extra_info": True,
            "infer_device_module": "liger_kernel.utils",
            "transformers_requirement": "transformers>=4.52.0",
            "ops": 28,
        },
        "0.8.5": {
            "ops_import": "package",
            "exports_wrappers": True,
            "transformers_init": "lazy",
            "calculate_settings": True,
            "ensure_contiguous": True,
            "device_context": True,
            "extra_repr": True,
            "ruff_requirement": "ruff>=0.12.0,<0.16.0",
            "line_length": 120,
            "benchmark_api": "builders",
            "bytes_per_token_sweep": False,
            "test_helpers": ("assert_verbose_allclose", "set_seed", "supports_bfloat16"),
            "allclose_extra_info": True,
            "infer_device_module": "liger_kernel.utils",
            "transformers_requirement": "transformers>=5.0.0",
            "ops": 34,
        },
    }
)


@pytest.mark.parametrize("version", VERSIONS)
def test_conventions_of_a_release_are_detected(version: str, checkouts) -> None:
    _, found = read(checkouts(version))
    seen = found.model_dump(
        exclude={"evidence", "existing_ops", "pull_request_template", "package", "source_root", "version"}
    )
    assert found.version == version
    assert {**seen, "ops": len(found.existing_ops)} == DETECTED[version]
    assert all(seen.where for seen in found.evidence.values())


@pytest.mark.parametrize("version", VERSIONS)
async def test_candidate_is_clean_and_its_benchmark_imports(
    version: str, checkouts, profiles, tmp_path: Path
) -> None:
    root = checkouts(version)
    tree, conventions = read(root)
    profile = profiles("scale_shift", conventions)
    candidate = await act(profile, tree, LocalBench(), checkout=str(root))
    assert set(candidate.files) == {planned.path for planned in profile.files}
    assert len(candidate.files) == (6 if conventions.ops_import == "submodule" else 7)
    edited = sorted(set(candidate.files) - set(candidate.created))
    for path in edited:
        lines = difflib.ndiff((tree.read(path) or "").splitlines(), candidate.files[path].splitlines())
        assert {line[0] for line in lines if line[0] in "+-"} == {"+"}
    before = ruff(root, *edited)
    copy = tmp_path / "checkout"
    shutil.copytree(root, copy)
    write(copy, candidate.files)
    assert ruff(copy, *candidate.created) == []
    assert ruff(copy, *edited) == before
    assert bool(candidate.unclean_before) == bool(
        before
    )  # findings that were there before are not ours, and said to be so
    assert_benchmark_imports(copy, version)


def assert_benchmark_imports(copy: Path, version: str) -> None:
    metadata = copy / "src" / f"liger_kernel-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: liger-kernel\nVersion: {version}\n")
    site = str(importlib.metadata.distribution("torch").locate_file(""))
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(copy / "src"), str(copy), site]),
        "TRITON_INTERPRET": "1",
    }
    # -S: our own packages, installed editable, must not be what `kernels` means to transformers
    script = "import sys; sys.path.insert(0, 'benchmark/scripts'); import benchmark_scale_shift as b; print(b.setup_scale_shift.__name__)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", script],
        check=False,
        cwd=copy,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.strip() == "setup_scale_shift", done.stderr[-2000:]


def write(root: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        (root / path).write_text(text)


def ruff(root: Path, *paths: str) -> list[str]:
    """Lint and format findings in these paths, without line numbers, sorted."""
    program = str(Path(sys.executable).with_name("ruff"))
    lint = subprocess.run(
        [program, "check", "--no-cache", "--output-format=concise", *paths],
        check=False,
        cwd=root,
        capture_output=True,
        text=True,
        timeout=60,
    )
    layout = subprocess.run(
        [program, "format", "--no-cache", "--check", *paths],
        check=False,
        cwd=root,
        capture_output=True,
        text=True,
        timeout=60,
    )
    found = [
        line.split(":", 1)[0] + line.split(":", 3)[-1] for line in lint.stdout.splitlines() if ".py:" in line
    ]
    return sorted(
        [*found, *(line for line in layout.stdout.splitlines() if line.startswith("Would reformat"))]
    )
