"""What each request spent on the language model."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "model_questions",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("request_id", sa.String(length=16), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("purpose", sa.String(length=60), nullable=False),
        sa.Column("model", sa.String(length=200), nullable=False),
        sa.Column("input_tokens", sa.Integer(), nullable=False),
        sa.Column("output_tokens", sa.Integer(), nullable=False),
        sa.Column("cost_usd", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(["request_id"], ["requests.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("model_questions", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_model_questions_request_id"), ["request_id"], unique=False)


def downgrade() -> None:
    with op.batch_alter_table("model_questions", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_model_questions_request_id"))
    op.drop_table("model_questions")
