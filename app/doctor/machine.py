"""Looks at this machine: git, runner, GPU, isolation, model."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys

from pydantic import ValidationError

from app.confinement import LIMITS_ALONE, MEND, confinement
from app.doctor.findings import Finding, failed, fine, remark
from app.settings import child_environment
from runners.protocol import Environment

ABOUT = "this machine"
RUNNER_TIMEOUT_S = 120


async def look_at_machine() -> list[Finding]:
    """What this machine can do."""
    return [_git(), *await _runner(), await _sandbox(), _model()]


def _git() -> Finding:
    git = shutil.which("git")
    return fine(ABOUT, "git", git) if git else failed(ABOUT, "git", "not found", "install git")


async def _sandbox() -> Finding:
    """How a runner here confines what it runs: tried, not guessed."""
    method = await confinement(os.environ.get("LIGER_BOT_RUNNER_PYTHON", ""))
    if method in {"bubblewrap", "namespaces"}:
        return fine(
            ABOUT, "sandbox", f"{method} confine jobs" if method[-1] == "s" else f"{method} confines jobs"
        )
    text = f"{LIMITS_ALONE}; the service runs none then unless LIGER_BOT_ALLOW_UNCONFINED is set"
    return remark(ABOUT, "sandbox", text, MEND)


def _model() -> Finding:
    model = os.environ.get("LIGER_BOT_MODEL")
    none = "none: free text is refused, everything the rules cover works (set LIGER_BOT_MODEL)"
    return fine(ABOUT, "model", model or none)


async def _runner() -> list[Finding]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "runners", "--environment",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=child_environment(),
    )  # fmt: skip
    stderr = b""
    try:
        stdout, stderr = await asyncio.wait_for(process.communicate(), RUNNER_TIMEOUT_S)
        environment = Environment.model_validate_json(stdout)
    except (TimeoutError, ValidationError) as error:
        if process.returncode is None:
            process.kill()
        last = stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or [type(error).__name__]
        return [
            failed(ABOUT, "runner", f"python -m runners doesn't answer ({' '.join(last)})", "run make setup")
        ]
    if environment.torch is None:
        return [failed(ABOUT, "runner", "torch isn't installed for it", "run make setup")]
    found = f"torch {environment.torch}, triton {environment.triton}, transformers {environment.transformers}"
    gpu = (
        f"{environment.gpu} x {environment.gpu_count}, driver {environment.driver}"
        if environment.gpu
        else "none: kernels run in Triton's interpreter, and the benchmark is a prediction"
    )
    return [fine(ABOUT, "runner", found), fine(ABOUT, "GPU", gpu)]
