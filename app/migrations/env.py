"""Alembic's entry point: migrates over the connection that app.store hands it."""

from __future__ import annotations

from alembic import context

from app.tables import Table

context.configure(
    connection=context.config.attributes["connection"], target_metadata=Table.metadata, render_as_batch=True
)
with context.begin_transaction():
    context.run_migrations()
