"""Repositories are made; people get roles on them."""

import re
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import select

from app.localhub.errors import invalid
from app.localhub.git_objects import Signature
from app.localhub.tables import Account, Collaborator, Label, Repository
from app.localhub.transaction import Transaction

ROLES = ("read", "triage", "write", "maintain", "admin")
DEFAULT_LABELS = (
    ("bug", "d73a4a", "Something isn't working"),
    ("documentation", "0075ca", "Improvements or additions to documentation"),
    ("enhancement", "a2eeef", "New feature or request"),
    ("question", "d876e3", "Further information is requested"),
)


def signature(account: Account) -> Signature:
    """The account as the author of a commit made now."""
    return Signature(account.name or account.login, account.email or "", datetime.now(UTC))


def create_repository(
    tx: Transaction,
    owner: Account,
    name: str,
    *,
    directory: Path | None = None,
    private: bool = False,
    description: str | None = None,
    default_branch: str = "main",
    message: str = "Initial commit",
) -> Repository:
    """A new repository whose first commit holds the files of `directory`, or a README alone.

    Raises ApiError 422 when the name is taken or can't be one.
    """
    if not re.fullmatch(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,100}", name) or name.endswith(".git"):
        raise invalid("Repository", "name", "invalid")
    if tx.session.scalar(select(Repository).where(Repository.owner_id == owner.id, Repository.name == name)):
        raise invalid("Repository", "name", "custom", "name already exists on this account")
    row = Repository(
        owner_id=owner.id, name=name, private=private, description=description, default_branch=default_branch
    )
    tx.session.add(row)
    tx.session.flush()
    tx.git.create(row.id, default_branch)
    if directory is None:
        readme = f"# {name}\n".encode()
        tx.git.empty_commit(row.id, default_branch, {"README.md": readme}, message, signature(owner))
    else:
        tx.git.commit_directory(row.id, directory, default_branch, message, signature(owner))
    for label_name, color, text in DEFAULT_LABELS:
        tx.session.add(Label(repository_id=row.id, name=label_name, color=color, description=text))
    tx.session.flush()
    return row


def set_collaborator(tx: Transaction, repository: Repository, account: Account, role: str | None) -> None:
    """Give the account a role on the repository, or take its role away (None). Raises ApiError 422."""
    if role is not None and role not in ROLES:
        raise invalid("Collaborator", "permission", "invalid")
    row = tx.session.get(Collaborator, (repository.id, account.id))
    if role is None:
        if row is not None:
            tx.session.delete(row)
    elif row is None:
        tx.session.add(Collaborator(repository_id=repository.id, account_id=account.id, role=role))
    else:
        row.role = role
    tx.session.flush()
