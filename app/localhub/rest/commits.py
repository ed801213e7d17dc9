"""Routes of commits and comparisons."""

from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from app.localhub.errors import ApiError, not_found
from app.localhub.git_objects import CommitRecord
from app.localhub.payloads import git_data as payloads
from app.localhub.rest.dependencies import Paged, Read
from app.localhub.tables import Repository
from app.localhub.transaction import Transaction

router = APIRouter(prefix="/repos/{owner}/{repo}")
COMPARE_COMMITS_SHOWN = 250
COMPARE_FILES_SHOWN = 300


def commit_named(tx: Transaction, repository: Repository, name: str) -> CommitRecord:
    """The commit of a sha, branch or tag. Raises ApiError 422 as GitHub does."""
    sha = tx.git.resolve(repository.id, name)
    record = tx.git.commit(repository.id, sha) if sha else None
    if record is None:
        raise ApiError(422, f"No commit found for SHA: {name}")
    return record


@router.get("/commits")
def list_commits(
    tx: Read, owner: str, repo: str, *, page: Paged, sha: str | None = None, path: str | None = None
) -> JSONResponse:
    repository = tx.repository(owner, repo, "contents")
    tip = tx.git.resolve(repository.id, sha or repository.default_branch)
    if tip is None:
        raise not_found()
    records = tx.git.commits(repository.id, tip, limit=1000, path=path)
    return page.of(records, lambda record: payloads.commit(tx, repository, record))


def _with_files(tx: Transaction, repository: Repository, record: CommitRecord) -> dict[str, Any]:
    changes = tx.git.changes(repository.id, record.parents[0], record.sha) if record.parents else []
    additions, deletions = sum(item.additions for item in changes), sum(item.deletions for item in changes)
    return payloads.commit(tx, repository, record) | {
        "stats": {"total": additions + deletions, "additions": additions, "deletions": deletions},
        "files": [payloads.file_change(tx, repository, item, record.sha) for item in changes],
    }


@router.get("/compare/{basehead:path}")
def compare(tx: Read, owner: str, repo: str, basehead: str) -> dict[str, Any]:
    repository = tx.repository(owner, repo, "contents")
    base_name, separator, head_name = basehead.partition("...")
    base_sha = tx.git.resolve(repository.id, base_name.rpartition(":")[2])
    head_sha = tx.git.resolve(repository.id, head_name.rpartition(":")[2]) if separator else None
    start = tx.git.merge_base(repository.id, base_sha, head_sha) if base_sha and head_sha else None
    if base_sha is None or head_sha is None or start is None:
        raise not_found()
    base, common = tx.git.commit(repository.id, base_sha), tx.git.commit(repository.id, start)
    assert base is not None  # noqa: S101 - both were resolved to commits above
    assert common is not None  # noqa: S101
    ahead, behind = (
        tx.git.count(repository.id, base_sha, head_sha),
        tx.git.count(repository.id, head_sha, base_sha),
    )
    status = "diverged" if ahead and behind else "ahead" if ahead else "behind" if behind else "identical"
    commits = tx.git.commits(repository.id, head_sha, base_sha, COMPARE_COMMITS_SHOWN)[::-1]
    changes = tx.git.changes(repository.id, start, head_sha)[:COMPARE_FILES_SHOWN]
    page = tx.links.page(f"{repository.full_name}/compare/{basehead}")
    return {
        "url": tx.links.api(f"repos/{repository.full_name}/compare/{basehead}"),
        "html_url": page,
        "permalink_url": page,
        "diff_url": f"{page}.diff",
        "patch_url": f"{page}.patch",
        "base_commit": payloads.commit(tx, repository, base),
        "merge_base_commit": payloads.commit(tx, repository, common),
        "status": status,
        "ahead_by": ahead,
        "behind_by": behind,
        "total_commits": ahead,
        "commits": [payloads.commit(tx, repository, record) for record in commits],
        "files": [payloads.file_change(tx, repository, change, head_sha) for change in changes],
    }


@router.get("/commits/{name:path}")
def get_commit(tx: Read, owner: str, repo: str, name: str) -> dict[str, Any]:
    repository = tx.repository(owner, repo, "contents")
    return _with_files(tx, repository, commit_named(tx, repository, name))
