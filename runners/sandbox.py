"""Runs one untrusted child process and says how it ended: limits, a deadline, no network, an empty environment.

A child's failure is data (`Ended`), never an exception.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runners.confinement import Method, python_directories, required_method, wrap
from runners.process_tree import adopt_orphans, descendants, kill_tree, resident_bytes
from runners.protocol import Isolation

OWN_ROOT = Path(__file__).resolve().parent.parent
OWN_PACKAGES = ["app", "agents", "kernels", "runners"]
BOOT = Path(__file__).resolve().parent / "confined" / "boot.py"
SCRATCH = "liger-bot-runner-"
POLL_S = 0.2
MAX_RESULT_BYTES = 64 * 1024**2
MAX_LINE_CHARS = 4_000
THREADS_PER_CORE = 8


@dataclass(frozen=True)
class Limits:
    """What a child may use. `memory_bytes` bounds the resident memory of the whole tree and, without a GPU, address space."""

    deadline_s: float
    memory_bytes: int = 8 * 1024**3
    processes: int = 256
    file_bytes: int = 4 * 1024**3
    disk_bytes: int = 16 * 1024**3
    output_chars: int = 200_000


@dataclass(frozen=True)
class Child:
    """One confined run of `script`, a Python file, with `arguments`.

    import_path: PYTHONPATH, in order · readable, writable: folders it may read, or read and write · sees_own_packages:
    whether ours may be imported (only for children that run nothing of a target repository) · gpu: bind GPU devices.
    """

    script: Path
    arguments: list[str]
    cwd: Path
    limits: Limits
    python: Path = Path(sys.executable)
    import_path: list[Path] = field(default_factory=list)
    readable: list[Path] = field(default_factory=list)
    writable: list[Path] = field(default_factory=list)
    environment: Mapping[str, str] = field(default_factory=dict)
    sees_own_packages: bool = False
    undumpable: bool = False
    gpu: bool = False


@dataclass(frozen=True)
class Ended:
    """How a child ended. `returncode` is None when it was killed by us; `why` then says for what, in words."""

    returncode: int | None
    why: str
    timed_out: bool
    output: str
    elapsed_s: float
    isolation: Isolation

    @property
    def ok(self) -> bool:
        return self.returncode == 0


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A private temporary folder, removed afterwards whatever a child left in it."""
    folder = Path(tempfile.mkdtemp(prefix=f"{SCRATCH}{os.getpid()}-"))
    folder.chmod(0o711)  # the child may run as another user; it can't list its siblings
    try:
        yield folder
    finally:
        shutil.rmtree(folder, onerror=_make_removable)


def remove_abandoned_scratch() -> None:
    """Remove the temporary folders of runners that were killed before they could. Others may do the same at this moment."""
    for folder in Path(tempfile.gettempdir()).glob(f"{SCRATCH}*"):
        owner = folder.name.removeprefix(SCRATCH).split("-", 1)[0]
        with contextlib.suppress(FileNotFoundError):
            if (
                owner.isdigit()
                and not Path(f"/proc/{owner}").exists()
                and folder.stat().st_uid == os.getuid()
            ):
                shutil.rmtree(folder, onerror=_make_removable)


def _make_removable(function: Callable[..., Any], path: str, _error: Any) -> None:
    with contextlib.suppress(OSError):
        Path(path).parent.chmod(0o700)
        if not Path(path).is_symlink():
            Path(path).chmod(0o700)
        if function in (os.unlink, os.rmdir):
            function(path)
        else:  # what could not be looked into; os.open and os.scandir are told of here too
            shutil.rmtree(path, ignore_errors=True)


def run_confined(
    child: Child, on_line: Callable[[str], None] | None = None, method: Method | None = None
) -> Ended:
    """Run `child` to its end, its deadline or its limits; `on_line` gets each line of its output as it comes.

    Raises UnconfinedError where this machine can't confine it as far as is required.
    """
    method = method or required_method(gpu=child.gpu)
    started = time.monotonic()
    with scratch_folder() as own:
        report, home, root = own / "observed", own / "home", own / "root"
        for folder in (report, home, root):
            folder.mkdir()
        command = _command(child, report / "boot.json")
        readable = _outermost(
            [
                *python_directories(child.python),
                BOOT.parent,
                child.script.parent,
                *child.import_path,
                *child.readable,
            ]
        )
        argv = wrap(
            method,
            command,
            readable=readable,
            writable=[report, home, *child.writable],
            cwd=child.cwd,
            gpu=child.gpu,
            root=root,
        )
        adopt_orphans()
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=child.cwd,
            env=_environment(child, home),
            start_new_session=True,
        )
        reader = _Reader(process, child.limits.output_chars, on_line)
        seen: set[int] = set()
        try:
            try:
                why, timed_out = _watch(process, child, [home, *child.writable], started, seen)
            finally:
                kill_tree(process, seen)
        finally:
            reader.join()
        isolation = _observed(method, report / "boot.json")
    returncode = None if why else process.returncode
    return Ended(
        returncode=returncode,
        why=why or _death(process.returncode),
        timed_out=timed_out,
        output=reader.text(),
        elapsed_s=time.monotonic() - started,
        isolation=isolation,
    )


