"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "deliveries",
        sa.Column("guid", sa.String(length=100), nullable=False),
        sa.Column("event", sa.String(length=60), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("received_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("next_try_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("guid"),
    )
    with op.batch_alter_table("deliveries", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_deliveries_state"), ["state"], unique=False)

    op.create_table(
        "executors",
        sa.Column("id", sa.String(length=100), nullable=False),
        sa.Column("process", sa.String(length=100), nullable=False),
        sa.Column("heartbeat_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "replies",
        sa.Column("repository", sa.String(length=200), nullable=False),
        sa.Column("comment_id", sa.BigInteger(), nullable=False),
        sa.Column("issue_number", sa.Integer(), nullable=False),
        sa.Column("login", sa.String(length=100), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("repository", "comment_id"),
    )
    with op.batch_alter_table("replies", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_replies_login"), ["login"], unique=False)

    op.create_table(
        "requests",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("repository", sa.String(length=200), nullable=False),
        sa.Column("installation_id", sa.BigInteger(), nullable=False),
        sa.Column("issue_number", sa.Integer(), nullable=False),
        sa.Column("comment_id", sa.BigInteger(), nullable=False),
        sa.Column("requester", sa.String(length=100), nullable=False),
        sa.Column("requester_id", sa.BigInteger(), nullable=False),
        sa.Column("verb", sa.String(length=20), nullable=False),
        sa.Column("op_text", sa.Text(), nullable=False),
        sa.Column("block", sa.Text(), nullable=True),
        sa.Column("live_key", sa.String(length=400), nullable=True),
        sa.Column("op_key", sa.String(length=400), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("changes", sa.JSON(), nullable=True),
        sa.Column("changed_by", sa.String(length=100), nullable=True),
        sa.Column("followed_comment_id", sa.BigInteger(), nullable=True),
        sa.Column("base_sha", sa.String(length=64), nullable=False),
        sa.Column("default_branch", sa.String(length=255), nullable=False),
        sa.Column("branch", sa.String(length=200), nullable=False),
        sa.Column("head_sha", sa.String(length=64), nullable=False),
        sa.Column("pull_number", sa.Integer(), nullable=True),
        sa.Column("pull_url", sa.Text(), nullable=False),
        sa.Column("status_comment_id", sa.BigInteger(), nullable=True),
        sa.Column("failed_stage", sa.String(length=20), nullable=True),
        sa.Column("failure", sa.JSON(), nullable=True),
        sa.Column("ended_by", sa.String(length=100), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("live_key"),
        sa.UniqueConstraint("repository", "comment_id", name="one_request_a_comment"),
    )
    with op.batch_alter_table("requests", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_requests_pull_number"), ["pull_number"], unique=False)
        batch_op.create_index(batch_op.f("ix_requests_state"), ["state"], unique=False)
        batch_op.create_index(
            batch_op.f("ix_requests_status_comment_id"), ["status_comment_id"], unique=False
        )
        batch_op.create_index("requests_by_issue", ["repository", "issue_number"], unique=False)

    op.create_table(
        "approvals",
        sa.Column("request_id", sa.String(length=16), nullable=False),
        sa.Column("profile_sha256", sa.String(length=64), nullable=False),
        sa.Column("login", sa.String(length=100), nullable=False),
        sa.Column("by", sa.String(length=20), nullable=False),
        sa.Column("source_id", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["request_id"],
            ["requests.id"],
        ),
        sa.PrimaryKeyConstraint("request_id", "profile_sha256"),
    )
    op.create_table(
        "candidates",
        sa.Column("request_id", sa.String(length=16), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.Column("head_sha", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["request_id"],
            ["requests.id"],
        ),
        sa.PrimaryKeyConstraint("request_id", "attempt", "round"),
    )
    op.create_table(
        "events",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("request_id", sa.String(length=16), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("kind", sa.String(length=30), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=True),
        sa.Column("text", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["request_id"],
            ["requests.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("events", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_events_request_id"), ["request_id"], unique=False)

    op.create_table(
        "jobs",
        sa.Column("id", sa.String(length=80), nullable=False),
        sa.Column("request_id", sa.String(length=16), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("gate", sa.String(length=20), nullable=False),
        sa.Column("nonce", sa.String(length=64), nullable=False),
        sa.Column("head_sha", sa.String(length=64), nullable=False),
        sa.Column("check_run_id", sa.BigInteger(), nullable=True),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("conclusion", sa.String(length=20), nullable=True),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("report", sa.JSON(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["request_id"],
            ["requests.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_jobs_request_id"), ["request_id"], unique=False)

    op.create_table(
        "profiles",
        sa.Column("request_id", sa.String(length=16), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("comment_id", sa.BigInteger(), nullable=True),
        sa.Column("comment_node_id", sa.String(length=100), nullable=True),
        sa.Column("body_sha256", sa.String(length=64), nullable=True),
        sa.Column("shown_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("stale_reactions", sa.JSON(), nullable=True),
        sa.ForeignKeyConstraint(
            ["request_id"],
            ["requests.id"],
        ),
        sa.PrimaryKeyConstraint("request_id", "attempt"),
    )
    with op.batch_alter_table("profiles", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_profiles_sha256"), ["sha256"], unique=False)


def downgrade() -> None:
    with op.batch_alter_table("profiles", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_profiles_sha256"))

    op.drop_table("profiles")
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_jobs_request_id"))

    op.drop_table("jobs")
    with op.batch_alter_table("events", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_events_request_id"))

    op.drop_table("events")
    op.drop_table("candidates")
    op.drop_table("approvals")
    with op.batch_alter_table("requests", schema=None) as batch_op:
        batch_op.drop_index("requests_by_issue")
        batch_op.drop_index(batch_op.f("ix_requests_status_comment_id"))
        batch_op.drop_index(batch_op.f("ix_requests_state"))
        batch_op.drop_index(batch_op.f("ix_requests_pull_number"))

    op.drop_table("requests")
    with op.batch_alter_table("replies", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_replies_login"))

    op.drop_table("replies")
    op.drop_table("executors")
    with op.batch_alter_table("deliveries", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_deliveries_state"))

    op.drop_table("deliveries")
