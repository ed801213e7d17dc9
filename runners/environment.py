"""Where a report is made: versions and devices, found without importing torch."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import shutil
import subprocess
from pathlib import Path

from runners.protocol import Environment


@functools.cache
def current_environment() -> Environment:
    """The Environment of this runner. On a machine without a GPU `gpu` is None."""
    gpus = _nvidia_gpus() or _amd_gpus()
    return Environment(
        python=platform.python_version(),
        platform=platform.platform(),
        torch=_version("torch"),
        triton=_version("triton"),
        transformers=_version("transformers"),
        gpu=gpus[0][0] if gpus else None,
        gpu_count=len(gpus),
        driver=gpus[0][1] if gpus else None,
        cpu_count=len(os.sched_getaffinity(0)),
    )


def has_gpu() -> bool:
    """Whether candidates run on a GPU here."""
    return current_environment().gpu is not None


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _nvidia_gpus() -> list[tuple[str, str]]:
    """(name, driver) of each NVIDIA GPU."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    try:
        listed = subprocess.run(
            [tool, "--query-gpu=name,driver_version", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    if listed.returncode != 0:
        return []
    return [
        (name.strip(), driver.strip())
        for name, _, driver in (line.partition(",") for line in listed.stdout.splitlines() if line.strip())
    ]


def _amd_gpus() -> list[tuple[str, str]]:
    """(name, driver) of each AMD GPU, from the kernel driver's topology."""
    nodes = Path("/sys/class/kfd/kfd/topology/nodes")
    if not nodes.is_dir():
        return []
    found = []
    for node in sorted(nodes.iterdir()):
        try:
            properties = dict(
                line.split(maxsplit=1)
                for line in (node / "properties").read_text().splitlines()
                if " " in line
            )
            name = (node / "name").read_text().strip() or "AMD GPU"
        except OSError:
            continue
        if properties.get("simd_count", "0").strip() != "0":
            found.append((name, "amdgpu"))
    return found