def read_result(path: Path) -> Any:
    """JSON that a child left in `path`, or None when it is missing, not a plain file, too large or not JSON."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_size > MAX_RESULT_BYTES:
            return None
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return json.loads(file.read(MAX_RESULT_BYTES))
    except (ValueError, RecursionError):
        return None
    finally:
        os.close(descriptor)


def _command(child: Child, observation: Path) -> list[str]:
    limits = {
        # CUDA reserves far more addresses than it uses; there the resident-memory watch holds alone.
        "address_space": 0 if child.gpu else child.limits.memory_bytes,
        "cpu_s": int(child.limits.deadline_s * (os.cpu_count() or 1)) + 5,
        "file_bytes": child.limits.file_bytes,
        # The kernel counts threads too, and libraries start some for every core; whole processes are counted by the watch.
        "threads": child.limits.processes + THREADS_PER_CORE * (os.cpu_count() or 1),
        "undumpable": child.undumpable,
        "own_root": str(OWN_ROOT),
        "hidden_packages": [] if child.sees_own_packages else OWN_PACKAGES,
    }
    # -S: no .pth file of the environment is processed (ours would make our packages importable); -P: no script folder
    # on the path.
    return [
        str(child.python),
        "-S",
        "-P",
        "-u",
        str(BOOT),
        str(observation),
        json.dumps(limits),
        str(child.script),
        *child.arguments,
    ]


def _environment(child: Child, home: Path) -> dict[str, str]:
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(home),
        "TMPDIR": str(home),
        "USER": "sandbox",
        "LANG": "C.UTF-8",
        "PYTHONPATH": os.pathsep.join(map(str, child.import_path)),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TRITON_CACHE_DIR": str(home / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(home / "inductor"),
        "HF_HUB_OFFLINE": "1",
        **child.environment,
    }


def _outermost(paths: list[Path]) -> list[Path]:
    """`paths` that exist, without those that lie inside another."""
    existing = sorted({path for path in paths if path.exists()})
    return [
        path
        for path in existing
        if not any(path != other and path.is_relative_to(other) for other in existing)
    ]


def _watch(
    process: subprocess.Popen[bytes], child: Child, folders: list[Path], started: float, seen: set[int]
) -> tuple[str, bool]:
    """Wait for the child; return (why we stopped it, whether that was the deadline), or ("", False) when it ended itself.

    `seen` collects every process of its tree, so that one that leaves the tree can still be killed.
    """
    limits = child.limits
    looked_at_disk = started
    while True:
        try:
            process.wait(timeout=POLL_S)
        except subprocess.TimeoutExpired:
            now = time.monotonic()
        else:
            return "", False
        if now - started > limits.deadline_s:
            return f"stopped at its deadline of {limits.deadline_s:g} s", True
        tree = descendants(process.pid)
        seen.update(tree)
        if len(tree) > limits.processes:
            return f"stopped: more than {limits.processes} processes", False
        resident = sum(resident_bytes(pid) for pid in tree)
        if resident > limits.memory_bytes:
            return (
                f"stopped: it used {resident / 1e9:.1f} GB of memory, {limits.memory_bytes / 1e9:.1f} GB are allowed",
                False,
            )
        if now - looked_at_disk > 1:
            looked_at_disk = now
            if sum(_disk_bytes(folder) for folder in folders) > limits.disk_bytes:
                return f"stopped: it wrote more than {limits.disk_bytes / 1e9:.1f} GB to disk", False


def _disk_bytes(folder: Path) -> int:
    total = 0
    for directory, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(f"{directory}/{name}").st_blocks * 512
    return total


class _Reader:
    """Drains a child's output in a thread: hands lines on, keeps the last part, never grows without bound."""

    def __init__(
        self, process: subprocess.Popen[bytes], keep_chars: int, on_line: Callable[[str], None] | None
    ) -> None:
        self._keep, self._on_line = keep_chars, on_line
        self._stream = process.stdout
        self._kept = ""
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()

    def _drain(self) -> None:
        assert self._stream is not None  # noqa: S101 - stdout=PIPE
        while line := self._stream.readline(MAX_LINE_CHARS):
            text = line.decode(errors="replace")
            self._kept = (self._kept + text)[-self._keep :]
            if self._on_line is not None:
                self._on_line(text.rstrip("\n"))

    def join(self) -> None:
        self._thread.join(timeout=5)

    def text(self) -> str:
        return self._kept


def _observed(method: Method, path: Path) -> Isolation:
    seen = read_result(path)
    if not isinstance(seen, dict):
        return Isolation(
            method=method, network=True, detail="the child died before it could observe its confinement"
        )
    others = [name for name in seen["interfaces"] if name != "lo"]
    detail = f"uid {seen['uid']}, {seen['visible_processes']} visible processes, capabilities {seen['capabilities']}"
    return Isolation(method=method, network=bool(others), detail=detail)


def _death(returncode: int | None) -> str:
    """A child's own end in words; "" when it was ordinary."""
    if returncode is None or returncode == 0:
        return ""
    number = -returncode if returncode < 0 else returncode - 128
    if number in set(signal.Signals):
        name = signal.Signals(number).name
        hint = {
            "SIGXCPU": ": CPU time limit",
            "SIGXFSZ": ": file size limit",
            "SIGKILL": ": perhaps out of memory",
        }.get(name, "")
        return f"killed by {name}{hint}"
    return f"exit code {returncode}"


@functools.cache
def site_packages(python: Path) -> tuple[Path, ...]:
    """The package folders of an interpreter, without what its .pth files add."""
    if python == Path(sys.executable):
        entries = sys.path
    else:
        command = [str(python), "-c", "import json, sys; print(json.dumps(sys.path))"]
        entries = json.loads(
            subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
        )
    return tuple(
        dict.fromkeys(
            Path(entry) for entry in entries if entry.rstrip("/").endswith(("site-packages", "dist-packages"))
        )
    )
