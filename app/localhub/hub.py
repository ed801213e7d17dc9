"""The local GitHub as an object: its state, the things an administrator does, and serving it."""

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import uvicorn
from sqlalchemy import select, update
from sqlalchemy.orm import Session
from starlette.types import ASGIApp

from app.localhub.actor import ANONYMOUS, Actor, issue_user_token
from app.localhub.application import build_application
from app.localhub.changes import accounts, jobs, repositories, runs, workflows
from app.localhub.changes.pulls import head_moved, pull_of
from app.localhub.clock import stamp_in
from app.localhub.database import Database
from app.localhub.deliveries import DeliveryWorker
from app.localhub.errors import not_found
from app.localhub.faults import Faults
from app.localhub.git_store import GitStore
from app.localhub.job_at_hand import JobAtHand, job_at_hand
from app.localhub.links import Links
from app.localhub.rate_limits import RateLimits
from app.localhub.tables import (
    Account,
    App,
    Installation,
    Issue,
    PullRequest,
    Repository,
    SelfHostedRunner,
    TeamMember,
    Token,
    WorkflowJob,
    WorkflowRun,
)
from app.localhub.transaction import Context, Transaction, transaction

log = logging.getLogger(__name__)

# What docs/install.md asks a person to grant.
APP_PERMISSIONS = {
    "metadata": "read",
    "issues": "write",
    "pull_requests": "write",
    "contents": "write",
    "checks": "write",
    "actions": "write",
}
START_SECONDS = 10.0


@dataclass(frozen=True)
class RegisteredApp:
    """What registering an App hands out; the private key only this once."""

    id: int
    slug: str
    client_id: str
    private_key: str
    webhook_secret: str


@dataclass(frozen=True)
class ServedHub:
    """A hub that answers."""

    url: str  # no trailing slash; the API is below /api/v3 and at the root
    port: int

    @property
    def api_url(self) -> str:
        """The REST base address, as githubkit's `base_url` wants it."""
        return f"{self.url}/api/v3/"


