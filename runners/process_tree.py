"""The processes below a child: finding them, measuring them, and killing every one, also those that tried to leave."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
LEAVING_S = 2.0


def _processes() -> dict[int, list[int]]:
    """Children of every process on this machine: parent id -> ids."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(folder.name))
    return children


def descendants(pid: int) -> list[int]:
    """`pid` and every process below it."""
    children = _processes()
    found, pending = [], [pid]
    while pending:
        current = pending.pop()
        found.append(current)
        pending += children.get(current, [])
    return found


def resident_bytes(pid: int) -> int:
    """Resident memory of one process in bytes; 0 when it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0


def adopt_orphans() -> None:
    """Become the reaper of descendants whose parent dies, so that a child that daemonises can still be found and killed."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_tree(process: subprocess.Popen[bytes], seen: set[int]) -> None:
    """Kill the child's process group, every descendant, and what was seen alive and then left for a session of its own."""
    for _ in range(50):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        if process.poll() is None:
            seen.update(descendants(process.pid))
        orphans = seen & set(_processes().get(os.getpid(), [])) - {process.pid}
        for pid in [*orphans, *(pid for orphan in orphans for pid in descendants(orphan))]:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        for pid in orphans:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.2)
        if process.poll() is not None and not orphans:
            _wait_until_gone(seen)
            return
    raise RuntimeError(f"child {process.pid} could not be killed")


def _wait_until_gone(pids: set[int]) -> None:
    """What dies with its namespace does so after the namespace's first process is gone."""
    until = time.monotonic() + LEAVING_S
    while time.monotonic() < until and any(Path(f"/proc/{pid}").exists() for pid in pids):
        time.sleep(0.01)
