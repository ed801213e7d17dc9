"""Packages from npm, fetched once into a folder below .liger-bot; without npm a test skips and says so."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

CACHE = Path(__file__).parents[1] / ".liger-bot" / "npm"


def npm_packages(name: str, *packages: str) -> Path:
    """A folder in which node finds `packages` ("octokit@5.0.5"). name: of the folder; one for each test file, since
    test files run at the same time."""
    folder = CACHE / name
    complete = folder / "complete"
    if complete.exists() and complete.read_text() == "\n".join(packages):
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "package.json").write_text('{"private": true}')
    _npm(folder, "install", "--ignore-scripts", "--no-audit", "--no-fund", *packages)
    complete.write_text("\n".join(packages))
    return folder


def npm_file(package: str, member: str) -> Path:
    """One file of a package that is large otherwise. member: its path in the package's archive."""
    stored = CACHE / package.replace("/", "_") / Path(member).name
    if not stored.exists():
        stored.parent.mkdir(parents=True, exist_ok=True)
        archive = stored.parent / _npm(stored.parent, "pack", package).strip().splitlines()[-1]
        with tarfile.open(archive) as packed:
            found = packed.extractfile(member)
            assert found is not None
            stored.write_bytes(found.read())
        archive.unlink()
    return stored


def _npm(folder: Path, verb: str, *arguments: str) -> str:
    """What npm prints; skips the test where npm isn't there or gets nothing."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("node and npm are not installed")
    command = [npm, verb, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, check=False)
    if done.returncode != 0:
        pytest.skip(f"npm {verb} fails: {done.stderr[-200:]}")
    return done.stdout
