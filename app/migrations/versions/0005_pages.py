"""What the pages read: lines of running jobs, and the indexes of the list of requests and of the counts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "log_lines",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("request_id", sa.String(length=16), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["request_id"], ["requests.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_log_lines_request_id", "log_lines", ["request_id"])
    op.create_index("requests_by_age", "requests", ["created_at"])
    op.create_index("requests_of_repository", "requests", ["repository", "created_at", "installation_id"])
    op.create_index("requests_of_state", "requests", ["state", "created_at"])
    op.create_index("jobs_by_outcome", "jobs", ["gate", "state", "conclusion"])


def downgrade() -> None:
    op.drop_index("jobs_by_outcome", "jobs")
    op.drop_index("requests_of_state", "requests")
    op.drop_index("requests_of_repository", "requests")
    op.drop_index("requests_by_age", "requests")
    op.drop_index("ix_log_lines_request_id", "log_lines")
    op.drop_table("log_lines")
