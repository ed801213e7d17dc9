"""One event for what issues and pull requests have in common: it goes out under the name of what it is about."""

from app.localhub import events
from app.localhub.payloads import issues, pulls
from app.localhub.tables import Issue, TimelineEvent
from app.localhub.transaction import Transaction


def announce(tx: Transaction, row: Issue, action: str, **extra: object) -> None:
    """Send `pull_request` for a pull request, else `issues`, with that action."""
    form = events.webhook_form(tx)
    if row.pull is None:
        events.emit(tx, "issues", action, row.repository, {"issue": issues.issue(form, row), **extra})
        return
    body = {"number": row.number, "pull_request": pulls.pull_request(form, row), **extra}
    events.emit(tx, "pull_request", action, row.repository, body)


def note(tx: Transaction, row: Issue, kind: str, detail: str = "") -> None:
    """Add to the timeline that the page of the issue or pull request shows."""
    actor = tx.actor.signed_in()
    tx.session.add(TimelineEvent(issue_id=row.id, account_id=actor.id, kind=kind, detail=detail))
