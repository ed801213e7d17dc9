"""The user a child runs as where the runner is root: one who owns nothing, and whose processes the kernel counts.

The kernel counts none of root's processes, also not of a root without capabilities: a fork bomb would fill the machine.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

FIRST, MANY = 61184, 4096  # what systemd too gives to services that come and go
CHOWN, READ_ANYTHING, KILL, SETGID, SETUID, SETPCAP = 0, 2, 5, 6, 7, 8  # linux/capability.h
NEEDED = (CHOWN, KILL, SETGID, SETUID, SETPCAP)


def own_user() -> int:
    """This runner's: what its children leave for each other stays theirs, and others' children are not counted with them."""
    return FIRST + os.getpid() % MANY


@functools.cache
def can_be_given() -> bool:
    """Whether this process may start children as that user, own nothing of theirs, and still stop them."""
    if os.geteuid() != 0 or not all(_has(capability) for capability in NEEDED):
        return False
    return _starts([*as_own_user(), "true"])


@functools.cache
def can_read_as_root() -> bool:
    """Whether that user may still be let into folders that only root may enter."""
    return can_be_given() and _has(READ_ANYTHING) and _starts([*as_own_user(reads_anything=True), "true"])


def as_own_user(*, groups: Sequence[int] = (), reads_anything: bool = False) -> list[str]:
    """What goes before a command that this user shall run, with `groups` beside its own and without any way back to root.

    reads_anything: it keeps the right to read what root may read, and no other.
    """
    user = str(own_user())
    kept = "-all,+dac_read_search" if reads_anything else "-all"
    return [
        "setpriv", f"--reuid={user}", f"--regid={user}",
        f"--groups={','.join(map(str, groups))}" if groups else "--clear-groups",
        f"--bounding-set={kept}", f"--inh-caps={kept}", f"--ambient-caps={kept}", "--no-new-privs", "--",
    ]  # fmt: skip


def give(folders: Sequence[Path]) -> None:
    """Make `folders` and all in them this user's."""
    user = own_user()
    for folder in folders:
        os.chown(folder, user, user)
        for directory, names, files in os.walk(folder):
            for name in [*names, *files]:
                os.chown(Path(directory, name), user, user, follow_symlinks=False)


def groups_of(devices: Sequence[Path]) -> list[int]:
    """Groups that may use `devices`, root's aside."""
    return sorted({device.stat().st_gid for device in devices} - {0})


def _has(capability: int) -> bool:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> capability & 1)
    return False


def _starts(command: Sequence[str]) -> bool:
    if shutil.which(command[0]) is None:
        return False
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 0
