"""The hub's state. Timestamps are GitHub's own text form (see `clock`), which sorts as time does."""

from typing import Any

from sqlalchemy import JSON, ForeignKey, Index, String, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from app.localhub.clock import stamp


class Base(DeclarativeBase):
    """All tables of the hub."""

    type_annotation_map = {dict[str, Any]: JSON, list[Any]: JSON, dict[str, str]: JSON, list[str]: JSON}  # noqa: RUF012


class Setting(Base):
    """A value that the hub made once and keeps: the cookie key, the token key."""

    __tablename__ = "settings"
    key: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[str]


class Account(Base):
    """A user, an organization, or the bot user of an App. Logins compare without case."""

    __tablename__ = "accounts"
    id: Mapped[int] = mapped_column(primary_key=True)
    login: Mapped[str] = mapped_column(String(collation="NOCASE"), unique=True)
    type: Mapped[str]  # User, Organization, Bot
    name: Mapped[str | None]
    email: Mapped[str | None]
    created_at: Mapped[str] = mapped_column(default=stamp)


class App(Base):
    """A registered GitHub App. The private key is handed out once; only the public half is kept."""

    __tablename__ = "apps"
    id: Mapped[int] = mapped_column(primary_key=True)
    slug: Mapped[str] = mapped_column(unique=True)
    name: Mapped[str]
    client_id: Mapped[str] = mapped_column(unique=True)
    owner_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"))
    bot_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"))
    public_key: Mapped[str]
    webhook_url: Mapped[str]
    webhook_secret: Mapped[str]
    permissions: Mapped[dict[str, str]]
    events: Mapped[list[str]]
    created_at: Mapped[str] = mapped_column(default=stamp)
    updated_at: Mapped[str] = mapped_column(default=stamp)
    owner: Mapped[Account] = relationship(foreign_keys=[owner_id])
    bot: Mapped[Account] = relationship(foreign_keys=[bot_id])


class AppManifest(Base):
    """An App that a person agreed to and that is still to be registered, with the code for it."""

    __tablename__ = "app_manifests"
    code: Mapped[str] = mapped_column(primary_key=True)
    owner_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"))
    slug: Mapped[str]
    manifest: Mapped[dict[str, Any]]
    expires_at: Mapped[str]


class TeamMember(Base):
    """A person in a team of an organization; a team is there when somebody is in it."""

    __tablename__ = "team_members"
    organization_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"), primary_key=True)
    team: Mapped[str] = mapped_column(primary_key=True)
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"), primary_key=True)


