"""Opens the database of our tables and brings its schema up to date."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Engine, create_engine, event, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.pool import ConnectionPoolEntry

MIGRATIONS = Path(__file__).parent / "migrations"


def open_database(url: str) -> Engine:
    """An engine for that SQLAlchemy URL; SQLite runs in WAL mode, with every transaction taking the write lock first."""
    if make_url(url).get_backend_name() != "sqlite":
        return create_engine(url, pool_pre_ping=True)
    database = make_url(url).database
    if database:
        Path(database).parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(url, connect_args={"timeout": 30})
    event.listen(engine, "connect", _configure_sqlite)
    # A transaction that reads first and writes later could fail with "database is locked"; this one waits its turn.
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    return engine


def _configure_sqlite(connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
    connection.isolation_level = None  # type: ignore[attr-defined] - sqlite3's own implicit BEGIN is off; ours stands
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def migrate(engine: Engine) -> None:
    """Bring the schema to this version's. Safe to run at every start."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    with engine.begin() as connection:
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
