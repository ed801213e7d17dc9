"""Opens the database of our tables and brings its schema up to date."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.pool import ConnectionPoolEntry

MIGRATIONS = Path(__file__).parent / "migrations"
# Any number that no other program on this Postgres takes for its own lock.
_MIGRATION_LOCK = 0x11_6E_2B_07
POOL_SIZE, POOL_OVERFLOW = 10, 5


def open_database(url: str) -> Engine:
    """An engine for that SQLAlchemy URL; SQLite runs in WAL mode, with every transaction taking the write lock first.

    On Postgres up to POOL_SIZE + POOL_OVERFLOW connections are open.
    """
    if make_url(url).get_backend_name() != "sqlite":
        engine = create_engine(url, pool_pre_ping=True, pool_size=POOL_SIZE, max_overflow=POOL_OVERFLOW)
        event.listen(engine, "connect", _configure_postgres)
        return engine
    database = make_url(url).database
    if database:
        Path(database).parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(url, connect_args={"timeout": 30})
    event.listen(engine, "connect", _configure_sqlite)
    # A transaction that reads first and writes later could fail with "database is locked"; this one waits its turn.
    event.listen(engine, "begin", _begin)
    return engine


def for_reading(engine: Engine) -> Engine:
    """The same connections for transactions that only read: on SQLite they neither wait for a writer nor hold one up."""
    return engine.execution_options(sqlite_begin="DEFERRED")


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql(f"BEGIN {connection.get_execution_options().get('sqlite_begin', 'IMMEDIATE')}")


def _configure_sqlite(connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
    connection.isolation_level = None  # type: ignore[attr-defined] - sqlite3's own implicit BEGIN is off; ours stands
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _configure_postgres(connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
    from psycopg.types.string import StrDumper

    class WithoutNul(StrDumper):
        """Postgres' text holds every character but one, and what people and programs write may hold that one."""

        def dump(self, obj: str) -> Any:
            return super().dump(obj.replace("\0", "\ufffd"))

    connection.adapters.register_dumper(str, WithoutNul)  # type: ignore[attr-defined] - psycopg's


def migrate(engine: Engine) -> None:
    """Bring the schema to this version's. Safe to run at every start, by several processes at once."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    with engine.begin() as connection:
        if (
            connection.dialect.name == "postgresql"
        ):  # on SQLite the transaction itself has the only write lock
            connection.execute(text("select pg_advisory_xact_lock(:lock)"), {"lock": _MIGRATION_LOCK})
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def use_write_ahead_log(url: str) -> None:
    """Put a SQLite file into WAL mode; the mode stays with the file. Nothing to do on other databases."""
    if make_url(url).get_backend_name() != "sqlite":
        return
    engine = open_database(url)
    with engine.connect():
        pass
    engine.dispose()
