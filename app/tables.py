"""Our tables, as SQLAlchemy sees them. app/migrations creates them; app/store.py is what reads and writes them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    DateTime,
    Float,
    ForeignKey,
    Index,
    Integer,
    String,
    Text,
    TypeDecorator,
    UniqueConstraint,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class UtcTime(TypeDecorator[datetime]):
    """A time with its zone. SQLite keeps none, so it is put back on reading."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002 - SQLAlchemy's signature
        return value if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Table(DeclarativeBase):
    type_annotation_map = {datetime: UtcTime, dict[str, Any]: JSON, list[int]: JSON}  # noqa: RUF012 - SQLAlchemy's form


class Delivery(Table):
    """A webhook delivery that we took responsibility for. `guid` is the same when GitHub sends it again."""

    __tablename__ = "deliveries"
    guid: Mapped[str] = mapped_column(String(100), primary_key=True)
    event: Mapped[str] = mapped_column(String(60))
    body: Mapped[str] = mapped_column(Text)
    received_at: Mapped[datetime]
    state: Mapped[str] = mapped_column(
        String(20), default="received", index=True
    )  # received, done, ignored, failed
    note: Mapped[str] = mapped_column(Text, default="")
    tries: Mapped[int] = mapped_column(default=0)
    next_try_at: Mapped[datetime | None]
    # the comment that it tells of: told again under another GUID, it is still the same comment
    subject: Mapped[str | None] = mapped_column(String(300), unique=True, index=True)


class Request(Table):
    """One accepted `/liger` command and where it stands."""

    __tablename__ = "requests"
    id: Mapped[str] = mapped_column(String(16), primary_key=True)
    repository: Mapped[str] = mapped_column(String(200))
    installation_id: Mapped[int] = mapped_column(BigInteger)
    issue_number: Mapped[int]
    comment_id: Mapped[int] = mapped_column(BigInteger)
    requester: Mapped[str] = mapped_column(String(100))
    requester_id: Mapped[int] = mapped_column(BigInteger)
    verb: Mapped[str] = mapped_column(String(20))
    op_text: Mapped[str] = mapped_column(Text)
    block: Mapped[str | None] = mapped_column(Text)
    # repository + op while the request is live, NULL once it has ended: the database refuses a second live one
    live_key: Mapped[str | None] = mapped_column(String(400), unique=True)
    op_key: Mapped[str] = mapped_column(String(400))
    state: Mapped[str] = mapped_column(String(20), index=True)
    attempt: Mapped[int] = mapped_column(default=1)
    round: Mapped[int] = mapped_column(default=0)
    changes: Mapped[dict[str, Any] | None]  # of the last `/liger revise`
    changed_by: Mapped[str | None] = mapped_column(String(100))
    followed_comment_id: Mapped[int | None] = mapped_column(BigInteger)
    base_sha: Mapped[str] = mapped_column(String(64), default="")
    default_branch: Mapped[str] = mapped_column(String(255), default="")
    branch: Mapped[str] = mapped_column(String(200), default="")
    head_sha: Mapped[str] = mapped_column(String(64), default="")
    pull_number: Mapped[int | None] = mapped_column(index=True)
    pull_url: Mapped[str] = mapped_column(Text, default="")
    status_comment_id: Mapped[int | None] = mapped_column(BigInteger, index=True)
    failed_stage: Mapped[str | None] = mapped_column(String(20))
    failure: Mapped[dict[str, Any] | None]
    ended_by: Mapped[str | None] = mapped_column(String(100))
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]

    __table_args__ = (
        UniqueConstraint("repository", "comment_id", name="one_request_a_comment"),
        Index("requests_by_issue", "repository", "issue_number"),
        # what the list of requests is filtered and ordered by
        Index("requests_by_age", "created_at"),
        Index("requests_of_repository", "repository", "created_at", "installation_id"),
        Index("requests_of_state", "state", "created_at"),
    )


class Profile(Table):
    """A profile as derived or revised, and how it was shown."""

    __tablename__ = "profiles"
    request_id: Mapped[str] = mapped_column(ForeignKey("requests.id"), primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True)
    sha256: Mapped[str] = mapped_column(String(64), index=True)
    body: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]
    comment_id: Mapped[int | None] = mapped_column(BigInteger)
    comment_node_id: Mapped[str | None] = mapped_column(String(100))
    body_sha256: Mapped[str | None] = mapped_column(String(64))  # of the comment's text
    shown_at: Mapped[datetime | None]
    stale_reactions: Mapped[list[int] | None]
    # What came after the profile was shown: no part of it, and no reason to ask again.
    schedules: Mapped[dict[str, Any] | None]
    earlier_body_sha256: Mapped[str | None] = mapped_column(String(64))  # before the schedules were added


class Approval(Table):
    """A person's answer to one profile."""

    __tablename__ = "approvals"
    request_id: Mapped[str] = mapped_column(ForeignKey("requests.id"), primary_key=True)
    profile_sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    login: Mapped[str] = mapped_column(String(100))
    by: Mapped[str] = mapped_column(String(20))  # reaction, command
    source_id: Mapped[int] = mapped_column(BigInteger)  # of the reaction or the comment
    at: Mapped[datetime]


