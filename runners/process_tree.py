"""The processes below a child: finding them, measuring them, and killing every one, also those that tried to leave."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
KILLING_S, LEAVING_S = 10.0, 2.0


def descendants(pid: int) -> list[int]:
    """`pid` and every process below it."""
    of = _children if _KERNEL_LISTS_CHILDREN else _of_all_processes()
    found, pending = [], [pid]
    while pending:
        current = pending.pop()
        found.append(current)
        pending += of(current)
    return found


def _children(pid: int) -> list[int]:
    """Children of one process, as the kernel lists them by thread."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found += map(int, (thread / "children").read_bytes().split())
    return found


_KERNEL_LISTS_CHILDREN = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").exists()


def _of_all_processes() -> Callable[[int], list[int]]:
    """The same for a kernel that lists none, from every process on this machine: hundreds of files."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(folder.name))
    return lambda pid: children.get(pid, [])


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
    until = time.monotonic() + KILLING_S
    while time.monotonic() < until:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        if process.poll() is None:
            seen.update(descendants(process.pid))
        # from all processes: what the kernel lists may lack some while others come and go
        orphans = seen & set(_of_all_processes()(os.getpid())) - {process.pid}
        for pid in [*orphans, *(pid for orphan in orphans for pid in descendants(orphan))]:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        for pid in orphans:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.01)
        if process.poll() is not None and not orphans:
            _wait_until_gone(seen)
            return
        time.sleep(0.01)
    raise RuntimeError(f"child {process.pid} could not be killed")


def _wait_until_gone(pids: set[int]) -> None:
    """What dies with its namespace does so after the namespace's first process is gone."""
    until = time.monotonic() + LEAVING_S
    while time.monotonic() < until and any(Path(f"/proc/{pid}").exists() for pid in pids):
        time.sleep(0.01)