class Installation(Base):
    """An App installed on an account, for all of its repositories or for chosen ones."""

    __tablename__ = "installations"
    __table_args__ = (UniqueConstraint("app_id", "account_id"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    app_id: Mapped[int] = mapped_column(ForeignKey("apps.id"))
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"))
    repository_selection: Mapped[str]  # all, selected
    permissions: Mapped[dict[str, str]]
    events: Mapped[list[str]]
    created_at: Mapped[str] = mapped_column(default=stamp)
    updated_at: Mapped[str] = mapped_column(default=stamp)
    suspended_at: Mapped[str | None]
    app: Mapped[App] = relationship()
    account: Mapped[Account] = relationship()


class InstallationRepository(Base):
    """One chosen repository of an installation."""

    __tablename__ = "installation_repositories"
    installation_id: Mapped[int] = mapped_column(ForeignKey("installations.id"), primary_key=True)
    repository_id: Mapped[int] = mapped_column(ForeignKey("repositories.id"), primary_key=True)


class Token(Base):
    """A user's or an installation's token, known by its hash alone."""

    __tablename__ = "tokens"
    sha256: Mapped[str] = mapped_column(primary_key=True)
    account_id: Mapped[int | None] = mapped_column(ForeignKey("accounts.id"))
    installation_id: Mapped[int | None] = mapped_column(ForeignKey("installations.id"))
    permissions: Mapped[dict[str, str] | None]
    repository_ids: Mapped[list[Any] | None]  # None: every repository of the installation
    expires_at: Mapped[str | None]


class Repository(Base):
    """A repository; its git data is a bare repository named by `id` in the data folder."""

    __tablename__ = "repositories"
    __table_args__ = (UniqueConstraint("owner_id", "name"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    owner_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"))
    name: Mapped[str] = mapped_column(String(collation="NOCASE"))
    private: Mapped[bool] = mapped_column(default=False)
    description: Mapped[str | None]
    default_branch: Mapped[str] = mapped_column(default="main")
    next_number: Mapped[int] = mapped_column(default=1)  # issues and pull requests share one sequence
    created_at: Mapped[str] = mapped_column(default=stamp)
    updated_at: Mapped[str] = mapped_column(default=stamp)
    pushed_at: Mapped[str] = mapped_column(default=stamp)
    owner: Mapped[Account] = relationship()

    @property
    def full_name(self) -> str:
        """`owner/name`."""
        return f"{self.owner.login}/{self.name}"


class Collaborator(Base):
    """A role given to an account on a repository."""

    __tablename__ = "collaborators"
    repository_id: Mapped[int] = mapped_column(ForeignKey("repositories.id"), primary_key=True)
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"), primary_key=True)
    role: Mapped[str]  # read, triage, write, maintain, admin


class Label(Base):
    """A label of a repository."""

    __tablename__ = "labels"
    __table_args__ = (UniqueConstraint("repository_id", "name"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    repository_id: Mapped[int] = mapped_column(ForeignKey("repositories.id"))
    name: Mapped[str] = mapped_column(String(collation="NOCASE"))
    color: Mapped[str] = mapped_column(default="ededed")
    description: Mapped[str | None]


class IssueLabel(Base):
    """A label on an issue or pull request."""

    __tablename__ = "issue_labels"
    issue_id: Mapped[int] = mapped_column(ForeignKey("issues.id"), primary_key=True)
    label_id: Mapped[int] = mapped_column(ForeignKey("labels.id"), primary_key=True)


class Issue(Base):
    """An issue, or the conversation half of a pull request."""

    __tablename__ = "issues"
    __table_args__ = (UniqueConstraint("repository_id", "number"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    repository_id: Mapped[int] = mapped_column(ForeignKey("repositories.id"))
    number: Mapped[int]
    title: Mapped[str]
    body: Mapped[str | None]
    author_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"))
    app_id: Mapped[int | None] = mapped_column(ForeignKey("apps.id"))
    state: Mapped[str] = mapped_column(default="open")
    state_reason: Mapped[str | None]
    locked: Mapped[bool] = mapped_column(default=False)
    created_at: Mapped[str] = mapped_column(default=stamp)
    updated_at: Mapped[str] = mapped_column(default=stamp)
    closed_at: Mapped[str | None]
    closed_by_id: Mapped[int | None] = mapped_column(ForeignKey("accounts.id"))
    repository: Mapped[Repository] = relationship()
    author: Mapped[Account] = relationship(foreign_keys=[author_id])
    closed_by: Mapped[Account | None] = relationship(foreign_keys=[closed_by_id])
    app: Mapped[App | None] = relationship()
    labels: Mapped[list[Label]] = relationship(secondary="issue_labels", order_by="Label.name")
    pull: Mapped["PullRequest | None"] = relationship(back_populates="issue")


class PullRequest(Base):
    """The git half of a pull request; head and base are branches of one repository."""

    __tablename__ = "pull_requests"
    id: Mapped[int] = mapped_column(primary_key=True)
    issue_id: Mapped[int] = mapped_column(ForeignKey("issues.id"), unique=True)
    head_ref: Mapped[str]
    head_sha: Mapped[str]
    base_ref: Mapped[str]
    base_sha: Mapped[str]
    draft: Mapped[bool] = mapped_column(default=False)
    merged_at: Mapped[str | None]
    merged_by_id: Mapped[int | None] = mapped_column(ForeignKey("accounts.id"))
    merge_commit_sha: Mapped[str | None]
    maintainer_can_modify: Mapped[bool] = mapped_column(default=False)
    issue: Mapped[Issue] = relationship(back_populates="pull")
    merged_by: Mapped[Account | None] = relationship()


class Comment(Base):
    """A comment on an issue or pull request."""

    __tablename__ = "comments"
    id: Mapped[int] = mapped_column(primary_key=True)
    issue_id: Mapped[int] = mapped_column(ForeignKey("issues.id"), index=True)
    author_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"))
    app_id: Mapped[int | None] = mapped_column(ForeignKey("apps.id"))
    body: Mapped[str]
    minimized_reason: Mapped[str | None]
    created_at: Mapped[str] = mapped_column(default=stamp)
    updated_at: Mapped[str] = mapped_column(default=stamp)
    issue: Mapped[Issue] = relationship()
    author: Mapped[Account] = relationship()
    app: Mapped[App | None] = relationship()


class Reaction(Base):
    """One account's reaction; `subject_type` is `issue` or `comment`."""

    __tablename__ = "reactions"
    __table_args__ = (UniqueConstraint("subject_type", "subject_id", "account_id", "content"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    subject_type: Mapped[str]
    subject_id: Mapped[int]
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"))
    content: Mapped[str]
    created_at: Mapped[str] = mapped_column(default=stamp)
    account: Mapped[Account] = relationship()


class Review(Base):
    """A submitted review of a pull request."""

    __tablename__ = "reviews"
    id: Mapped[int] = mapped_column(primary_key=True)
    issue_id: Mapped[int] = mapped_column(ForeignKey("issues.id"), index=True)
    author_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"))
    body: Mapped[str]
    state: Mapped[str]  # APPROVED, CHANGES_REQUESTED, COMMENTED, DISMISSED
    commit_id: Mapped[str]
    submitted_at: Mapped[str] = mapped_column(default=stamp)
    issue: Mapped[Issue] = relationship()
    author: Mapped[Account] = relationship()


class TimelineEvent(Base):
    """What happened on an issue besides comments, for its page: closed, reopened, merged, pushed, ready."""

    __tablename__ = "timeline_events"
    id: Mapped[int] = mapped_column(primary_key=True)
    issue_id: Mapped[int] = mapped_column(ForeignKey("issues.id"), index=True)
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"))
    kind: Mapped[str]
    detail: Mapped[str]
    created_at: Mapped[str] = mapped_column(default=stamp)
    account: Mapped[Account] = relationship()


class CheckSuite(Base):
    """The checks of one App on one commit."""

    __tablename__ = "check_suites"
    __table_args__ = (UniqueConstraint("repository_id", "app_id", "head_sha"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    repository_id: Mapped[int] = mapped_column(ForeignKey("repositories.id"))
    app_id: Mapped[int] = mapped_column(ForeignKey("apps.id"))
    head_sha: Mapped[str] = mapped_column(index=True)
    head_branch: Mapped[str | None]
    before: Mapped[str | None]
    created_at: Mapped[str] = mapped_column(default=stamp)
    updated_at: Mapped[str] = mapped_column(default=stamp)
    repository: Mapped[Repository] = relationship()
    app: Mapped[App] = relationship()
    runs: Mapped[list["CheckRun"]] = relationship(back_populates="suite", order_by="CheckRun.id")


class CheckRun(Base):
    """One check run; `output` parts are kept as sent."""

    __tablename__ = "check_runs"
    id: Mapped[int] = mapped_column(primary_key=True)
    suite_id: Mapped[int] = mapped_column(ForeignKey("check_suites.id"), index=True)
    name: Mapped[str]
    external_id: Mapped[str] = mapped_column(default="")
    details_url: Mapped[str | None]
    status: Mapped[str] = mapped_column(default="queued")
    conclusion: Mapped[str | None]
    started_at: Mapped[str] = mapped_column(default=stamp)
    completed_at: Mapped[str | None]
    title: Mapped[str | None]
    summary: Mapped[str | None]
    text: Mapped[str | None]
    annotations: Mapped[list[Any]] = mapped_column(default=list)
    images: Mapped[list[Any]] = mapped_column(default=list)
    actions: Mapped[list[Any]] = mapped_column(default=list)
    suite: Mapped[CheckSuite] = relationship(back_populates="runs")


class WorkflowRun(Base):
    """A dispatched run of a workflow file. The hub records it; whoever plays the runner moves it on."""

    __tablename__ = "workflow_runs"
    id: Mapped[int] = mapped_column(primary_key=True)
    repository_id: Mapped[int] = mapped_column(ForeignKey("repositories.id"), index=True)
    path: Mapped[str]
    name: Mapped[str]
    display_title: Mapped[str]
    run_number: Mapped[int]
    event: Mapped[str]
    head_branch: Mapped[str]
    head_sha: Mapped[str]
    inputs: Mapped[dict[str, str]]
    status: Mapped[str] = mapped_column(default="queued")
    conclusion: Mapped[str | None]
    actor_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"))
    created_at: Mapped[str] = mapped_column(default=stamp)
    updated_at: Mapped[str] = mapped_column(default=stamp)
    repository: Mapped[Repository] = relationship()
    actor: Mapped[Account] = relationship()


class WorkflowJob(Base):
    """A job of a run. A runner whose labels include the job's takes it; without one it stays queued."""

    __tablename__ = "workflow_jobs"
    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("workflow_runs.id"), index=True)
    key: Mapped[str]  # in the workflow file
    name: Mapped[str]
    labels: Mapped[list[Any]]
    concurrency: Mapped[str] = mapped_column(default="")  # the run's group
    status: Mapped[str] = mapped_column(default="queued", index=True)
    conclusion: Mapped[str | None]
    runner_name: Mapped[str | None]
    steps: Mapped[list[Any]] = mapped_column(default=list)
    created_at: Mapped[str] = mapped_column(default=stamp)
    started_at: Mapped[str | None]
    completed_at: Mapped[str | None]
    run: Mapped[WorkflowRun] = relationship()


class Artifact(Base):
    """A zip that a workflow run left; the bytes are a file named by `id` in the data folder."""

    __tablename__ = "artifacts"
    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("workflow_runs.id"), index=True)
    name: Mapped[str]
    size: Mapped[int]
    sha256: Mapped[str]
    created_at: Mapped[str] = mapped_column(default=stamp)
    expires_at: Mapped[str]
    run: Mapped[WorkflowRun] = relationship()


class HookDelivery(Base):
    """One webhook, written in the same transaction as the change it tells of.

    `outcome` is NULL while it waits to be sent; after that it is `delivered`, `failed` or `dropped`
    (dropped: a fault switch lost it before it was sent, so the App's list of deliveries omits it).
    """

    __tablename__ = "hook_deliveries"
    __table_args__ = (Index("hook_deliveries_waiting", "outcome", "not_before"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    app_id: Mapped[int] = mapped_column(ForeignKey("apps.id"))
    guid: Mapped[str] = mapped_column(index=True)
    event: Mapped[str]
    action: Mapped[str | None]
    installation_id: Mapped[int | None]
    repository_id: Mapped[int | None]
    payload: Mapped[str]
    redelivery: Mapped[bool] = mapped_column(default=False)
    not_before: Mapped[float] = mapped_column(default=0.0)  # seconds since the epoch
    outcome: Mapped[str | None]
    delivered_at: Mapped[str] = mapped_column(default=stamp)
    duration: Mapped[float] = mapped_column(default=0.0)  # seconds
    status: Mapped[str] = mapped_column(default="pending")
    status_code: Mapped[int] = mapped_column(default=0)
    request_headers: Mapped[dict[str, str] | None]
    response_headers: Mapped[dict[str, str] | None]
    response_body: Mapped[str | None]
    app: Mapped[App] = relationship()


class SelfHostedRunner(Base):
    """A runner that a repository knows."""

    __tablename__ = "self_hosted_runners"
    id: Mapped[int] = mapped_column(primary_key=True)
    repository_id: Mapped[int] = mapped_column(ForeignKey("repositories.id"))
    name: Mapped[str]
    status: Mapped[str]  # online, offline
    labels: Mapped[list[str]]


for _table in Base.metadata.tables.values():
    if "id" in _table.columns:
        _table.dialect_options["sqlite"]["autoincrement"] = True  # an id is never used twice, as on GitHub
