"""How a child is confined on this machine: the command line that wraps it. Tried in order: bubblewrap, namespaces, limits."""

from __future__ import annotations

import functools
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from runners.child_user import as_own_user, can_be_given, can_read_as_root, give, groups_of

Method = Literal["bubblewrap", "namespaces", "limits"]

# Set in a runner that stands beside secrets or whose network must stay shut: limits alone are not enough for it.
REQUIRED = "LIGER_BOT_REQUIRE_CONFINEMENT"

SYSTEM_DIRECTORIES = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt/rocm")
SYSTEM_FILES = (
    "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime",
    "/etc/nsswitch.conf", "/etc/OpenCL", "/sys/devices", "/sys/bus", "/sys/class", "/sys/module",
)  # fmt: skip
PLAIN_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
GPU_DEVICES = ("nvidia", "dri", "kfd")
SHARED_MEMORY_BYTES = 256 * 1024**2

# What bubblewrap does, for machines without it: a new root of read-only binds, run by sh inside fresh namespaces with
# positional parameters only: ROOT CWD, then "link TARGET PATH" | "ro PATH" | "rw PATH" triples and pairs, "run", the command.
# As real root the child becomes a user of its own: a root without capabilities could still open the machine's disks.
_NEW_ROOT = r"""
set -e
root=$1 cwd=$2; shift 2
mount --make-rprivate /
mount -t tmpfs -o size=16m,mode=755 tmpfs "$root"
place() {
  if [ -d "$1" ]; then mkdir -p "$root$1"; else mkdir -p "$(dirname "$root$1")"; [ -e "$root$1" ] || : > "$root$1"; fi
  mount --rbind "$1" "$root$1"
}
mkdir -p "$root/proc" "$root/dev/shm" "$root/tmp"
mount -t proc proc "$root/proc" 2>/dev/null || mount --rbind /proc "$root/proc"
mount -t tmpfs -o size=SHARED,mode=1777 tmpfs "$root/dev/shm"
ln -s /proc/self/fd "$root/dev/fd"
while [ "$1" != run ]; do
  case "$1" in
    link) mkdir -p "$(dirname "$root$3")"; ln -s "$2" "$root$3"; shift 3 ;;
    rw) place "$2"; shift 2 ;;
    ro)
      place "$2"
      for flags in ro ro,nosuid ro,nosuid,nodev ro,nosuid,nodev,noexec; do
        mount -o "remount,bind,$flags" "$root$2" 2>/dev/null && break
      done
      shift 2 ;;
  esac
done
shift
mount -o remount,ro "$root"
# Not exec: process 1 of a namespace ignores the signals that should kill a child.
PATH="$PATH:/usr/sbin:/sbin" chroot "$root" /bin/sh -c 'cd "$1" && shift && exec IDENTITY "$@"' sh "$cwd" "$@"
exit $?
""".replace("SHARED", str(SHARED_MEMORY_BYTES))
_WITHOUT_RIGHTS = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", "--"]
# Opening the driver and making a context: what a sandbox for a GPU must still allow.
_GPU_PROBE = """
import ctypes, sys
try:
    library = ctypes.CDLL("libcuda.so.1")
except OSError:
    sys.exit(0)  # not CUDA: nothing to probe here
device, context = ctypes.c_int(), ctypes.c_void_p()
sys.exit(library.cuInit(0) or library.cuDeviceGet(ctypes.byref(device), 0) or library.cuCtxCreate_v2(ctypes.byref(context), 0, device))
"""


class UnconfinedError(Exception):
    """Nothing may run here: only limits could be put on it, and more is required; the message says what to do."""


def _works(command: Sequence[str]) -> bool:
    try:
        return (
            subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False
            ).returncode
            == 0
        )
    except (OSError, subprocess.TimeoutExpired):
        return False


@functools.cache
def best_method(*, gpu: bool = False) -> Method:
    """The strongest method that works here, found by trying; for a GPU, one in which a context can still be made.

    LIGER_BOT_CONFINEMENT forces one, for tests.
    """
    forced = os.environ.get("LIGER_BOT_CONFINEMENT")
    if forced in ("bubblewrap", "namespaces", "limits"):
        return forced  # type: ignore[return-value]
    python = Path(sys.executable)
    probe = [str(python), "-S", "-c", _GPU_PROBE if gpu else ""]
    for method in ("bubblewrap", "namespaces"):
        with tempfile.TemporaryDirectory() as folder:
            command = wrap(
                method,
                probe,
                readable=python_directories(python),
                writable=[],
                cwd=Path("/"),
                gpu=gpu,
                root=Path(folder),
            )
            if _works(command):
                return method
    return "limits"


