"""What follows from refs that moved, whether by git, by the git data API, by contents or by a merge."""

from typing import Any

from app.localhub import events
from app.localhub.changes.checks import request_suites
from app.localhub.changes.pulls import base_moved, close_pull, find_pulls, head_moved
from app.localhub.clock import stamp
from app.localhub.git_objects import NO_COMMIT, CommitRecord
from app.localhub.payloads.git_data import account_by_email, simple_commit
from app.localhub.tables import Repository
from app.localhub.transaction import Transaction

PUSH_COMMITS_SHOWN = 2048


def _push_commit(tx: Transaction, repository: Repository, record: CommitRecord) -> dict[str, Any]:
    shown = simple_commit(record)
    for role, email in (("author", record.author.email), ("committer", record.committer.email)):
        account = account_by_email(tx, email)
        if account is not None:
            shown[role] = {**shown[role], "username": account.login}
    before = record.parents[0] if record.parents else None
    changes = tx.git.changes(repository.id, before, record.sha) if before else []
    return shown | {
        "distinct": True,
        "url": tx.links.page(f"{repository.full_name}/commit/{record.sha}"),
        "added": [change.path for change in changes if change.status == "added"],
        "removed": [change.path for change in changes if change.status == "removed"],
        "modified": [change.path for change in changes if change.status in ("modified", "renamed")],
    }


def _send_push(tx: Transaction, repository: Repository, ref: str, before: str, after: str) -> None:
    pusher = tx.actor.signed_in()
    commits: list[CommitRecord] = []
    if after != NO_COMMIT:
        start = before
        if before == NO_COMMIT:
            start = tx.git.ref(repository.id, f"refs/heads/{repository.default_branch}") or NO_COMMIT
        commits = tx.git.commits(repository.id, after, start, PUSH_COMMITS_SHOWN)[::-1]
    forced = NO_COMMIT not in (before, after) and tx.git.merge_base(repository.id, before, after) != before
    shown = [_push_commit(tx, repository, record) for record in commits]
    head = tx.git.commit(repository.id, after)
    page = tx.links.page(f"{repository.full_name}/compare")
    body = {
        "ref": ref,
        "before": before,
        "after": after,
        "created": before == NO_COMMIT,
        "deleted": after == NO_COMMIT,
        "forced": forced,
        "base_ref": None,
        "compare": f"{page}/{before[:12]}...{after[:12]}",
        "commits": shown,
        "head_commit": _push_commit(tx, repository, head) if head else None,
        "pusher": {"name": pusher.login, "email": pusher.email},
        "repository": events.push_repository(tx, repository),
    }
    events.emit(tx, "push", None, repository, body)


def refs_changed(tx: Transaction, repository: Repository, moved: dict[str, tuple[str, str]]) -> None:
    """Tell of refs that moved: each maps to its sha before and after (NO_COMMIT: it was or is not there)."""
    for ref, (before, after) in moved.items():
        if before == after or not ref.startswith(("refs/heads/", "refs/tags/")):
            continue
        repository.pushed_at = repository.updated_at = stamp()
        _send_push(tx, repository, ref, before, after)
        branch = ref.removeprefix("refs/heads/")
        if branch == ref:
            continue
        if after == NO_COMMIT:
            for row in find_pulls(tx, repository, head_ref=branch):
                close_pull(tx, row)
            continue
        request_suites(tx, repository, branch, before, after)
        if before != NO_COMMIT:
            head_moved(tx, repository, branch, before, after)
            base_moved(tx, repository, branch, after)
