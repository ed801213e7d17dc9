"""Pull requests: opened, moved by pushes, made ready, reviewed, merged, closed."""

from sqlalchemy import select

from app.localhub import events
from app.localhub.changes.announce import announce, note
from app.localhub.changes.issues import check_body, check_title, new_issue
from app.localhub.clock import stamp
from app.localhub.errors import ApiError, invalid
from app.localhub.payloads import pulls as payloads
from app.localhub.tables import Issue, PullRequest, Repository, Review
from app.localhub.transaction import Transaction

REVIEW_STATES = {"APPROVE": "APPROVED", "REQUEST_CHANGES": "CHANGES_REQUESTED", "COMMENT": "COMMENTED"}


def pull_of(row: Issue) -> PullRequest:
    """The git half of a pull request. Raises ApiError 404 for an issue."""
    if row.pull is None:
        raise ApiError(404, "Not Found")
    return row.pull


def find_pulls(
    tx: Transaction,
    repository: Repository,
    head_ref: str | None = None,
    base_ref: str | None = None,
    state: str = "open",
) -> list[Issue]:
    """Pull requests by branch and state (`all`: any), newest first."""
    query = (
        select(Issue)
        .join(PullRequest, PullRequest.issue_id == Issue.id)
        .where(Issue.repository_id == repository.id)
    )
    if head_ref is not None:
        query = query.where(PullRequest.head_ref == head_ref)
    if base_ref is not None:
        query = query.where(PullRequest.base_ref == base_ref)
    if state != "all":
        query = query.where(Issue.state == state)
    return list(tx.session.scalars(query.order_by(Issue.number.desc())))


def create_pull(
    tx: Transaction,
    repository: Repository,
    *,
    title: str,
    head: str,
    base: str,
    body: str | None,
    draft: bool,
    maintainer_can_modify: bool = True,
) -> Issue:
    """Open a pull request between two branches of the repository. Raises ApiError 422 as GitHub does."""
    check_title("PullRequest", title)
    check_body("PullRequest", body)
    owner, separator, branch = head.partition(":")
    head_ref = branch if separator and owner.lower() == repository.owner.login.lower() else head
    head_sha = tx.git.ref(repository.id, f"refs/heads/{head_ref}")
    base_sha = tx.git.ref(repository.id, f"refs/heads/{base}")
    for name, sha in (("head", head_sha), ("base", base_sha)):
        if sha is None:
            raise invalid("PullRequest", name, "invalid")
    assert head_sha is not None  # noqa: S101 - checked in the loop above
    assert base_sha is not None  # noqa: S101
    if find_pulls(tx, repository, head_ref=head_ref, base_ref=base):
        message = f"A pull request already exists for {repository.owner.login}:{head_ref}."
        raise ApiError(
            422, "Validation Failed", [{"resource": "PullRequest", "code": "custom", "message": message}]
        )
    if tx.git.count(repository.id, base_sha, head_sha) == 0:
        message = f"No commits between {base} and {head_ref}"
        raise ApiError(
            422, "Validation Failed", [{"resource": "PullRequest", "code": "custom", "message": message}]
        )
    row = new_issue(tx, repository, title, body, [])
    row.pull = PullRequest(
        issue_id=row.id,
        head_ref=head_ref,
        head_sha=head_sha,
        base_ref=base,
        base_sha=base_sha,
        draft=draft,
        maintainer_can_modify=maintainer_can_modify,
    )
    tx.session.flush()
    tx.git.set_ref(repository.id, f"refs/pull/{row.number}/head", head_sha)
    announce(tx, row, "opened")
    return row


def head_moved(tx: Transaction, repository: Repository, branch: str, before: str, after: str) -> None:
    """Bring the open pull requests of a pushed branch up to date."""
    for row in find_pulls(tx, repository, head_ref=branch):
        pull = pull_of(row)
        pull.head_sha = after
        row.updated_at = stamp()
        note(tx, row, "pushed", f"{before} {after}")
        tx.session.flush()
        tx.git.set_ref(repository.id, f"refs/pull/{row.number}/head", after)
        announce(tx, row, "synchronize", before=before, after=after)


def base_moved(tx: Transaction, repository: Repository, branch: str, after: str) -> None:
    """Record the new tip of a base branch on the open pull requests into it."""
    for row in find_pulls(tx, repository, base_ref=branch):
        pull_of(row).base_sha = after


def close_pull(tx: Transaction, row: Issue) -> None:
    """Close without merging."""
    if row.state == "closed":
        return
    row.state = "closed"
    row.closed_at = row.updated_at = stamp()
    row.closed_by = tx.actor.signed_in()
    note(tx, row, "closed")
    tx.session.flush()
    announce(tx, row, "closed")


def reopen_pull(tx: Transaction, row: Issue) -> None:
    """Open a closed pull request again. Raises ApiError 422 when it was merged or its branch is gone."""
    pull = pull_of(row)
    if row.state == "open":
        return
    head_sha = tx.git.ref(row.repository_id, f"refs/heads/{pull.head_ref}")
    if pull.merged_at is not None or head_sha is None:
        raise invalid(
            "PullRequest", "state", "custom", "state cannot be changed. The pull request cannot be reopened."
        )
    pull.head_sha = head_sha
    row.state, row.closed_at, row.closed_by = "open", None, None
    row.updated_at = stamp()
    note(tx, row, "reopened")
    tx.session.flush()
    announce(tx, row, "reopened")


def set_draft(tx: Transaction, row: Issue, draft: bool) -> None:
    """Make a draft ready for review, or the reverse."""
    pull = pull_of(row)
    if pull.draft == draft:
        return
    pull.draft = draft
    row.updated_at = stamp()
    note(tx, row, "draft" if draft else "ready")
    tx.session.flush()
    announce(tx, row, "converted_to_draft" if draft else "ready_for_review")


def create_review(tx: Transaction, row: Issue, event: str, body: str) -> Review:
    """Submit a review: APPROVE, REQUEST_CHANGES or COMMENT. Raises ApiError 422."""
    author = tx.actor.signed_in()
    if event not in REVIEW_STATES:
        raise invalid("PullRequestReview", "event", "invalid")
    if event == "APPROVE" and author.id == row.author_id:
        raise ApiError(422, "Unprocessable Entity", ["Review Can not approve your own pull request"])
    if event != "APPROVE" and not body.strip():
        raise invalid("PullRequestReview", "body", "missing_field")
    check_body("PullRequestReview", body)
    review = Review(
        issue_id=row.id,
        author_id=author.id,
        body=body,
        state=REVIEW_STATES[event],
        commit_id=pull_of(row).head_sha,
    )
    tx.session.add(review)
    row.updated_at = stamp()
    tx.session.flush()
    form = events.webhook_form(tx)
    # The webhook writes the state in lower case, the API in capitals.
    shown = payloads.review(tx, review) | {"state": review.state.lower(), "body": review.body or None}
    body_json = {"review": shown, "pull_request": payloads.pull_simple(form, row)}
    events.emit(tx, "pull_request_review", "submitted", row.repository, body_json)
    return review
