"""Jobs sent to GitHub Actions, and candidates that a person pushed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("candidates", schema=None) as batch_op:
        batch_op.add_column(sa.Column("pushed_by", sa.String(length=100), nullable=False, server_default=""))
    op.create_table(
        "dispatches",
        sa.Column("id", sa.String(length=120), nullable=False),
        sa.Column("job_id", sa.String(length=80), nullable=False),
        sa.Column("request_id", sa.String(length=16), nullable=False),
        sa.Column("repository", sa.String(length=200), nullable=False),
        sa.Column("architecture", sa.String(length=40), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("nonce", sa.String(length=64), nullable=False),
        sa.Column("head_sha", sa.String(length=64), nullable=False),
        sa.Column("packed", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("run_id", sa.BigInteger(), nullable=True),
        sa.Column("run_url", sa.Text(), nullable=False),
        sa.Column("fault", sa.String(length=30), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("report", sa.JSON(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("sent_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("settled_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"]),
        sa.ForeignKeyConstraint(["request_id"], ["requests.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("nonce"),
    )
    with op.batch_alter_table("dispatches", schema=None) as batch_op:
        for column in ("job_id", "request_id", "repository", "state", "run_id"):
            batch_op.create_index(batch_op.f(f"ix_dispatches_{column}"), [column], unique=False)


def downgrade() -> None:
    op.drop_table("dispatches")
    with op.batch_alter_table("candidates", schema=None) as batch_op:
        batch_op.drop_column("pushed_by")
