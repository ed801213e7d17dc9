"""An upgrade keeps what is there: from the first revision, with data, to the newest."""

from __future__ import annotations

import json
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from app.database import MIGRATIONS, migrate, open_database
from app.store import Store
from app.tables import Table

AT = "2026-01-02 03:04:05.000000"


def config_of(connection: sa.Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    return config


def fill(connection: sa.Connection) -> None:
    """One row in each table of the first revision, whatever its columns are."""
    tables = sa.MetaData()
    tables.reflect(connection)
    for table in tables.sorted_tables:
        if table.name == "alembic_version":
            continue
        row = {}
        for column in table.columns:
            kind = str(column.type).upper()
            if column.autoincrement is True and column.primary_key and "INT" in kind:
                continue
            if column.name == "request_id" or (table.name == "requests" and column.name == "id"):
                row[column.name] = "abc2345"
            elif "INT" in kind:
                row[column.name] = 7
            elif "BOOL" in kind:
                row[column.name] = False
            elif "JSON" in kind:
                row[column.name] = json.dumps({"kept": [1, "✓"]})
            elif "DATETIME" in kind or "TIMESTAMP" in kind:
                row[column.name] = AT
            else:
                row[column.name] = (
                    "received" if column.name == "state" else f"{column.name} of old"[: _length(column)]
                )
        # without types, so that the database gets the values as they are
        raw = sa.table(table.name, *(sa.column(name) for name in row))
        connection.execute(raw.insert(), row)


def _length(column: sa.Column) -> int:
    return getattr(column.type, "length", None) or 100


def rows(connection: sa.Connection, names: list[str]) -> dict[str, list[dict[str, object]]]:
    found = {}
    for name in names:
        query = sa.select(sa.text("*")).select_from(sa.table(name))
        found[name] = [dict(row) for row in connection.execute(query).mappings()]
    return found


def test_an_upgrade_from_the_first_revision_keeps_every_row(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/old.sqlite"
    engine = open_database(url)
    with engine.begin() as connection:
        command.upgrade(config_of(connection), "0001")
    with engine.begin() as connection:
        fill(connection)
        names = [name for name in sa.inspect(connection).get_table_names() if name != "alembic_version"]
        before = rows(connection, names)
    assert len(names) >= 9
    assert all(len(found) == 1 for found in before.values())

    migrate(engine)
    migrate(engine)  # at each start

    with engine.begin() as connection:
        after = rows(connection, names)
    for name, [row] in before.items():
        [kept] = after[name]
        assert {key: kept[key] for key in row} == row, name
    engine.dispose()

    store = Store.open(url)
    assert store.request("abc2345").requester == "requester of old"
    assert store.model_spent_usd("abc2345") == 0.0
    store.close()


def test_the_migrations_are_one_line_and_end_at_the_tables(tmp_path: Path):
    engine = open_database(f"sqlite:///{tmp_path}/new.sqlite")
    migrate(engine)
    with engine.begin() as connection:
        assert len(ScriptDirectory.from_config(config_of(connection)).get_heads()) == 1
        assert compare_metadata(MigrationContext.configure(connection), Table.metadata) == []
    engine.dispose()


def test_a_downgrade_undoes_an_upgrade(tmp_path: Path):
    engine = open_database(f"sqlite:///{tmp_path}/back.sqlite")
    migrate(engine)
    with engine.begin() as connection:
        command.downgrade(config_of(connection), "0001")
    with engine.begin() as connection:
        fill(connection)
    migrate(engine)
    engine.dispose()
