"""Merging a pull request."""

from app.localhub.changes.announce import announce, note
from app.localhub.changes.pulls import pull_of
from app.localhub.changes.pushes import refs_changed
from app.localhub.changes.repositories import signature
from app.localhub.clock import stamp
from app.localhub.errors import ApiError
from app.localhub.tables import Issue
from app.localhub.transaction import Transaction


def merge_pull(
    tx: Transaction,
    row: Issue,
    *,
    method: str = "merge",
    title: str | None = None,
    message: str | None = None,
    expected_head: str | None = None,
) -> str:
    """Merge; returns the sha of the commit made. Raises ApiError 405 (can't be merged) or 409 (head has moved)."""
    pull = pull_of(row)
    if row.state == "closed":
        raise ApiError(
            405,
            "Pull Request is not mergeable"
            if pull.merged_at is None
            else "Pull Request has already been merged",
        )
    if pull.draft:
        raise ApiError(405, "Pull Request is still a draft")
    if expected_head is not None and expected_head != pull.head_sha:
        raise ApiError(409, "Head branch was modified. Review and try the merge again.")
    base = tx.git.ref(row.repository_id, f"refs/heads/{pull.base_ref}")
    tree = tx.git.merge_tree(row.repository_id, base, pull.head_sha) if base else None
    if base is None or tree is None:
        raise ApiError(405, "Pull Request is not mergeable")
    merger = tx.actor.signed_in()
    who = signature(merger)
    owner = row.repository.owner.login
    if method == "squash":
        text, parents = f"{title or row.title} (#{row.number})", [base]
    else:
        text, parents = (
            title or f"Merge pull request #{row.number} from {owner}/{pull.head_ref}",
            [base, pull.head_sha],
        )
    text = f"{text}\n\n{message if message is not None else row.title}\n"
    sha = tx.git.write_commit(row.repository_id, tree, parents, text, author=who, committer=who)
    tx.git.set_ref(row.repository_id, f"refs/heads/{pull.base_ref}", sha, base)
    pull.merged_at = row.closed_at = row.updated_at = stamp()
    pull.merged_by = row.closed_by = merger
    pull.merge_commit_sha = sha
    row.state = "closed"
    note(tx, row, "merged", sha)
    tx.session.flush()
    announce(tx, row, "closed")
    refs_changed(tx, row.repository, {f"refs/heads/{pull.base_ref}": (base, sha)})
    return sha
