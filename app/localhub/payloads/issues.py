"""Issues, comments, reactions and labels as JSON."""

from collections import Counter
from typing import Any
from urllib.parse import quote

from sqlalchemy import func, select

from app.localhub.actor import role_of
from app.localhub.links import node_id
from app.localhub.payloads.accounts import integration, user
from app.localhub.payloads.repositories import api_path
from app.localhub.tables import Account, Comment, Issue, Label, Reaction, Repository
from app.localhub.transaction import Transaction

REACTIONS = ("+1", "-1", "laugh", "hooray", "confused", "heart", "rocket", "eyes")


def author_association(tx: Transaction, repository: Repository, account: Account) -> str:
    """How the author stands to the repository.

    As on GitHub it is computed without a viewer and is no ground for a permission.
    """
    if account.id == repository.owner_id:
        return "OWNER"
    if account.type == "Bot":
        return "NONE"
    return "COLLABORATOR" if role_of(tx.session, repository, account) else "NONE"


def reactions_of(tx: Transaction, subject_type: str, subject_id: int) -> list[Reaction]:
    """The reactions of an issue or comment, oldest first."""
    query = select(Reaction).where(Reaction.subject_type == subject_type, Reaction.subject_id == subject_id)
    return list(tx.session.scalars(query.order_by(Reaction.id)))


def _rollup(tx: Transaction, subject_type: str, subject_id: int, address: str) -> dict[str, Any]:
    counts = Counter(reaction.content for reaction in reactions_of(tx, subject_type, subject_id))
    return {
        "url": f"{address}/reactions",
        "total_count": counts.total(),
        **{content: counts[content] for content in REACTIONS},
    }


def label(tx: Transaction, repository: Repository, row: Label) -> dict[str, Any]:
    """`label`."""
    return {
        "id": row.id,
        "node_id": node_id("label", row.id),
        "url": tx.links.api(f"{api_path(repository)}/labels/{quote(row.name, safe='')}"),
        "name": row.name,
        "color": row.color,
        "default": False,
        "description": row.description,
        "archived_at": None,
        "archived_by": None,
    }


def comment_count(tx: Transaction, issue: Issue) -> int:
    """How many comments an issue has."""
    return (
        tx.session.scalar(select(func.count()).select_from(Comment).where(Comment.issue_id == issue.id)) or 0
    )


def issue_page(issue: Issue) -> str:
    """The path of the page of an issue or pull request."""
    return f"{issue.repository.full_name}/{'pull' if issue.pull else 'issues'}/{issue.number}"


def issue(tx: Transaction, row: Issue) -> dict[str, Any]:
    """`issue`; a pull request has the same form with `pull_request` in it."""
    api = tx.links.api(f"{api_path(row.repository)}/issues/{row.number}")
    page = tx.links.page(issue_page(row))
    found: dict[str, Any] = {
        "url": api,
        "repository_url": tx.links.api(api_path(row.repository)),
        "labels_url": f"{api}/labels{{/name}}",
        "comments_url": f"{api}/comments",
        "events_url": f"{api}/events",
        "html_url": page,
        "id": row.id,
        "node_id": node_id("pull" if row.pull else "issue", row.id),
        "number": row.number,
        "title": row.title,
        "user": user(tx, row.author),
        "labels": [label(tx, row.repository, item) for item in row.labels],
        "state": row.state,
        "locked": row.locked,
        "assignees": [],
        "milestone": None,
        "comments": comment_count(tx, row),
        "created_at": row.created_at,
        "updated_at": row.updated_at,
        "closed_at": row.closed_at,
        "author_association": author_association(tx, row.repository, row.author),
        "active_lock_reason": None,
        "body": row.body,
        "closed_by": user(tx, row.closed_by) if row.closed_by else None,
        "reactions": _rollup(tx, "issue", row.id, api),
        "timeline_url": f"{api}/timeline",
        "performed_via_github_app": integration(tx, row.app) if row.app else None,
        "state_reason": row.state_reason,
    }
    if tx.legacy:
        found["assignee"] = None
    if row.pull:
        found["draft"] = row.pull.draft
        found["pull_request"] = {
            "url": tx.links.api(f"{api_path(row.repository)}/pulls/{row.number}"),
            "html_url": page,
            "diff_url": f"{page}.diff",
            "patch_url": f"{page}.patch",
            "merged_at": row.pull.merged_at,
        }
    return found


def comment(tx: Transaction, row: Comment) -> dict[str, Any]:
    """`issue-comment`."""
    repository = row.issue.repository
    api = tx.links.api(f"{api_path(repository)}/issues/comments/{row.id}")
    return {
        "url": api,
        "html_url": tx.links.page(f"{issue_page(row.issue)}#issuecomment-{row.id}"),
        "issue_url": tx.links.api(f"{api_path(repository)}/issues/{row.issue.number}"),
        "id": row.id,
        "node_id": node_id("comment", row.id),
        "user": user(tx, row.author),
        "created_at": row.created_at,
        "updated_at": row.updated_at,
        "body": row.body,
        "author_association": author_association(tx, repository, row.author),
        "reactions": _rollup(tx, "comment", row.id, api),
        "performed_via_github_app": integration(tx, row.app) if row.app else None,
    }


def reaction(tx: Transaction, row: Reaction) -> dict[str, Any]:
    """`reaction`."""
    return {
        "id": row.id,
        "node_id": node_id("reaction", row.id),
        "user": user(tx, row.account),
        "content": row.content,
        "created_at": row.created_at,
    }
