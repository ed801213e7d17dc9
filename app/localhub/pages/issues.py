"""Pages of issues: the list, one issue, a new one; commenting and reacting on issues and pull requests."""

from typing import Annotated

from fastapi import APIRouter, Form, Request
from fastapi.responses import Response
from sqlalchemy import func, select

from app.localhub.changes import issues as changes
from app.localhub.changes import pulls
from app.localhub.errors import not_found
from app.localhub.pages.conversation import EMOJI, entries
from app.localhub.pages.viewer import (
    CheckedViewer,
    ViewerHere,
    back,
    may_write,
    page_transaction,
    render,
)
from app.localhub.payloads.issues import comment_count, issue_page, reactions_of
from app.localhub.rest.issues import comment_row, may_edit
from app.localhub.tables import Issue, PullRequest, Repository
from app.localhub.transaction import Transaction

router = APIRouter()


def open_counts(tx: Transaction, repository: Repository) -> dict[str, int]:
    """Open issues and pull requests, for the tabs."""
    total = (
        select(func.count())
        .select_from(Issue)
        .where(Issue.repository_id == repository.id, Issue.state == "open")
    )
    pull_total = total.join(PullRequest, PullRequest.issue_id == Issue.id)
    pull_count = tx.session.scalar(pull_total) or 0
    return {"issues": (tx.session.scalar(total) or 0) - pull_count, "pulls": pull_count}


def _list(request: Request, viewer: ViewerHere, owner: str, name: str, kind: str, *, state: str) -> Response:
    with page_transaction(request, viewer) as tx:
        repository = tx.repository(owner, name)
        query = select(Issue).where(
            Issue.repository_id == repository.id, Issue.state == ("closed" if state == "closed" else "open")
        )
        rows = [
            row
            for row in tx.session.scalars(query.order_by(Issue.number.desc()))
            if (row.pull is not None) == (kind == "pulls")
        ]
        comments = {row.id: comment_count(tx, row) for row in rows}
        return render(
            request,
            tx,
            viewer,
            "issues.html",
            repository=repository,
            counts=open_counts(tx, repository),
            kind=kind,
            rows=rows,
            comments=comments,
            state=state,
        )


@router.get("/{owner}/{name}/issues")
def issues_page(request: Request, viewer: ViewerHere, owner: str, name: str, state: str = "open") -> Response:
    return _list(request, viewer, owner, name, "issues", state=state)


@router.get("/{owner}/{name}/pulls")
def pulls_page(request: Request, viewer: ViewerHere, owner: str, name: str, state: str = "open") -> Response:
    return _list(request, viewer, owner, name, "pulls", state=state)


@router.get("/{owner}/{name}/issues/new")
def new_issue_page(request: Request, viewer: ViewerHere, owner: str, name: str) -> Response:
    with page_transaction(request, viewer) as tx:
        repository = tx.repository(owner, name)
        return render(
            request, tx, viewer, "new_issue.html", repository=repository, counts=open_counts(tx, repository)
        )


@router.post("/{owner}/{name}/issues")
def open_issue(
    request: Request,
    viewer: CheckedViewer,
    owner: str,
    name: str,
    *,
    title: Annotated[str, Form()] = "",
    body: Annotated[str, Form()] = "",
) -> Response:
    with page_transaction(request, viewer, write=True) as tx:
        repository = tx.repository(owner, name, "issues", write=True)
        row = changes.create_issue(tx, repository, title, body, [])
        target = f"/{issue_page(row)}"
    return back(target)


@router.get("/{owner}/{name}/issues/{number}")
def issue_page_view(request: Request, viewer: ViewerHere, owner: str, name: str, number: int) -> Response:
    with page_transaction(request, viewer) as tx:
        repository = tx.repository(owner, name)
        issue = tx.issue(repository, number)
        if issue.pull is not None:
            return back(f"/{issue_page(issue)}")
        return render(
            request,
            tx,
            viewer,
            "issue.html",
            repository=repository,
            counts=open_counts(tx, repository),
            issue=issue,
            entries=entries(tx, issue),
            emoji=EMOJI,
            may_close=may_write(tx, repository)
            or (tx.actor.account is not None and tx.actor.account.id == issue.author_id),
        )


@router.post("/{owner}/{name}/issues/{number}/comments")
def post_comment(
    request: Request,
    viewer: CheckedViewer,
    owner: str,
    name: str,
    *,
    number: int,
    body: Annotated[str, Form()] = "",
    then: Annotated[str, Form()] = "",
) -> Response:
    """Comment; `then` may also be `close` or `reopen`."""
    with page_transaction(request, viewer, write=True) as tx:
        repository = tx.repository(owner, name, "issues", write=True)
        issue = tx.issue(repository, number)
        # Browsers send CRLF in form fields, and GitHub passes it on to webhooks as it came.
        if body.strip() or not then:
            changes.create_comment(tx, issue, body)
        if then:
            may_edit(tx, repository, issue.author_id)
        if then == "close":
            if issue.pull:
                pulls.close_pull(tx, issue)
            else:
                changes.close_issue(tx, issue)
        elif then == "reopen":
            if issue.pull:
                pulls.reopen_pull(tx, issue)
            else:
                changes.reopen_issue(tx, issue)
        target = f"/{issue_page(issue)}"
    return back(f"{target}#new-comment")


@router.post("/{owner}/{name}/reactions/{kind}/{number}")
def toggle_reaction(
    request: Request,
    viewer: CheckedViewer,
    owner: str,
    name: str,
    *,
    kind: str,
    number: int,
    content: Annotated[str, Form()] = "",
) -> Response:
    """Add the viewer's reaction to `issue/NUMBER` or `comment/ID`, or take it back."""
    with page_transaction(request, viewer, write=True) as tx:
        repository = tx.repository(owner, name, "issues", write=True)
        if kind == "issue":
            issue = tx.issue(repository, number)
            subject, anchor = ("issue", issue.id), f"issue-{issue.id}"
        elif kind == "comment":
            comment = comment_row(tx, repository, number)
            issue, subject, anchor = comment.issue, ("comment", comment.id), f"issuecomment-{comment.id}"
        else:
            raise not_found()
        me = tx.actor.signed_in()
        own = [
            row for row in reactions_of(tx, *subject) if row.account_id == me.id and row.content == content
        ]
        if own:
            tx.session.delete(own[0])
        else:
            changes.react(tx, *subject, content)
        target = f"/{issue_page(issue)}#{anchor}"
    return back(target)
