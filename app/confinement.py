"""How a runner on this machine confines what it runs: asked of a runner's process, since a kernel or a container may forbid it."""

from __future__ import annotations

import asyncio
import logging
import sys

from app.settings import Settings, child_environment

log = logging.getLogger(__name__)

LIMITS_ALONE = (
    "limits alone confine jobs: what they run can read whatever this user can, and reach the network"
)
MEND = "install bubblewrap; in a container, let it make user namespaces (docs/operations.md)"
_BEST_METHOD = "from runners.confinement import best_method; print(best_method())"


async def confinement(python: str = "") -> str:
    """bubblewrap, namespaces or limits; empty when the runner's interpreter (empty: ours) doesn't answer."""
    try:
        process = await asyncio.create_subprocess_exec(
            python or sys.executable, "-c", _BEST_METHOD,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL, env=child_environment(),
        )  # fmt: skip
    except OSError:
        return ""
    stdout, _ = await process.communicate()
    return stdout.decode().strip()


async def say_confinement(settings: Settings) -> None:
    """Log it once, as loud as it is bad."""
    method = await confinement(settings.runner_python)
    if method == "limits" and settings.allow_unconfined:
        log.warning(
            "%s; LIGER_BOT_ALLOW_UNCONFINED lets them run all the same. Better: %s", LIMITS_ALONE, MEND
        )
    elif method == "limits":
        log.error("no job runs here, because %s. %s", LIMITS_ALONE, MEND)
    else:
        log.info(
            "jobs are confined by %s", method or "nothing known: the runner's interpreter doesn't answer"
        )