class StoredCandidate(Table):
    """A candidate of one attempt and round, and the commit it became."""

    __tablename__ = "candidates"
    request_id: Mapped[str] = mapped_column(ForeignKey("requests.id"), primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True)
    round: Mapped[int] = mapped_column(primary_key=True)
    body: Mapped[dict[str, Any]]
    head_sha: Mapped[str] = mapped_column(String(64), default="")
    pushed_by: Mapped[str] = mapped_column(String(100), default="")  # a person; empty: the bot
    created_at: Mapped[datetime]


class StoredJob(Table):
    """A gate's job: what was sent where, and the report that came back."""

    __tablename__ = "jobs"
    id: Mapped[str] = mapped_column(String(80), primary_key=True)
    request_id: Mapped[str] = mapped_column(ForeignKey("requests.id"), index=True)
    attempt: Mapped[int]
    round: Mapped[int]
    gate: Mapped[str] = mapped_column(String(20))
    nonce: Mapped[str] = mapped_column(String(64))
    head_sha: Mapped[str] = mapped_column(String(64))
    check_run_id: Mapped[int | None] = mapped_column(BigInteger)
    state: Mapped[str] = mapped_column(String(20))  # running, done, cancelled
    conclusion: Mapped[str | None] = mapped_column(String(20))
    title: Mapped[str] = mapped_column(Text, default="")
    report: Mapped[dict[str, Any] | None]
    created_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]

    # counting jobs must not read their reports
    __table_args__ = (Index("jobs_by_outcome", "gate", "state", "conclusion"),)


class StoredDispatch(Table):
    """A gate's job on one architecture, sent to GitHub Actions: kept before it is sent, so that it is sent once."""

    __tablename__ = "dispatches"
    id: Mapped[str] = mapped_column(String(120), primary_key=True)  # job and architecture
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), index=True)
    request_id: Mapped[str] = mapped_column(ForeignKey("requests.id"), index=True)
    repository: Mapped[str] = mapped_column(String(200), index=True)
    architecture: Mapped[str] = mapped_column(String(40))
    labels: Mapped[list[str]] = mapped_column(JSON)
    nonce: Mapped[str] = mapped_column(String(64), unique=True)
    head_sha: Mapped[str] = mapped_column(String(64))
    packed: Mapped[str] = mapped_column(Text)  # the job as it goes into the workflow's inputs
    state: Mapped[str] = mapped_column(String(20), index=True)  # intended, sent, running, settled
    run_id: Mapped[int | None] = mapped_column(BigInteger, index=True)
    run_url: Mapped[str] = mapped_column(Text, default="")
    fault: Mapped[str] = mapped_column(String(30), default="")  # why there is no report
    detail: Mapped[str] = mapped_column(Text, default="")
    report: Mapped[dict[str, Any] | None]
    created_at: Mapped[datetime]
    sent_at: Mapped[datetime | None]
    started_at: Mapped[datetime | None]
    settled_at: Mapped[datetime | None]


class LogLine(Table):
    """One line of what a request's jobs say while they run, for people; only the newest of a request are kept."""

    __tablename__ = "log_lines"
    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=True)
    request_id: Mapped[str] = mapped_column(ForeignKey("requests.id"), index=True)
    at: Mapped[datetime]
    text: Mapped[str] = mapped_column(Text)


class Event(Table):
    """One line of a request's history, for people."""

    __tablename__ = "events"
    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=True)
    request_id: Mapped[str] = mapped_column(ForeignKey("requests.id"), index=True)
    at: Mapped[datetime]
    kind: Mapped[str] = mapped_column(String(30))  # state, approval, gate, commit, error
    state: Mapped[str | None] = mapped_column(String(20))  # the state entered, for kind "state"
    text: Mapped[str] = mapped_column(Text)


class ModelQuestion(Table):
    """One question to the language model for a request, and what it cost."""

    __tablename__ = "model_questions"
    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=True)
    request_id: Mapped[str] = mapped_column(ForeignKey("requests.id"), index=True)
    at: Mapped[datetime]
    purpose: Mapped[str] = mapped_column(String(60))
    model: Mapped[str] = mapped_column(String(200))
    input_tokens: Mapped[int]
    output_tokens: Mapped[int]
    cost_usd: Mapped[float | None] = mapped_column(Float)  # None: no price is known


class Reply(Table):
    """A short answer given to a person on an issue; counted so that strangers can't make the bot chatter."""

    __tablename__ = "replies"
    repository: Mapped[str] = mapped_column(String(200), primary_key=True)
    comment_id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    issue_number: Mapped[int]
    login: Mapped[str] = mapped_column(String(100), index=True)
    at: Mapped[datetime]


class Executor(Table):
    """A process that shares this database, alive while its heartbeat is fresh."""

    __tablename__ = "executors"
    id: Mapped[str] = mapped_column(String(100), primary_key=True)
    process: Mapped[str] = mapped_column(String(100))
    heartbeat_at: Mapped[datetime]


class Write(Table):
    """A thing that is being made on GitHub just now, so that no two processes make it. Gone once it is made."""

    __tablename__ = "writes"
    key: Mapped[str] = mapped_column(String(300), primary_key=True)
    executor_id: Mapped[str] = mapped_column(String(100))
    at: Mapped[datetime]
