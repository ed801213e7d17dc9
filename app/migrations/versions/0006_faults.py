"""What keeps things single when processes die: what a delivery is about, and writes to GitHub that are under way."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("deliveries", sa.Column("subject", sa.String(length=300), nullable=True))
    _name_subjects()
    op.create_index("ix_deliveries_subject", "deliveries", ["subject"], unique=True)
    op.create_table(
        "writes",
        sa.Column("key", sa.String(length=300), nullable=False),
        sa.Column("executor_id", sa.String(length=100), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("key"),
    )


def _name_subjects() -> None:
    """Comments that were followed before must not be taken for missed ones."""
    connection, seen = op.get_bind(), set()
    query = "select guid, body from deliveries where event = 'issue_comment' order by received_at"
    for guid, body in connection.execute(sa.text(query)).all():
        try:
            payload = json.loads(body)
            if payload["action"] != "created":
                continue
            subject = f"{payload['repository']['full_name']} comment {int(payload['comment']['id'])}"
        except (ValueError, KeyError, TypeError):
            continue
        if subject not in seen:
            seen.add(subject)
            update = sa.text("update deliveries set subject = :subject where guid = :guid")
            connection.execute(update, {"subject": subject, "guid": guid})


def downgrade() -> None:
    op.drop_table("writes")
    op.drop_index("ix_deliveries_subject", "deliveries")
    op.drop_column("deliveries", "subject")