def required_method(*, gpu: bool = False) -> Method:
    """`best_method`, as far as it is enough. Raises UnconfinedError where more than limits is required and not to be had."""
    method = best_method(gpu=gpu)
    if method == "limits" and os.environ.get(REQUIRED):
        where = "with a GPU in it, this machine" if gpu else "this machine"
        raise UnconfinedError(
            f"{where} can put nothing but limits around a job, which could then read what the service's user can read and reach the "
            "network: install bubblewrap or allow user namespaces, or set LIGER_BOT_ALLOW_UNCONFINED=true where no secret is at stake"
        )
    return method


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
    method: Method,
    command: Sequence[str],
    *,
    readable: Sequence[Path],
    writable: Sequence[Path],
    cwd: Path,
    gpu: bool,
    root: Path,
) -> list[str]:
    """The command line that runs `command` confined: no network, only `writable` writable. Environment is the caller's.

    `root` is an empty folder that a new root may be mounted on, in the child's own mount namespace.
    """
    if method == "bubblewrap":
        return _bubblewrap_command(command, readable, writable, cwd, gpu=gpu)
    if method == "namespaces":
        return _new_root_command(command, readable, writable, cwd, gpu=gpu, root=root)
    open_to_all = all(_open_to_all(path) for path in [*readable, Path(command[0])])
    if can_be_given() and (open_to_all or can_read_as_root()):
        give(writable)
        groups = groups_of(_gpu_devices()) if gpu else []
        return [*as_own_user(groups=groups, reads_anything=not open_to_all), *command]
    return list(command)


def _new_root_command(
    command: Sequence[str],
    readable: Sequence[Path],
    writable: Sequence[Path],
    cwd: Path,
    *,
    gpu: bool,
    root: Path,
) -> list[str]:
    placed: list[str] = []
    for name in SYSTEM_DIRECTORIES:
        path = Path(name)
        if path.is_symlink():
            placed += ["link", str(path.readlink()), name]
        elif path.exists():
            placed += ["ro", name]
    for name in SYSTEM_FILES:
        if Path(name).exists():
            placed += ["ro", name]
    devices = [Path("/dev") / name for name in PLAIN_DEVICES] + (_gpu_devices() if gpu else [])
    for path in devices:
        if path.exists():
            placed += ["rw", str(path)]
    for path in readable:
        if not _covered(path):
            placed += ["ro", str(path)]
    for path in writable:
        placed += ["rw", str(path)]
    identity, who = _WITHOUT_RIGHTS, ["--user", "--map-root-user"]
    if _privileged():
        give(writable)
        identity, who = as_own_user(groups=groups_of(_gpu_devices()) if gpu else []), []
    script = _NEW_ROOT.replace("IDENTITY", shlex.join(identity))
    return [
        "setpriv", "--pdeathsig", "KILL", "--", "unshare", *who, "--net", "--ipc", "--uts", "--pid", "--mount", "--fork", "--kill-child",
        "sh", "-c", script, "sh", str(root), str(cwd), *placed, "run", *command,
    ]  # fmt: skip


@functools.cache
def _privileged() -> bool:
    """Whether namespaces can be made as real root; then the child can be made a user who owns nothing."""
    return can_be_given() and _works(["unshare", "--mount", "--pid", "--net", "--fork", "true"])


def _open_to_all(path: Path) -> bool:
    """Whether a stranger may enter `path` and everything above it."""
    return all(part.stat().st_mode & 0o005 == 0o005 or not part.is_dir() for part in [path, *path.parents])


def _gpu_devices() -> list[Path]:
    return [device for device in sorted(Path("/dev").iterdir()) if device.name.startswith(GPU_DEVICES)]


def _bubblewrap_command(
    command: Sequence[str], readable: Sequence[Path], writable: Sequence[Path], cwd: Path, *, gpu: bool
) -> list[str]:
    if not _privileged():
        options = _bubblewrap_options(readable, writable, cwd, gpu=gpu)
        return ["bwrap", "--unshare-all", "--cap-drop", "ALL", *options, "--", *command]
    # Not in a namespace of users: root would be root there, and the kernel counts none of root's processes.
    give(writable)
    shut = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    rights = ["--cap-drop", "ALL"]  # those it takes to become the other user, which ends them
    for name in ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP", "CAP_DAC_READ_SEARCH"):
        rights += ["--cap-add", name]
    identity = as_own_user(groups=groups_of(_gpu_devices()) if gpu else [])
    return [
        "bwrap",
        *shut,
        *rights,
        *_bubblewrap_options(readable, writable, cwd, gpu=gpu),
        "--",
        *identity,
        *command,
    ]


def _bubblewrap_options(
    readable: Sequence[Path], writable: Sequence[Path], cwd: Path, *, gpu: bool
) -> list[str]:
    options = ["--die-with-parent", "--new-session", "--hostname", "sandbox"]
    for name in SYSTEM_DIRECTORIES:
        path = Path(name)
        if path.is_symlink():
            options += ["--symlink", str(path.readlink()), name]
        elif path.exists():
            options += ["--ro-bind", name, name]
    for name in SYSTEM_FILES:
        options += ["--ro-bind-try", name, name]
    options += ["--proc", "/proc", "--dev", "/dev", "--size", str(SHARED_MEMORY_BYTES), "--tmpfs", "/dev/shm"]  # noqa: S108
    options += ["--dir", "/tmp"]  # noqa: S108 - empty; TMPDIR is elsewhere
    for device in _gpu_devices() if gpu else []:
        options += ["--dev-bind", str(device), str(device)]
    for folder in sorted(
        {path.parent for path in [*readable, *writable] if not _covered(path)} - {Path("/")}
    ):
        options += [
            "--perms",
            "0755",
            "--dir",
            str(folder),
        ]  # bubblewrap would let only root into those it makes
    for path in readable:
        if not _covered(path):
            options += ["--ro-bind", str(path), str(path)]
    for path in writable:
        options += ["--bind", str(path), str(path)]
    return [*options, "--remount-ro", "/", "--chdir", str(cwd)]


def _covered(path: Path) -> bool:
    return any(path.is_relative_to(name) for name in SYSTEM_DIRECTORIES)
