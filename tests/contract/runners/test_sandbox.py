"""What an untrusted child can't do, tried for real, under every method of confinement that works on this machine."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import uuid
from pathlib import Path

import pytest

from runners.child_user import can_be_given, own_user
from runners.confinement import best_method, wrap
from runners.sandbox import (
    OWN_ROOT,
    SCRATCH,
    THREADS_PER_CORE,
    Child,
    Ended,
    Limits,
    read_result,
    remove_abandoned_scratch,
    run_confined,
    scratch_folder,
)

METHODS = ["bubblewrap", "namespaces", "limits"]
STRONGEST = METHODS.index(best_method())


@pytest.fixture(params=METHODS)
def method(request: pytest.FixtureRequest) -> str:
    if METHODS.index(request.param) < STRONGEST:
        pytest.skip(f"{request.param} does not work on this machine")
    return request.param


@pytest.fixture
def isolating(method: str) -> str:
    if method == "limits":
        pytest.skip("limits alone can't do this, and the report says so")
    return method


def run(tmp_path: Path, method: str, code: str, *arguments: str, **limits: float) -> Ended:
    script, work = tmp_path / "given" / "script.py", tmp_path / "work"
    script.parent.mkdir(exist_ok=True)
    work.mkdir(exist_ok=True)
    script.write_text(textwrap.dedent(code))
    child = Child(
        script=script, arguments=[str(work), *arguments], cwd=work, writable=[work],
        limits=Limits(**{"deadline_s": 20, "memory_bytes": 512 * 1024**2, "processes": 40, **limits}),
    )  # fmt: skip
    return run_confined(child, method=method)


def alive(marker: str) -> list[int]:
    found = []
    for name in (folder.name for folder in Path("/proc").iterdir()):
        if name.isdigit():
            try:
                if marker.encode() in Path("/proc", name, "cmdline").read_bytes():
                    found.append(int(name))
            except OSError:
                continue
    return found


def test_an_ordinary_child_runs_and_its_confinement_is_observed(tmp_path: Path, method: str) -> None:
    ended = run(
        tmp_path,
        method,
        "import sys; from pathlib import Path; Path(sys.argv[1], 'made').write_text('yes'); print('hello')",
    )
    assert ended.ok
    assert ended.output == "hello\n"
    assert (tmp_path / "work" / "made").read_text() == "yes"
    assert ended.isolation.method == method
    assert ended.isolation.network is (method == "limits")


def test_no_network(tmp_path: Path, isolating: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = """
            import socket, sys
            try:
                socket.create_connection(("127.0.0.1", int(sys.argv[2])), timeout=2)
                print("REACHED")
            except OSError as error:
                print("refused", error)
        """
        ended = run(tmp_path, isolating, code, str(server.getsockname()[1]))
    assert ended.output.startswith("refused")
    assert not ended.isolation.network


def test_the_environment_of_the_runner_is_not_visible(
    tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIGER_BOT_SECRET", "s3cret-value")
    code = """
        import glob, os
        print(sorted(os.environ.items()))
        for path in glob.glob("/proc/[0-9]*/environ"):
            try:
                print(open(path, "rb").read())
            except OSError:
                pass
    """
    ended = run(tmp_path, method, code)
    assert ended.ok
    if method != "limits":
        assert "s3cret-value" not in ended.output
    else:
        assert "s3cret-value" not in ended.output.splitlines()[0]


def test_an_endless_loop_ends_at_the_deadline(tmp_path: Path, method: str) -> None:
    started = time.monotonic()
    ended = run(tmp_path, method, "while True: pass", deadline_s=1)
    assert ended.timed_out
    assert "deadline of 1 s" in ended.why
    assert time.monotonic() - started < 30


def test_grandchildren_that_leave_the_session_die_too(tmp_path: Path, method: str) -> None:
    marker = f"marker-{uuid.uuid4().hex}"
    code = """
        import os, subprocess, sys, time
        for _ in range(3):
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    os.execv(sys.executable, [sys.executable, "-S", "-c", "import time; time.sleep(300)", sys.argv[2]])
                time.sleep(300)
        time.sleep(1)
    """
    ended = run(tmp_path, method, code, marker)
    assert ended.ok
    time.sleep(0.1)
    assert alive(marker) == []


def test_a_fork_bomb_is_stopped(tmp_path: Path, method: str) -> None:
    marker = f"marker-{uuid.uuid4().hex}"
    code = """
        import os, time
        while True:
            try:
                os.fork()
            except OSError:
                time.sleep(0.01)
    """
    most, over = 0, threading.Event()

    def count() -> None:
        nonlocal most
        while not over.wait(0.02):
            most = max(most, len(alive(marker)))

    counting = threading.Thread(target=count)
    counting.start()
    started = time.monotonic()
    ended = run(tmp_path, method, code, marker, deadline_s=10, processes=30)
    assert time.monotonic() - started < 60
    assert alive(marker) == []
    over.set()
    counting.join()
    assert "processes" in ended.why or ended.timed_out
    # The kernel stops it, not the watch alone: a machine full of processes harms whatever runs beside.
    assert most <= 30 + THREADS_PER_CORE * (os.cpu_count() or 1) + 5, most


@pytest.mark.skipif(not can_be_given(), reason="only root, with its rights, can give a child another user")
def test_a_child_is_never_root(tmp_path: Path, method: str) -> None:
    code = """
        import os, sys
        from pathlib import Path
        print([name for name in ("/etc/shadow", "/proc/1/environ") if os.access(name, os.W_OK)], os.getresuid(), os.getgroups())
        for folder in (Path(sys.argv[1]), Path(sys.argv[1], "left", "there")):
            Path(folder, "made").write_text("by the child")
        try:
            os.setuid(0)
            print("ROOT")
        except OSError:
            print("stays")
    """
    left = tmp_path / "work" / "left" / "there"
    left.mkdir(parents=True)
    ended = run(tmp_path, method, code)
    user = own_user()
    assert ended.output == f"[] {(user, user, user)} []\nstays\n"
    assert (left / "made").read_text() == "by the child"


@pytest.mark.parametrize(
    "code",
    ["x = bytearray(100 * 1024**3)", "x = []\nwhile True: x.append(bytearray(10**7))"],
    ids=["at once", "little by little"],
)
def test_memory_is_bounded(tmp_path: Path, method: str, code: str) -> None:
    ended = run(tmp_path, method, code)
    assert not ended.ok
    assert "MemoryError" in ended.output or "memory" in ended.why


def test_exiting_without_a_result_is_seen(tmp_path: Path, method: str) -> None:
    ended = run(tmp_path, method, "import os; os._exit(0)")
    assert ended.ok
    assert read_result(tmp_path / "work" / "result.json") is None


def test_a_child_killed_by_a_signal_says_which(tmp_path: Path, method: str) -> None:
    ended = run(tmp_path, method, "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    assert not ended.ok
    assert "SIGSEGV" in ended.why


def test_the_runner_can_not_be_killed(tmp_path: Path, isolating: str) -> None:
    code = """
        import os, signal, sys
        for pid in {int(sys.argv[2]), os.getppid(), *range(1, 200)} - {os.getpid()}:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        print("tried")
    """
    ended = run(tmp_path, isolating, code, str(os.getpid()))
    assert "tried" in ended.output


def test_nothing_outside_its_folders_can_be_written(tmp_path: Path, isolating: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    code = """
        import sys
        for path in (sys.argv[2] + "/x", sys.argv[3] + "/x.py", "/etc/x", "/usr/x"):
            try:
                open(path, "w").write("x")
                print("WROTE", path)
            except OSError as error:
                print("refused", error.errno)
    """
    ended = run(tmp_path, isolating, code, str(outside), str(OWN_ROOT))
    assert "WROTE" not in ended.output
    assert list(outside.iterdir()) == []


def test_homes_are_covered(tmp_path: Path, isolating: str, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    (home / "secrets").mkdir(parents=True)
    (home / "secrets" / "key").write_text("s3cret-value")
    monkeypatch.setenv("HOME", str(home))
    ended = run(
        tmp_path,
        isolating,
        "import sys\ntry:\n    print(open(sys.argv[2]).read())\nexcept OSError as e:\n    print('refused', e)",
        str(home / "secrets" / "key"),
    )
    assert "s3cret-value" not in ended.output


def test_output_is_capped_and_standard_input_is_closed(tmp_path: Path, method: str) -> None:
    ended = run(
        tmp_path,
        method,
        "import sys\nprint(repr(sys.stdin.read()))\nfor _ in range(3000): print('x' * 1000)\nprint('end')",
        output_chars=10_000,
    )
    assert ended.ok
    assert len(ended.output) == 10_000
    assert ended.output.endswith("end\n")


def test_a_file_that_is_too_large_is_stopped(tmp_path: Path, method: str) -> None:
    code = """
        import sys
        with open(sys.argv[1] + "/big", "wb") as file:
            while True:
                file.write(bytes(10**6))
    """
    ended = run(tmp_path, method, code, file_bytes=5 * 10**6)
    assert not ended.ok
    assert (tmp_path / "work" / "big").stat().st_size <= 5 * 10**6


def test_limits_can_not_be_raised_again(tmp_path: Path, isolating: str) -> None:
    code = """
        import resource
        try:
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            print("RAISED")
        except (ValueError, OSError) as error:
            print("refused", error)
    """
    assert run(tmp_path, isolating, code).output.startswith("refused")


def test_our_packages_can_not_be_imported_even_from_the_path(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)  # pytest makes it 0700, and without bubblewrap the child is a stranger
    script = tmp_path / "script.py"
    script.write_text(
        "import importlib.util, sys\nprint([importlib.util.find_spec(n) for n in ('app', 'agents', 'kernels', 'runners')], sys.flags.no_site)"
    )
    work = tmp_path / "work"
    work.mkdir()
    child = Child(
        script=script, arguments=[], cwd=work, limits=Limits(20), import_path=[OWN_ROOT], writable=[work]
    )
    assert run_confined(child).output == "[None, None, None, None] 1\n"


def test_a_package_of_the_target_with_one_of_our_names_is_found(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)  # pytest makes it 0700, and without bubblewrap the child is a stranger
    package = tmp_path / "src" / "kernels"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("OWNER = 'the target'")
    script, work = tmp_path / "script.py", tmp_path / "work"
    script.write_text("import kernels; print(kernels.OWNER)")
    work.mkdir()
    child = Child(
        script=script,
        arguments=[],
        cwd=work,
        limits=Limits(20),
        import_path=[OWN_ROOT, tmp_path / "src"],
        writable=[work],
    )
    assert run_confined(child).output == "the target\n"


@pytest.mark.parametrize("kind", ["missing", "link", "fifo", "folder", "not json", "too deep"])
def test_a_result_that_is_not_a_plain_json_file_is_none(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "result.json"
    if kind == "link":
        path.symlink_to("/etc/hostname")
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "not json":
        path.write_text("{")
    elif kind == "too deep":
        path.write_text("[" * 100_000)
    assert read_result(path) is None


def test_scratch_is_removed_whatever_a_child_left_there() -> None:
    with scratch_folder() as folder:
        (folder / "a" / "b").mkdir(parents=True)
        (folder / "a" / "b" / "c").write_text("x")
        (folder / "a" / "link").symlink_to("/etc")
        (folder / "a" / "b").chmod(0)
        (folder / "a").chmod(0o500)
    assert not folder.exists()
    assert Path("/etc").exists()


def test_scratch_of_a_killed_runner_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    gone = subprocess.run(
        [sys.executable, "-S", "-c", "import os; print(os.getpid())"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    abandoned, live, foreign = (
        tmp_path / name
        for name in (f"liger-bot-runner-{gone}-x", f"liger-bot-runner-{os.getpid()}-x", "liger-bot-runner-y")
    )
    for folder in (abandoned, live, foreign):
        (folder / "deep").mkdir(parents=True)
    remove_abandoned_scratch()
    assert sorted(tmp_path.iterdir()) == sorted([live, foreign])


def test_as_another_user_the_commands_still_wrap(tmp_path: Path) -> None:
    """The plain method works for a user without any privilege: the command itself, nothing around it."""
    command = [sys.executable, "-c", "pass"]
    assert (
        wrap("limits", command, readable=[], writable=[], cwd=tmp_path, gpu=False, root=tmp_path)[-3:]
        == command
    )


CLEAN = "from runners.sandbox import remove_abandoned_scratch as clean\nfor _ in range(40):\n    clean()\n"


def test_runners_that_start_together_clean_up_after_killed_ones_without_harm(tmp_path: Path) -> None:
    """Each finds the same folders, and some are gone, or half gone, before it gets to them."""
    nobody = 2**22 + 1  # no process has this id
    for number in range(300):
        deep = tmp_path / f"{SCRATCH}{nobody}-{number}" / "home" / "a" / "b"
        deep.mkdir(parents=True)
        (deep / "file").write_text("x")
    command = [sys.executable, "-c", CLEAN]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    cleaners = [
        subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) for _ in range(6)
    ]
    told = [cleaner.communicate(timeout=60)[1] for cleaner in cleaners]
    assert [cleaner.returncode for cleaner in cleaners] == [0] * 6, told
    assert list(tmp_path.iterdir()) == []
