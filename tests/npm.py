"""Packages from npm, fetched once into a folder below .liger-bot; without npm a test skips and says so."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

CACHE = Path(__file__).parents[1] / ".liger-bot" / "npm"


def npm_packages(name: str, *packages: str) -> Path:
    """A folder in which node finds `packages` ("octokit@5.0.5"). name: of the folder; one for each test file, since
    test files run at the same time."""
    npm = shutil.which("npm")
    folder = CACHE / name
    complete = folder / "complete"
    if complete.exists() and complete.read_text() == "\n".join(packages):
        return folder
    if npm is None or shutil.which("node") is None:
        pytest.skip("node and npm are not installed")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "package.json").write_text('{"private": true}')
    command = [npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", *packages]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, check=False)
    if done.returncode != 0:
        pytest.skip(f"npm can't fetch {', '.join(packages)}: {done.stderr[-200:]}")
    complete.write_text("\n".join(packages))
    return folder
