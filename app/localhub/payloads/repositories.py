"""Repositories as JSON."""

from typing import Any

from sqlalchemy import func, select

from app.localhub.actor import ROLE_LEVEL, role_of
from app.localhub.links import node_id
from app.localhub.payloads.accounts import user
from app.localhub.tables import Issue, Repository
from app.localhub.transaction import Transaction

# Address templates that every form of a repository carries, relative to its API address.
_TEMPLATES = {
    "archive_url": "{archive_format}{/ref}",
    "assignees_url": "assignees{/user}",
    "blobs_url": "git/blobs{/sha}",
    "branches_url": "branches{/branch}",
    "collaborators_url": "collaborators{/collaborator}",
    "comments_url": "comments{/number}",
    "commits_url": "commits{/sha}",
    "compare_url": "compare/{base}...{head}",
    "contents_url": "contents/{+path}",
    "contributors_url": "contributors",
    "deployments_url": "deployments",
    "downloads_url": "downloads",
    "events_url": "events",
    "forks_url": "forks",
    "git_commits_url": "git/commits{/sha}",
    "git_refs_url": "git/refs{/sha}",
    "git_tags_url": "git/tags{/sha}",
    "hooks_url": "hooks",
    "issue_comment_url": "issues/comments{/number}",
    "issue_events_url": "issues/events{/number}",
    "issues_url": "issues{/number}",
    "keys_url": "keys{/key_id}",
    "labels_url": "labels{/name}",
    "languages_url": "languages",
    "merges_url": "merges",
    "milestones_url": "milestones{/number}",
    "notifications_url": "notifications{?since,all,participating}",
    "pulls_url": "pulls{/number}",
    "releases_url": "releases{/id}",
    "stargazers_url": "stargazers",
    "statuses_url": "statuses/{sha}",
    "subscribers_url": "subscribers",
    "subscription_url": "subscription",
    "tags_url": "tags",
    "teams_url": "teams",
    "trees_url": "git/trees{/sha}",
}


def api_path(repository: Repository) -> str:
    """The repository's REST path."""
    return f"repos/{repository.full_name}"


def minimal(tx: Transaction, repository: Repository) -> dict[str, Any]:
    """`minimal-repository`."""
    api = tx.links.api(api_path(repository))
    templates = {key: f"{api}/{rest}" for key, rest in _TEMPLATES.items()}
    return {
        "id": repository.id,
        "node_id": node_id("repository", repository.id),
        "name": repository.name,
        "full_name": repository.full_name,
        "private": repository.private,
        "owner": user(tx, repository.owner),
        "html_url": tx.links.page(repository.full_name),
        "description": repository.description,
        "fork": False,
        "url": api,
        **templates,
    }


def repository(tx: Transaction, row: Repository) -> dict[str, Any]:
    """`repository` (the form in lists, pull requests and webhooks)."""
    open_issues = tx.session.scalar(
        select(func.count()).select_from(Issue).where(Issue.repository_id == row.id, Issue.state == "open")
    )
    git_path = f"{row.full_name}.git"
    full = minimal(tx, row) | {
        "git_url": tx.links.page(git_path).replace("http://", "git://", 1),
        "ssh_url": f"git@localhost:{git_path}",
        "clone_url": tx.links.page(git_path),
        "svn_url": tx.links.page(row.full_name),
        "mirror_url": None,
        "homepage": None,
        "size": 0,
        "stargazers_count": 0,
        "watchers_count": 0,
        "language": "Python",
        "has_issues": True,
        "has_projects": False,
        "has_wiki": False,
        "has_pages": False,
        "has_discussions": False,
        "forks_count": 0,
        "archived": False,
        "disabled": False,
        "license": None,
        "allow_forking": True,
        "is_template": False,
        "web_commit_signoff_required": False,
        "topics": [],
        "visibility": "private" if row.private else "public",
        "forks": 0,
        "open_issues_count": open_issues,
        "open_issues": open_issues,
        "watchers": 0,
        "default_branch": row.default_branch,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
        "pushed_at": row.pushed_at,
    }
    if tx.legacy:
        full["has_downloads"] = True
    return full


def full_repository(tx: Transaction, row: Repository) -> dict[str, Any]:
    """`full-repository`: what `GET /repos/{owner}/{repo}` gives."""
    full = repository(tx, row) | {
        "network_count": 0,
        "subscribers_count": 0,
        "allow_rebase_merge": True,
        "allow_squash_merge": True,
        "allow_merge_commit": True,
        "allow_auto_merge": False,
        "delete_branch_on_merge": False,
    }
    if row.owner.type == "Organization":
        full["organization"] = user(tx, row.owner)
    if tx.actor.kind == "user" and tx.actor.account is not None:
        full["permissions"] = permission_flags(role_of(tx.session, row, tx.actor.account) or "read")
    return full


def permission_flags(role: str) -> dict[str, bool]:
    """A role as the five booleans that GitHub lists."""
    order = ("read", "triage", "write", "maintain", "admin")
    rank = order.index(role)
    return {
        "admin": rank >= 4,
        "maintain": rank >= 3,
        "push": ROLE_LEVEL[role] in ("write", "admin"),
        "triage": rank >= 1,
        "pull": True,
    }


def contained(tx: Transaction, row: Repository) -> dict[str, Any]:
    """The short form below `pull_requests[]` of checks and runs."""
    return {"id": row.id, "url": tx.links.api(api_path(row)), "name": row.name}


def brief(row: Repository) -> dict[str, Any]:
    """The short form in installation webhooks."""
    return {
        "id": row.id,
        "node_id": node_id("repository", row.id),
        "name": row.name,
        "full_name": row.full_name,
        "private": row.private,
    }
