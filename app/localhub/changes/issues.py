"""Issues, comments and reactions."""

from sqlalchemy import delete, select

from app.localhub import events
from app.localhub.changes.announce import announce, note
from app.localhub.clock import stamp
from app.localhub.errors import invalid
from app.localhub.payloads import issues as payloads
from app.localhub.tables import (
    Comment,
    Issue,
    Label,
    Reaction,
    Repository,
)
from app.localhub.transaction import Transaction

BODY_LIMIT = 65_536
TITLE_LIMIT = 256


def check_body(resource: str, body: str | None) -> None:
    """Raise ApiError 422 when a body is longer than GitHub takes."""
    if body is not None and len(body) > BODY_LIMIT:
        raise invalid(resource, "body", "custom", f"body is too long (maximum is {BODY_LIMIT} characters)")


def check_title(resource: str, title: str) -> None:
    """Raise ApiError 422 for an empty title or one longer than GitHub takes."""
    if not title.strip():
        raise invalid(resource, "title", "missing_field")
    if len(title) > TITLE_LIMIT:
        raise invalid(resource, "title", "custom", f"title is too long (maximum is {TITLE_LIMIT} characters)")


def new_issue(
    tx: Transaction, repository: Repository, title: str, body: str | None, labels: list[str]
) -> Issue:
    """The row that issues and pull requests share, numbered; no event is sent."""
    author = tx.actor.signed_in()
    number = repository.next_number
    repository.next_number = number + 1
    row = Issue(
        repository_id=repository.id,
        number=number,
        title=title,
        body=body,
        author_id=author.id,
        app_id=tx.actor.app.id if tx.actor.app else None,
        labels=ensure_labels(tx, repository, labels),
    )
    tx.session.add(row)
    tx.session.flush()
    return row


def create_issue(
    tx: Transaction, repository: Repository, title: str, body: str | None, labels: list[str]
) -> Issue:
    """Open an issue. Raises ApiError 422."""
    check_title("Issue", title)
    check_body("Issue", body)
    row = new_issue(tx, repository, title, body, labels)
    announce(tx, row, "opened")
    return row


def ensure_labels(tx: Transaction, repository: Repository, names: list[str]) -> list[Label]:
    """The labels of those names; missing ones are made, as GitHub does."""
    found = []
    for name in dict.fromkeys(names):
        label = tx.session.scalar(
            select(Label).where(Label.repository_id == repository.id, Label.name == name)
        )
        if label is None:
            label = Label(repository_id=repository.id, name=name)
            tx.session.add(label)
        found.append(label)
    tx.session.flush()
    return found


def set_labels(tx: Transaction, row: Issue, names: list[str]) -> None:
    """Make the issue's labels exactly these, with an event for each that came or went."""
    wanted = ensure_labels(tx, row.repository, names)
    before = list(row.labels)
    row.labels = wanted
    row.updated_at = stamp()
    tx.session.flush()
    for label in wanted:
        if label not in before:
            announce(tx, row, "labeled", label=payloads.label(tx, row.repository, label))
    for label in before:
        if label not in wanted:
            announce(tx, row, "unlabeled", label=payloads.label(tx, row.repository, label))


def edit_issue(tx: Transaction, row: Issue, *, title: str | None = None, body: str | None = None) -> None:
    """Change title or body. Raises ApiError 422."""
    resource = "PullRequest" if row.pull else "Issue"
    changes: dict[str, dict[str, str | None]] = {}
    if title is not None and title != row.title:
        check_title(resource, title)
        changes["title"] = {"from": row.title}
        row.title = title
    if body is not None and body != row.body:
        check_body(resource, body)
        changes["body"] = {"from": row.body or ""}
        row.body = body
    if not changes:
        return
    row.updated_at = stamp()
    tx.session.flush()
    announce(tx, row, "edited", changes=changes)


def close_issue(tx: Transaction, row: Issue, reason: str | None = None) -> None:
    """Close an issue that is open. Pull requests close through `pulls`."""
    if row.state == "closed":
        return
    row.state, row.state_reason = "closed", reason or "completed"
    row.closed_at = row.updated_at = stamp()
    row.closed_by = tx.actor.signed_in()
    note(tx, row, "closed")
    tx.session.flush()
    announce(tx, row, "closed")


def reopen_issue(tx: Transaction, row: Issue) -> None:
    """Open a closed issue again."""
    if row.state == "open":
        return
    row.state, row.state_reason, row.closed_at, row.closed_by = "open", "reopened", None, None
    row.updated_at = stamp()
    note(tx, row, "reopened")
    tx.session.flush()
    announce(tx, row, "reopened")


def _send_comment(tx: Transaction, row: Comment, action: str, **extra: object) -> None:
    form = events.webhook_form(tx)
    body = {"issue": payloads.issue(form, row.issue), "comment": payloads.comment(form, row), **extra}
    events.emit(tx, "issue_comment", action, row.issue.repository, body)


def create_comment(tx: Transaction, issue: Issue, body: str) -> Comment:
    """Comment on an issue or pull request. Raises ApiError 422."""
    if not body.strip():
        raise invalid("IssueComment", "body", "missing_field")
    check_body("IssueComment", body)
    author = tx.actor.signed_in()
    row = Comment(
        issue_id=issue.id, author_id=author.id, app_id=tx.actor.app.id if tx.actor.app else None, body=body
    )
    tx.session.add(row)
    issue.updated_at = stamp()
    tx.session.flush()
    _send_comment(tx, row, "created")
    return row


def edit_comment(tx: Transaction, row: Comment, body: str) -> None:
    """Change a comment. Raises ApiError 422."""
    check_body("IssueComment", body)
    before = row.body
    row.body = body
    row.updated_at = row.issue.updated_at = stamp()
    tx.session.flush()
    if before != body:
        _send_comment(tx, row, "edited", changes={"body": {"from": before}})


def delete_comment(tx: Transaction, row: Comment) -> None:
    """Delete a comment and its reactions."""
    _send_comment(tx, row, "deleted")
    tx.session.execute(
        delete(Reaction).where(Reaction.subject_type == "comment", Reaction.subject_id == row.id)
    )
    tx.session.delete(row)
    tx.session.flush()


def react(tx: Transaction, subject_type: str, subject_id: int, content: str) -> tuple[Reaction, bool]:
    """Add a reaction; the flag says whether it is new. No webhook tells of it: GitHub has none for reactions."""
    if content not in payloads.REACTIONS:
        raise invalid("Reaction", "content", "invalid")
    account = tx.actor.signed_in()
    query = select(Reaction).where(
        Reaction.subject_type == subject_type,
        Reaction.subject_id == subject_id,
        Reaction.account_id == account.id,
        Reaction.content == content,
    )
    found = tx.session.scalar(query)
    if found is not None:
        return found, False
    row = Reaction(subject_type=subject_type, subject_id=subject_id, account_id=account.id, content=content)
    tx.session.add(row)
    tx.session.flush()
    return row, True
