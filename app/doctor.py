"""`liger-bot doctor`: what this machine can do, and what to do about what it can't."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys

from pydantic import ValidationError
from rich.console import Console
from rich.markup import escape

from app.settings import Settings, child_environment
from app.usage import EXIT_FAILED
from runners.protocol import Environment

RUNNER_TIMEOUT_S = 120


async def report(console: Console) -> int:
    """Print one line a finding; the exit code is 1 when the main job can't run here."""
    ok = _git(console)
    ok = await _runner(console) and ok
    isolated = shutil.which("bwrap") or shutil.which("unshare")
    _line(
        console,
        bool(isolated),
        "sandbox",
        f"{isolated} confines jobs" if isolated else "limits alone confine jobs: install bubblewrap",
    )
    _line(
        console,
        True,
        "model",
        os.environ.get("LIGER_BOT_MODEL")
        or "none: free text is refused, everything the rules cover works (set LIGER_BOT_MODEL)",
    )
    try:
        settings = Settings()
        _line(console, True, "service", f"configured for {settings.github_url}")
    except ValidationError as error:
        why = "; ".join(item["msg"].removeprefix("Value error, ") for item in error.errors())
        _line(console, True, "service", f"not configured, which only `liger-bot serve` needs: {why}")
    return 0 if ok else EXIT_FAILED


def _git(console: Console) -> bool:
    git = shutil.which("git")
    _line(console, git is not None, "git", git or "not found: install git")
    return git is not None


async def _runner(console: Console) -> bool:
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
        _line(
            console, False, "runner", f"python -m runners doesn't answer ({' '.join(last)}): run make setup"
        )
        return False
    _line(
        console,
        environment.torch is not None,
        "runner",
        f"torch {environment.torch}, triton {environment.triton}, transformers {environment.transformers}",
    )
    gpu = (
        f"{environment.gpu} x {environment.gpu_count}, driver {environment.driver}"
        if environment.gpu
        else "none: kernels run in Triton's interpreter, and the benchmark is a prediction"
    )
    _line(console, True, "GPU", gpu)
    return environment.torch is not None


def _line(console: Console, ok: bool, name: str, text: str) -> None:
    console.print(
        f"{'[green]✓[/]' if ok else '[red]✗[/]'} {name}: {escape(text)}", highlight=False, soft_wrap=True
    )
