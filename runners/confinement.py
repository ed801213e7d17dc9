"""How a child is confined on this machine: the command line that wraps it. Tried in order: bubblewrap, namespaces, limits."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

Method = Literal["bubblewrap", "namespaces", "limits"]

NOBODY = 65534
SYSTEM_DIRECTORIES = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt/rocm")
SYSTEM_FILES = (
    "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime",
    "/etc/nsswitch.conf", "/etc/OpenCL", "/sys/devices", "/sys/bus", "/sys/class", "/sys/module",
)  # fmt: skip
GPU_DEVICES = ("nvidia", "dri", "kfd")

# Run by sh inside fresh namespaces, with positional parameters only: HIDDEN_COUNT, hidden…, WRITABLE_COUNT, writable…, command…
# Everything mounted is made read-only except the writable folders; homes are covered; then capabilities are dropped.
_NAMESPACE_SCRIPT = r"""
set -e
mount --make-rprivate /
mount -t proc proc /proc
hidden=$1; shift
i=0; while [ "$i" -lt "$hidden" ]; do mount -t tmpfs -o size=1m,mode=755 tmpfs "$1"; shift; i=$((i+1)); done
writable=$1; shift
i=0; keep=" "
while [ "$i" -lt "$writable" ]; do mount --bind "$1" "$1"; keep="$keep$1 "; shift; i=$((i+1)); done
while read -r _ directory _; do
  case "$keep" in *" $directory "*) ;; *) mount -o remount,bind,ro "$directory" 2>/dev/null || true ;; esac
done < /proc/self/mounts
# Not exec: process 1 of a namespace ignores the signals that should kill a child.
setpriv --bounding-set=-all --inh-caps=-all --no-new-privs -- "$@"
exit $?
"""


def _works(command: Sequence[str]) -> bool:
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


@functools.cache
def best_method() -> Method:
    """The strongest method that works here, found by trying. LIGER_BOT_CONFINEMENT forces a weaker one, for tests."""
    forced = os.environ.get("LIGER_BOT_CONFINEMENT")
    if forced in ("bubblewrap", "namespaces", "limits"):
        return forced  # type: ignore[return-value]
    probe = Path("/usr/bin/true") if Path("/usr/bin/true").exists() else Path("/bin/true")
    if _works(["bwrap", *_bubblewrap_options([], [], Path("/"), gpu=False), "--", str(probe)]):
        return "bubblewrap"
    if _works(wrap("namespaces", [str(probe)], readable=[], writable=[], cwd=Path("/"), gpu=False)):
        return "namespaces"
    return "limits"


def python_directories(python: Path) -> list[Path]:
    """Folders an interpreter needs to start: its environment, the installation behind it, and the path of links to it."""
    found = {python.parent.parent, python.resolve().parent.parent}
    if python == Path(sys.executable):
        found |= {Path(sys.prefix), Path(sys.base_prefix), Path(sys.base_exec_prefix)}
    link = python
    while link.is_symlink():
        link = link.parent / link.readlink()
        found.add(link.parent.parent)
    return sorted(path for path in found if path != Path("/"))


def wrap(
    method: Method, command: Sequence[str], *, readable: Sequence[Path], writable: Sequence[Path], cwd: Path, gpu: bool
) -> list[str]:
    """The command line that runs `command` confined: no network, only `writable` writable. Environment is the caller's."""
    if method == "bubblewrap":
        return ["bwrap", *_bubblewrap_options(readable, writable, cwd, gpu=gpu), "--", *command]
    if method == "namespaces":
        hidden = _hideable([*readable, *writable, Path(command[0])])
        return [
            *_dying_with_parent(), "unshare", "--user", "--map-root-user", "--net", "--ipc", "--uts", "--pid", "--mount",
            "--fork", "--kill-child", "sh", "-c", _NAMESPACE_SCRIPT, "sh",
            str(len(hidden)), *hidden, str(len(writable)), *map(str, writable), *command,
        ]  # fmt: skip
    if os.geteuid() == 0 and shutil.which("setpriv") and all(_open_to_all(path) for path in [*readable, Path(command[0])]):
        for directory in writable:
            os.chown(directory, NOBODY, NOBODY)
        identity = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--no-new-privs"]
        return ["setpriv", *identity, "--", *command]
    return list(command)


def _dying_with_parent() -> list[str]:
    return ["setpriv", "--pdeathsig", "KILL", "--"] if shutil.which("setpriv") else []


def _open_to_all(path: Path) -> bool:
    """Whether a stranger may enter `path` and everything above it."""
    return all(part.stat().st_mode & 0o005 == 0o005 or not part.is_dir() for part in [path, *path.parents])


def _hideable(needed: Sequence[Path]) -> list[str]:
    """Home folders to cover: those that hold nothing the child needs."""
    candidates = {Path("/root"), Path("/home"), Path.home()}
    return sorted(
        str(home)
        for home in candidates
        if home.is_dir() and home != Path("/") and not any(path.resolve().is_relative_to(home) or path.is_relative_to(home) for path in needed)
    )


def _bubblewrap_options(readable: Sequence[Path], writable: Sequence[Path], cwd: Path, *, gpu: bool) -> list[str]:
    options = ["--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--hostname", "sandbox"]
    for name in SYSTEM_DIRECTORIES:
        path = Path(name)
        if path.is_symlink():
            options += ["--symlink", str(path.readlink()), name]
        elif path.exists():
            options += ["--ro-bind", name, name]
    for name in SYSTEM_FILES:
        options += ["--ro-bind-try", name, name]
    options += ["--proc", "/proc", "--dev", "/dev", "--size", str(256 * 1024**2), "--tmpfs", "/dev/shm", "--dir", "/tmp"]  # noqa: S108 - empty; TMPDIR is elsewhere
    if gpu:
        for device in sorted(Path("/dev").iterdir()):
            if device.name.startswith(GPU_DEVICES):
                options += ["--dev-bind", str(device), str(device)]
    for path in readable:
        if not _covered(path):
            options += ["--ro-bind", str(path), str(path)]
    for path in writable:
        options += ["--bind", str(path), str(path)]
    return [*options, "--remount-ro", "/", "--chdir", str(cwd)]


def _covered(path: Path) -> bool:
    return any(path.is_relative_to(name) for name in SYSTEM_DIRECTORIES)
