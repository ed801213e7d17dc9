"""Pull requests and reviews as JSON."""

from typing import Any

from sqlalchemy import select

from app.localhub.links import node_id
from app.localhub.payloads import issues
from app.localhub.payloads.accounts import user
from app.localhub.payloads.repositories import api_path, contained, repository
from app.localhub.tables import Issue, PullRequest, Repository, Review
from app.localhub.transaction import Transaction


def _pull(row: Issue) -> PullRequest:
    if row.pull is None:
        raise ValueError(f"issue {row.number} is no pull request")
    return row.pull


def _side(tx: Transaction, row: Issue, ref: str, sha: str) -> dict[str, Any]:
    owner = row.repository.owner
    return {
        "label": f"{owner.login}:{ref}",
        "ref": ref,
        "sha": sha,
        "user": user(tx, owner),
        "repo": repository(tx, row.repository),
    }


def pull_simple(tx: Transaction, row: Issue) -> dict[str, Any]:
    """`pull-request-simple`: the form in lists."""
    pull = _pull(row)
    api = tx.links.api(f"{api_path(row.repository)}/pulls/{row.number}")
    issue_api = tx.links.api(f"{api_path(row.repository)}/issues/{row.number}")
    statuses = tx.links.api(f"{api_path(row.repository)}/statuses/{pull.head_sha}")
    page = tx.links.page(issues.issue_page(row))
    found: dict[str, Any] = {
        "url": api,
        "id": pull.id,
        "node_id": node_id("pull", row.id),
        "html_url": page,
        "diff_url": f"{page}.diff",
        "patch_url": f"{page}.patch",
        "issue_url": issue_api,
        "number": row.number,
        "state": row.state,
        "locked": row.locked,
        "title": row.title,
        "user": user(tx, row.author),
        "body": row.body,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
        "closed_at": row.closed_at,
        "merged_at": pull.merged_at,
        "assignees": [],
        "requested_reviewers": [],
        "requested_teams": [],
        "labels": [issues.label(tx, row.repository, item) for item in row.labels],
        "milestone": None,
        "draft": pull.draft,
        "commits_url": f"{api}/commits",
        "review_comments_url": f"{api}/comments",
        "review_comment_url": tx.links.api(f"{api_path(row.repository)}/pulls/comments{{/number}}"),
        "comments_url": f"{issue_api}/comments",
        "statuses_url": statuses,
        "head": _side(tx, row, pull.head_ref, pull.head_sha),
        "base": _side(tx, row, pull.base_ref, pull.base_sha),
        "_links": {
            "self": {"href": api},
            "html": {"href": page},
            "issue": {"href": issue_api},
            "comments": {"href": f"{issue_api}/comments"},
            "review_comments": {"href": f"{api}/comments"},
            "review_comment": {"href": tx.links.api(f"{api_path(row.repository)}/pulls/comments{{/number}}")},
            "commits": {"href": f"{api}/commits"},
            "statuses": {"href": statuses},
        },
        "author_association": issues.author_association(tx, row.repository, row.author),
        "auto_merge": None,
        "active_lock_reason": None,
    }
    if tx.legacy:
        found["assignee"] = None
        found["merge_commit_sha"] = pull.merge_commit_sha
    return found


def mergeable(tx: Transaction, row: Issue) -> bool | None:
    """Whether the head merges cleanly; None once the pull request is closed, as GitHub stops computing it."""
    pull = _pull(row)
    if row.state == "closed":
        return None
    base = tx.git.ref(row.repository_id, f"refs/heads/{pull.base_ref}")
    if base is None:
        return False
    return tx.git.merge_tree(row.repository_id, base, pull.head_sha) is not None


def pull_request(tx: Transaction, row: Issue) -> dict[str, Any]:
    """`pull-request`: one pull request, whole."""
    pull = _pull(row)
    clean = mergeable(tx, row)
    state = "unknown" if clean is None else "dirty" if not clean else "draft" if pull.draft else "clean"
    start = tx.git.merge_base(row.repository_id, pull.base_sha, pull.head_sha) or pull.base_sha
    changes = tx.git.changes(row.repository_id, start, pull.head_sha)
    return pull_simple(tx, row) | {
        "merged": pull.merged_at is not None,
        "mergeable": clean,
        "rebaseable": clean,
        "mergeable_state": state,
        "merged_by": user(tx, pull.merged_by) if pull.merged_by else None,
        "comments": issues.comment_count(tx, row),
        "review_comments": 0,
        "maintainer_can_modify": pull.maintainer_can_modify,
        "commits": tx.git.count(row.repository_id, start, pull.head_sha),
        "additions": sum(change.additions for change in changes),
        "deletions": sum(change.deletions for change in changes),
        "changed_files": len(changes),
    }


def review(tx: Transaction, row: Review) -> dict[str, Any]:
    """`pull-request-review`."""
    pull_api = tx.links.api(f"{api_path(row.issue.repository)}/pulls/{row.issue.number}")
    page = tx.links.page(f"{issues.issue_page(row.issue)}#pullrequestreview-{row.id}")
    return {
        "id": row.id,
        "node_id": node_id("review", row.id),
        "user": user(tx, row.author),
        "body": row.body,
        "state": row.state,
        "html_url": page,
        "pull_request_url": pull_api,
        "_links": {"html": {"href": page}, "pull_request": {"href": pull_api}},
        "submitted_at": row.submitted_at,
        "commit_id": row.commit_id,
        "author_association": issues.author_association(tx, row.issue.repository, row.author),
    }


def minimal_pulls(tx: Transaction, row: Repository, head_sha: str) -> list[dict[str, Any]]:
    """`pull-request-minimal` of every open pull request whose head is that commit."""
    query = (
        select(Issue)
        .join(PullRequest, PullRequest.issue_id == Issue.id)
        .where(Issue.repository_id == row.id, Issue.state == "open", PullRequest.head_sha == head_sha)
    )
    found = []
    for item in tx.session.scalars(query):
        pull = _pull(item)
        found.append(
            {
                "url": tx.links.api(f"{api_path(row)}/pulls/{item.number}"),
                "id": pull.id,
                "number": item.number,
                "head": {"ref": pull.head_ref, "sha": pull.head_sha, "repo": contained(tx, row)},
                "base": {"ref": pull.base_ref, "sha": pull.base_sha, "repo": contained(tx, row)},
            }
        )
    return found
