"""What one request works with: a session, the caller, the git store, addresses, and the webhooks it gives rise to."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.localhub.actor import ANONYMOUS, Actor, level, require
from app.localhub.database import Database
from app.localhub.errors import ApiError, not_found
from app.localhub.git_store import GitStore
from app.localhub.links import Links
from app.localhub.tables import Account, Issue, Repository


@dataclass(frozen=True)
class Context:
    """The running hub as its parts see it."""

    database: Database
    git: GitStore
    artifacts: Path
    links: Links
    signing_key: str
    wake_deliveries: Callable[[], None]


@dataclass
class Transaction:
    """One request's work; committed as a whole, webhooks included."""

    context: Context
    session: Session
    actor: Actor = ANONYMOUS
    api_version: str = "2022-11-28"
    after_commit: list[Callable[[], None]] = field(default_factory=list)

    @property
    def git(self) -> GitStore:
        """The bare repositories."""
        return self.context.git

    @property
    def legacy(self) -> bool:
        """Whether replies carry what version 2026-03-10 removed. Webhooks still do."""
        return self.api_version < "2026-03-10"

    @property
    def links(self) -> Links:
        """Addresses of this hub."""
        return self.context.links

    def account(self, login: str) -> Account:
        """The account of that login. Raises ApiError 404."""
        account = self.session.scalar(select(Account).where(Account.login == login))
        if account is None:
            raise not_found()
        return account

    def repository(
        self, owner: str, name: str, *needs: str, write: bool = False, role: str = "read"
    ) -> Repository:
        """The repository, if the caller may use it so.

        `needs` are App permissions of which one suffices (none: metadata); `role` is what a person must have.
        Raises ApiError 404, 403 or 401 as GitHub would.
        """
        found = self.session.scalar(
            select(Repository).join(Repository.owner).where(Account.login == owner, Repository.name == name)
        )
        if found is None:
            raise not_found()
        require(self.session, self.actor, found, needs or ("metadata",), "write" if write else "read")
        if self.actor.kind != "installation" and role != "read":
            order = ("none", "read", "write", "admin")
            if order.index(level(self.session, self.actor, found)) < order.index(role):
                raise ApiError(
                    403,
                    "Must have push access to repository"
                    if role == "write"
                    else "Must have admin rights to Repository.",
                )
        return found

    def issue(self, repository: Repository, number: int) -> Issue:
        """The issue or pull request of that number. Raises ApiError 404."""
        found = self.session.scalar(
            select(Issue).where(Issue.repository_id == repository.id, Issue.number == number)
        )
        if found is None:
            raise not_found()
        return found


@contextmanager
def transaction(
    context: Context, *, write: bool, actor: Callable[[Session], Actor], api_version: str = "2022-11-28"
) -> Iterator[Transaction]:
    """Run a block as one database transaction; `actor` finds the caller inside it."""
    session = context.database.writing() if write else context.database.reading()
    with session, session.begin():
        tx = Transaction(context, session, actor(session), api_version)
        yield tx
    if write:
        context.wake_deliveries()
        for action in tx.after_commit:
            action()
