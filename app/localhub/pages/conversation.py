"""What the page of an issue or pull request shows, in the order it happened."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select

from app.localhub.actor import role_of
from app.localhub.payloads.issues import REACTIONS, author_association, reactions_of
from app.localhub.tables import Account, Comment, Issue, Review, TimelineEvent
from app.localhub.transaction import Transaction

EMOJI = {
    "+1": "👍",
    "-1": "👎",
    "laugh": "😄",
    "hooray": "🎉",
    "confused": "😕",
    "heart": "❤️",
    "rocket": "🚀",
    "eyes": "👀",
}


@dataclass(frozen=True)
class Pill:
    """A reaction with its count; `mine`: the viewer's own is among them."""

    content: str
    emoji: str
    count: int
    mine: bool
    who: str


@dataclass(frozen=True)
class Entry:
    """One thing on the page: `kind` is comment, review or event."""

    kind: str
    moment: str
    author: Account
    body: str = ""
    badge: str = ""
    anchor: str = ""
    subject: str = ""  # where a reaction goes: `issue/N` or `comment/N`; empty: none possible
    edited: bool = False
    hidden: str | None = None
    state: str = ""
    detail: str = ""
    pills: list[Pill] = field(default_factory=list)


def pills(tx: Transaction, subject_type: str, subject_id: int) -> list[Pill]:
    """The reactions of a comment or issue, as buttons."""
    by_content: dict[str, list[Account]] = defaultdict(list)
    for row in reactions_of(tx, subject_type, subject_id):
        by_content[row.content].append(row.account)
    me = tx.actor.account
    return [
        Pill(
            content,
            EMOJI[content],
            len(accounts),
            me is not None and any(account.id == me.id for account in accounts),
            ", ".join(account.login for account in accounts),
        )
        for content in REACTIONS
        if (accounts := by_content.get(content))
    ]


def _badge(tx: Transaction, issue: Issue, author: Account) -> str:
    if author.type == "Bot":
        return "bot"
    role = role_of(tx.session, issue.repository, author)
    if role in ("write", "maintain", "admin"):
        return "Maintainer"
    return author_association(tx, issue.repository, author).capitalize() if role else ""


def entries(tx: Transaction, issue: Issue) -> list[Entry]:
    """The body first, then comments, reviews and events as they came."""
    first = Entry(
        kind="comment",
        moment=issue.created_at,
        author=issue.author,
        body=issue.body or "*No description provided.*",
        badge=_badge(tx, issue, issue.author),
        anchor=f"issue-{issue.id}",
        subject=f"issue/{issue.number}",
        pills=pills(tx, "issue", issue.id),
    )
    later: list[tuple[Any, Entry]] = []
    for row in tx.session.scalars(select(Comment).where(Comment.issue_id == issue.id)):
        entry = Entry(
            kind="comment",
            moment=row.created_at,
            author=row.author,
            body=row.body,
            badge=_badge(tx, issue, row.author),
            anchor=f"issuecomment-{row.id}",
            subject=f"comment/{row.id}",
            edited=row.updated_at != row.created_at,
            hidden=row.minimized_reason,
            pills=pills(tx, "comment", row.id),
        )
        later.append(((row.created_at, 0, row.id), entry))
    for review in tx.session.scalars(select(Review).where(Review.issue_id == issue.id)):
        entry = Entry(
            kind="review",
            moment=review.submitted_at,
            author=review.author,
            body=review.body,
            state=review.state,
            anchor=f"pullrequestreview-{review.id}",
        )
        later.append(((review.submitted_at, 1, review.id), entry))
    for event in tx.session.scalars(select(TimelineEvent).where(TimelineEvent.issue_id == issue.id)):
        entry = Entry(
            kind="event", moment=event.created_at, author=event.account, state=event.kind, detail=event.detail
        )
        later.append(((event.created_at, 2, event.id), entry))
    return [first, *(entry for _, entry in sorted(later, key=lambda item: item[0]))]
