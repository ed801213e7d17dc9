"""What the compiler says about a profile's schedules, added to its comment once it is there."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("profiles", schema=None) as batch_op:
        batch_op.add_column(sa.Column("schedules", sa.JSON(), nullable=True))
        batch_op.add_column(sa.Column("earlier_body_sha256", sa.String(length=64), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("profiles", schema=None) as batch_op:
        batch_op.drop_column("earlier_body_sha256")
        batch_op.drop_column("schedules")
