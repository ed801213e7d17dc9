"""A Liger-Kernel checkout for tests: the PyPI source distribution, downloaded once and unpacked fresh."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

CACHE = Path(
    os.environ.get("LIGER_BOT_TEST_CACHE", Path(__file__).resolve().parents[1] / ".liger-bot" / "sdists")
)


def liger_sdist(version: str = "0.7.0") -> Path:
    """The sdist archive of that release; downloads it when it is not in the cache yet."""
    archive = CACHE / f"liger_kernel-{version}.tar.gz"
    if not archive.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-build-isolation"]
        # beside the archive and renamed, because another test process may be doing the same
        with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
            subprocess.run(
                [*command, "--no-binary", ":all:", "--dest", scratch, f"liger-kernel=={version}"],
                check=True,
                timeout=300,
            )
            (Path(scratch) / archive.name).replace(archive)
    return archive


def liger_checkout(destination: Path, version: str = "0.7.0") -> Path:
    """Unpack that release under `destination` and return the checkout's root."""
    with tarfile.open(liger_sdist(version)) as tar:
        tar.extractall(destination, filter="data")
    return destination / f"liger_kernel-{version}"
