"""The hub's SQLite file: write-ahead log, one writer at a time, readers never blocked."""

import secrets
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.orm import Session

from app.localhub.tables import Base, Setting

BUSY_TIMEOUT_MS = 30_000
# GitHub's ids are large and tell a user from a repository only by where they stand; small equal numbers in all
# tables would hide a mix-up of the two.
FIRST_IDS = {
    "accounts": 583_231,
    "apps": 1_042,
    "installations": 52_000_100,
    "repositories": 791_000_001,
    "issues": 2_500_000_001,
    "pull_requests": 2_100_000_001,
    "comments": 2_900_000_001,
    "reactions": 310_000_001,
    "labels": 7_100_000_001,
    "reviews": 2_300_000_001,
    "check_suites": 31_000_000_001,
    "check_runs": 33_000_000_001,
    "workflow_runs": 12_000_000_001,
    "workflow_jobs": 34_000_000_001,
    "artifacts": 1_900_000_001,
    "hook_deliveries": 140_000_000_001,
}


def _on_connect(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # the driver must not begin transactions on its own: we choose the kind
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute(
        "PRAGMA synchronous=NORMAL"
    )  # a killed process loses nothing; a power cut may lose the last commits
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
    cursor.close()


def _on_begin(connection: Connection) -> None:
    connection.exec_driver_sql(f"BEGIN {connection.get_execution_options().get('begin', 'DEFERRED')}")


class Database:
    """Sessions over the state file at `path`, which is created with its tables when missing."""

    def __init__(self, path: Path) -> None:
        self._engine: Engine = create_engine(f"sqlite:///{path}", pool_size=40)
        event.listen(self._engine, "connect", _on_connect)
        event.listen(self._engine, "begin", _on_begin)
        # A deferred transaction that turns into a write can fail at once with "database is locked";
        # an immediate one waits its turn.
        self._writer = self._engine.execution_options(begin="IMMEDIATE")
        Base.metadata.create_all(self._writer)
        with self._writer.begin() as connection:
            for table, first in FIRST_IDS.items():
                seeded = connection.execute(
                    text("SELECT 1 FROM sqlite_sequence WHERE name = :name"), {"name": table}
                ).first()
                if seeded is None:
                    connection.execute(
                        text("INSERT INTO sqlite_sequence VALUES (:name, :seq)"),
                        {"name": table, "seq": first - 1},
                    )

    def reading(self) -> Session:
        """A session for reads."""
        return Session(self._engine)

    def writing(self) -> Session:
        """A session that holds the write lock from its first statement."""
        return Session(self._writer)

    def setting(self, key: str) -> str:
        """A random secret kept under `key`, made on first use."""
        with self.writing() as session, session.begin():
            row = session.get(Setting, key)
            if row is None:
                row = Setting(key=key, value=secrets.token_hex(32))
                session.add(row)
            return row.value

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()