class LocalHub:
    """A GitHub whose state lies in `data_dir`; it survives being killed at any moment.

    `enterprise` makes the API behave as an older GitHub Enterprise Server does (dispatch takes ten inputs and no
    `return_run_details`); `rate_limited` refuses callers beyond their hourly limit.
    """

    def __init__(self, data_dir: Path | str, *, enterprise: bool = False, rate_limited: bool = True) -> None:
        self.data_dir = Path(data_dir)
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self.faults = Faults()
        self.rate_limits = RateLimits(rate_limited)
        self.enterprise = enterprise
        self.database = Database(self.data_dir / "hub.sqlite")
        self._worker = DeliveryWorker(self.database, self.faults)
        self.context = Context(
            database=self.database,
            git=GitStore(self.data_dir / "git"),
            artifacts=self.data_dir / "artifacts",
            links=Links("http://127.0.0.1"),
            signing_key=self.database.setting("token-key"),
            wake_deliveries=self._worker.wake,
        )

    # serving

    def application(self, url: str) -> ASGIApp:
        """The ASGI application of this hub, which will be reached at `url`."""
        self.context = replace(self.context, links=Links(url.rstrip("/")))
        return build_application(self)

    def start_background(self) -> None:
        """Catch up with pushes that a kill cut off, and send what waits."""
        self._catch_up()
        self._worker.start()

    def close(self) -> None:
        """Stop sending and close the state."""
        self._worker.stop()
        self.database.close()

    @contextmanager
    def serve(self, host: str = "127.0.0.1", port: int = 0) -> Iterator[ServedHub]:
        """Answer on `port` (0: a free one) from a thread, until the block ends."""
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
            chosen = int(listener.getsockname()[1])
            url = f"http://{host}:{chosen}"
            config = uvicorn.Config(
                self.application(url),
                log_level="warning",
                access_log=False,
                lifespan="off",
                timeout_graceful_shutdown=2,
            )
            server = uvicorn.Server(config)
            thread = threading.Thread(target=server.run, args=([listener],), name="localhub", daemon=True)
            self.start_background()
            thread.start()
            try:
                _wait_until(lambda: server.started or not thread.is_alive(), START_SECONDS)
                yield ServedHub(url, chosen)
            finally:
                server.should_exit = True
                thread.join()
                self.close()

    def deliveries_done(self, timeout: float = 10.0) -> bool:
        """Wait until no webhook waits or is being sent; False when `timeout` seconds were not enough."""
        with contextlib.suppress(TimeoutError):
            _wait_until(self._worker.idle, timeout)
            return True
        return False

    # administration

    @contextmanager
    def _write(self, actor: Callable[[Session], Actor] = lambda _session: ANONYMOUS) -> Iterator[Transaction]:
        with transaction(self.context, write=True, actor=actor) as tx:
            yield tx

    def create_user(self, login: str, name: str | None = None) -> str:
        """Make the user if missing; returns a new token that acts as them."""
        with self._write() as tx:
            return issue_user_token(tx.session, accounts.ensure_account(tx, login, "User", name))

    def create_organization(self, login: str) -> None:
        """Make the organization if missing."""
        with self._write() as tx:
            accounts.ensure_account(tx, login, "Organization")

    def create_repository(
        self,
        owner: str,
        name: str,
        directory: Path | None = None,
        *,
        private: bool = False,
        description: str | None = None,
        default_branch: str = "main",
        message: str = "Initial commit",
    ) -> str:
        """Make a repository from the files below `directory` (None: a README alone); returns its first commit.

        An owner that doesn't exist becomes an organization. Raises ApiError 422 when the name is taken.
        """
        with self._write() as tx:
            account = accounts.ensure_account(tx, owner, "Organization")
            row = repositories.create_repository(
                tx,
                account,
                name,
                directory=directory,
                private=private,
                description=description,
                default_branch=default_branch,
                message=message,
            )
            return tx.git.refs(row.id)[f"refs/heads/{default_branch}"]

    def set_collaborator(self, repository: str, login: str, role: str | None) -> None:
        """Give `login` a role on `owner/name` (None: take it away)."""
        with self._write() as tx:
            repositories.set_collaborator(tx, _repository(tx, repository), tx.account(login), role)

    def register_app(
        self,
        slug: str,
        owner: str,
        webhook_url: str = "",
        webhook_secret: str = "",
        permissions: dict[str, str] | None = None,
        *,
        events: list[str] | None = None,
    ) -> RegisteredApp:
        """Register an App owned by `owner`; a ping goes to its webhook address."""
        with self._write() as tx:
            made = accounts.register_app(
                tx,
                slug,
                accounts.ensure_account(tx, owner, "Organization"),
                webhook_url,
                webhook_secret,
                permissions=APP_PERMISSIONS if permissions is None else permissions,
                subscriptions=events,
            )
            return RegisteredApp(made.app.id, slug, made.app.client_id, made.private_key, webhook_secret)

    def set_webhook(self, slug: str, url: str, secret: str | None = None) -> None:
        """Change where an App's webhooks go, and their secret."""
        with self._write() as tx:
            app = _app(tx, slug)
            app.webhook_url = url
            if secret is not None:
                app.webhook_secret = secret

    def install_app(self, slug: str, account: str, repositories_chosen: list[str] | None = None) -> int:
        """Install an App on an account; `repositories_chosen` are `owner/name` or names (None: all). Returns its id."""
        with self._write() as tx:
            chosen = None
            if repositories_chosen is not None:
                chosen = [
                    _repository(tx, name if "/" in name else f"{account}/{name}")
                    for name in repositories_chosen
                ]
            return accounts.install_app(tx, _app(tx, slug), tx.account(account), chosen).id

    def put_in_team(self, organization: str, team: str, login: str) -> None:
        """Put a person into a team of an organization, making the team if missing."""
        with self._write() as tx:
            key = (tx.account(organization).id, team.lower(), tx.account(login).id)
            if tx.session.get(TeamMember, key) is None:
                tx.session.add(TeamMember(organization_id=key[0], team=key[1], account_id=key[2]))

    def add_runner(self, repository: str, name: str, labels: list[str], status: str = "online") -> None:
        """Let a repository know a self-hosted runner; nothing runs on it."""
        with self._write() as tx:
            row = SelfHostedRunner(
                repository_id=_repository(tx, repository).id, name=name, labels=labels, status=status
            )
            tx.session.add(row)

    def suspend(self, installation_id: int, suspended: bool = True) -> None:
        """Suspend an installation, or take the suspension back."""
        with self._write() as tx:
            accounts.suspend(tx, tx.session.get_one(Installation, installation_id), suspended)

    def expire_tokens(self) -> None:
        """Make every installation token that is out look an hour old."""
        with self._write() as tx:
            tx.session.execute(
                update(Token).where(Token.installation_id.is_not(None)).values(expires_at=stamp_in(-1))
            )

    def advance_run(self, run_id: int, status: str, conclusion: str | None = None) -> None:
        """Move a workflow run on, as its runner would."""
        with self._write() as tx:
            run = tx.session.get(WorkflowRun, run_id)
            if run is None:
                raise not_found()
            if status == "completed":
                jobs.end_run(tx, run, conclusion or "success")
            else:
                runs.advance(tx, run, status, conclusion)

    def take_job(self, name: str, labels: list[str]) -> JobAtHand | None:
        """The next job for a runner of that name with those labels, if one waits."""
        with self._write() as tx:
            row = jobs.take(tx, name, labels)
            return None if row is None else job_at_hand(tx, row)

    def job_goes_on(self, job_id: int, steps: list[dict[str, Any]]) -> bool:
        """A runner tells of a job's steps; False when the job was ended meanwhile and must be stopped."""
        with self._write() as tx:
            row = tx.session.get_one(WorkflowJob, job_id)
            if row.status != "in_progress":
                return False
            row.steps = steps
            return True

    def end_job(self, job_id: int, conclusion: str) -> None:
        """A runner has finished a job."""
        with self._write() as tx:
            jobs.end_job(tx, tx.session.get_one(WorkflowJob, job_id), conclusion)

    def lose_runner(self, name: str) -> int:
        """A runner is gone for good, as GitHub finds out after some minutes; returns how many jobs failed by that."""
        with self._write() as tx:
            return jobs.lose_runner(tx, name)

    def expire_artifacts(self) -> None:
        """Make every artifact look older than its retention."""
        with self._write() as tx:
            workflows.expire_artifacts(tx)

    def add_artifact(self, run_id: int, name: str, data: bytes) -> int:
        """Store a zip as an artifact of a run; returns its id."""
        with self._write() as tx:
            run = tx.session.get(WorkflowRun, run_id)
            if run is None:
                raise not_found()
            return workflows.add_artifact(tx, run, name, data).id

    def _catch_up(self) -> None:
        """Record pushes whose refs moved but whose webhooks were never written, because the hub was killed between."""
        with self._write() as tx:
            query = (
                select(Issue).join(PullRequest, PullRequest.issue_id == Issue.id).where(Issue.state == "open")
            )
            for row in tx.session.scalars(query).all():
                pull = pull_of(row)
                tip = tx.git.ref(row.repository_id, f"refs/heads/{pull.head_ref}")
                if tip is not None and tip != pull.head_sha:
                    author = tx.session.get_one(Account, row.author_id)
                    acting = replace(tx, actor=Actor("user", account=author))
                    head_moved(acting, row.repository, pull.head_ref, pull.head_sha, tip)


def _wait_until(condition: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {seconds} s")
        time.sleep(0.01)


def _repository(tx: Transaction, full_name: str) -> Repository:
    owner, _, name = full_name.partition("/")
    found = tx.session.scalar(
        select(Repository).join(Repository.owner).where(Account.login == owner, Repository.name == name)
    )
    if found is None:
        raise not_found()
    return found


def _app(tx: Transaction, slug: str) -> App:
    found = tx.session.scalar(select(App).where(App.slug == slug))
    if found is None:
        raise not_found()
    return found
