"""The first code in every sandboxed child: lowers its own limits, records what it can see, then runs the real script.

Usage: python -S -P boot.py OBSERVATION.json LIMITS.json SCRIPT [ARGUMENT…]. Standard library only. It runs before any
untrusted code, so the observation is true; limits are hard limits, so nothing later can raise them.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.machinery
import json
import os
import resource
import runpy
import signal
import socket
import sys
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 1, 4, 38


def _lower(which: int, value: int) -> None:
    """Set a hard limit; where the system's own is already lower, keep that."""
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(which, (value, value))


def _observe() -> dict[str, object]:
    capabilities = next((line.split()[1] for line in _status() if line.startswith("CapEff")), "?")
    return {
        "interfaces": [name for _, name in socket.if_nameindex()],
        "pid": os.getpid(),
        "uid": os.getuid(),
        "visible_processes": sum(name.isdigit() for name in os.listdir("/proc"))
        if os.path.isdir("/proc")
        else 0,
        "capabilities": capabilities,
        "environment": sorted(os.environ),
    }


def _status() -> list[str]:
    try:
        return Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return []


class _TargetPaths(importlib.machinery.PathFinder):
    """The path finder, blind to the packages named in `hidden` where they live under `own_root`.

    A target repository must not see ours: transformers, for one, asks whether a package called `kernels` exists.
    """

    hidden: frozenset[str] = frozenset()
    own_root = ""

    @classmethod
    def find_spec(cls, fullname, path=None, target=None):  # type: ignore[override]
        if path is None and fullname in cls.hidden:
            path = [entry for entry in sys.path if os.path.realpath(entry or ".") != cls.own_root]
        return super().find_spec(fullname, path, target)


def hide_own_packages(own_root: str, names: list[str]) -> None:
    """Make `names` unimportable from `own_root`, and check that they are."""
    _TargetPaths.hidden, _TargetPaths.own_root = frozenset(names), os.path.realpath(own_root)
    sys.meta_path[:] = [
        _TargetPaths if finder is importlib.machinery.PathFinder else finder for finder in sys.meta_path
    ]
    for name in names:
        spec = (
            importlib.machinery.PathFinder.find_spec(name, None)
            if name in sys.modules
            else _TargetPaths.find_spec(name)
        )
        if (
            spec is not None
            and spec.origin
            and os.path.realpath(spec.origin).startswith(_TargetPaths.own_root + os.sep)
        ):
            raise SystemExit(f"the package {name} of the runner is visible to the target: {spec.origin}")


def main() -> None:
    observation, limits_json, script, *arguments = sys.argv[1:]
    limits = json.loads(limits_json)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if limits.get("undumpable"):
        libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    if limits["address_space"]:
        _lower(resource.RLIMIT_AS, limits["address_space"])
    _lower(resource.RLIMIT_CPU, limits["cpu_s"])
    _lower(resource.RLIMIT_FSIZE, limits["file_bytes"])
    _lower(resource.RLIMIT_NPROC, limits["threads"])
    _lower(resource.RLIMIT_CORE, 0)
    with open(observation, "x") as file:
        json.dump(_observe(), file)
    if limits.get("hidden_packages"):
        hide_own_packages(limits["own_root"], limits["hidden_packages"])
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
