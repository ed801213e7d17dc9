"""What each field of the GraphQL schema gives: functions of a row, the way graphql-core calls them."""

from collections.abc import Callable
from typing import Any, TypeAlias

from graphql import GraphQLError, GraphQLResolveInfo
from sqlalchemy import select

from app.localhub.actor import role_of
from app.localhub.changes import issues as changes
from app.localhub.changes import pulls
from app.localhub.errors import ApiError
from app.localhub.links import node_id, parse_node_id
from app.localhub.payloads import repositories as repository_payloads
from app.localhub.payloads.accounts import account_node_id
from app.localhub.payloads.issues import issue_page, reactions_of
from app.localhub.tables import Account, Comment, Issue, Reaction, Repository
from app.localhub.transaction import Transaction

Resolver: TypeAlias = Callable[..., Any]
CONTENT = {
    "+1": "THUMBS_UP",
    "-1": "THUMBS_DOWN",
    "laugh": "LAUGH",
    "hooray": "HOORAY",
    "confused": "CONFUSED",
    "heart": "HEART",
    "rocket": "ROCKET",
    "eyes": "EYES",
}
CONTENT_BY_NAME = {name: content for content, name in CONTENT.items()}


def _tx(info: GraphQLResolveInfo) -> Transaction:
    tx: Transaction = info.context
    return tx


def _failure(kind: str, message: str) -> Exception:
    return GraphQLError(message, extensions={"type": kind})


def _load(tx: Transaction, identity: str, write: bool = False) -> Any:
    """The row of a node id that the caller may see. Raises GraphQLError as GitHub words it."""
    parsed = parse_node_id(identity)
    if parsed is None:
        raise _failure("NOT_FOUND", f"Could not resolve to a node with the global id of '{identity}'")
    kind, number = parsed
    table = {
        "comment": Comment,
        "issue": Issue,
        "pull": Issue,
        "repository": Repository,
        "account": Account,
    }.get(kind)
    row = tx.session.get(table, number) if table is not None else None
    if row is None:
        raise _failure("NOT_FOUND", f"Could not resolve to a node with the global id of '{identity}'")
    if isinstance(row, Account):
        return row
    repository = (
        row.issue.repository
        if isinstance(row, Comment)
        else row.repository
        if isinstance(row, Issue)
        else row
    )
    try:
        tx.repository(repository.owner.login, repository.name, "issues", "pull_requests", write=write)
    except ApiError as error:
        kind = "FORBIDDEN" if error.status == 403 else "NOT_FOUND"
        message = (
            error.message
            if error.status == 403
            else f"Could not resolve to a node with the global id of '{identity}'"
        )
        raise _failure(kind, message) from error
    return row


def type_of(row: Any, *_: Any) -> str:
    if isinstance(row, Issue):
        return "PullRequest" if row.pull else "Issue"
    if isinstance(row, Account):
        return {"User": "User", "Bot": "Bot"}.get(row.type, "Organization")
    return {Comment: "IssueComment", Repository: "Repository", Reaction: "Reaction"}[type(row)]


def _subject(row: Comment | Issue) -> tuple[str, int]:
    return ("comment" if isinstance(row, Comment) else "issue"), row.id


def _connection(
    rows: list[Any], first: int | None = None, last: int | None = None, after: str | None = None
) -> dict[str, Any]:
    if first is None and last is None:
        raise _failure(
            "MISSING_PAGINATION_BOUNDARIES",
            "You must provide a `first` or `last` value to properly paginate the connection.",
        )
    if max(first or 0, last or 0) > 100:
        raise _failure(
            "EXCESSIVE_PAGINATION",
            "Requesting more than 100 records on the connection exceeds the `first` limit of 100 records.",
        )
    start = int(after) if after and after.isdecimal() else 0
    window = rows[start:]
    shown = window[:first] if first is not None else window[-(last or 0) :]
    end = start + len(shown)
    return {
        "nodes": shown,
        "edges": [{"node": row, "cursor": str(index + 1)} for index, row in enumerate(shown, start)],
        "totalCount": len(rows),
        "pageInfo": {
            "hasNextPage": first is not None and end < len(rows),
            "endCursor": str(end) if shown else None,
            "hasPreviousPage": start > 0,
            "startCursor": None,
        },
    }


def _reactions(
    row: Comment | Issue, info: GraphQLResolveInfo, content: str | None = None, **bounds: Any
) -> dict[str, Any]:
    rows = reactions_of(_tx(info), *_subject(row))
    return _connection(
        [item for item in rows if content is None or CONTENT[item.content] == content], **bounds
    )


def _nodes(_root: Any, info: GraphQLResolveInfo, ids: list[str]) -> list[Any]:
    if len(ids) > 100:
        raise _failure(
            "ARGUMENT_LIMIT",
            "You may not provide more than 100 node ids; you provided " + str(len(ids)) + ".",
        )
    found: list[Any] = []
    for identity in ids:
        try:
            found.append(_load(_tx(info), identity))
        except Exception as error:  # noqa: BLE001 - graphql-core reports an exception in a list as that item's error
            found.append(error)
    return found


def _repository(_root: Any, info: GraphQLResolveInfo, owner: str, name: str) -> Repository:
    try:
        return _tx(info).repository(owner, name)
    except ApiError as error:
        raise _failure(
            "NOT_FOUND", f"Could not resolve to a Repository with the name '{owner}/{name}'."
        ) from error


def _viewer_permission(row: Repository, info: GraphQLResolveInfo) -> str | None:
    """A person's role; an App has none."""
    actor = _tx(info).actor
    if actor.kind != "user" or actor.account is None:
        return None
    return (role_of(_tx(info).session, row, actor.account) or "read").upper()


def _issue_of(row: Repository, info: GraphQLResolveInfo, number: int) -> Issue:
    tx = _tx(info)
    try:
        return tx.issue(row, number)
    except ApiError as error:
        raise _failure(
            "NOT_FOUND", f"Could not resolve to an issue or pull request with the number of {number}."
        ) from error


def _pull_requests(
    row: Repository, info: GraphQLResolveInfo, states: list[str] | None = None, **arguments: Any
) -> dict[str, Any]:
    found = pulls.find_pulls(
        _tx(info), row, arguments.get("headRefName"), arguments.get("baseRefName"), state="all"
    )
    return _connection(
        [item for item in found if states is None or _state(item) in states], **_bounds(arguments)
    )


def _comments(row: Issue, info: GraphQLResolveInfo, **bounds: Any) -> dict[str, Any]:
    query = select(Comment).where(Comment.issue_id == row.id).order_by(Comment.id)
    return _connection(list(_tx(info).session.scalars(query)), **bounds)


def _state(row: Issue) -> str:
    if row.pull is not None and row.pull.merged_at is not None:
        return "MERGED"
    return row.state.upper()


def _minimize(_root: Any, info: GraphQLResolveInfo, **arguments: Any) -> dict[str, Any]:
    given = arguments["input"]
    row = _load(_tx(info), given["subjectId"], write=True)
    if not isinstance(row, Comment):
        raise _failure("NOT_FOUND", "Only comments can be minimized.")
    row.minimized_reason = given["classifier"].lower()
    return {"minimizedComment": row, "clientMutationId": given.get("clientMutationId")}


def _unminimize(_root: Any, info: GraphQLResolveInfo, **arguments: Any) -> dict[str, Any]:
    given = arguments["input"]
    row = _load(_tx(info), given["subjectId"], write=True)
    row.minimized_reason = None
    return {"unminimizedComment": row, "clientMutationId": given.get("clientMutationId")}


def _add_reaction(_root: Any, info: GraphQLResolveInfo, **arguments: Any) -> dict[str, Any]:
    given = arguments["input"]
    row = _load(_tx(info), given["subjectId"], write=True)
    made, _ = changes.react(_tx(info), *_subject(row), CONTENT_BY_NAME[given["content"]])
    return {"reaction": made, "subject": row, "clientMutationId": given.get("clientMutationId")}


def _remove_reaction(_root: Any, info: GraphQLResolveInfo, **arguments: Any) -> dict[str, Any]:
    given, tx = arguments["input"], _tx(info)
    row = _load(tx, given["subjectId"], write=True)
    own = tx.actor.signed_in().id
    wanted = CONTENT_BY_NAME[given["content"]]
    found = [
        item for item in reactions_of(tx, *_subject(row)) if item.account_id == own and item.content == wanted
    ]
    if not found:
        raise _failure("NOT_FOUND", "Could not find a reaction of yours with that content.")
    tx.session.delete(found[0])
    tx.session.flush()
    return {"reaction": found[0], "subject": row, "clientMutationId": given.get("clientMutationId")}


def _draft(draft: bool) -> Resolver:
    def resolve(_root: Any, info: GraphQLResolveInfo, **arguments: Any) -> dict[str, Any]:
        given = arguments["input"]
        row = _load(_tx(info), given["pullRequestId"], write=True)
        pulls.set_draft(_tx(info), row, draft)
        return {"pullRequest": row, "clientMutationId": given.get("clientMutationId")}

    return resolve


def _conversation_fields(kind: str) -> dict[str, Resolver]:
    return {
        "id": lambda row, _info: node_id("pull" if row.pull else "issue", row.id),
        "databaseId": lambda row, _info: row.id if kind == "Issue" else row.pull.id,
        "state": lambda row, _info: _state(row),
        "body": lambda row, _info: row.body or "",
        "author": lambda row, _info: row.author,
        "url": lambda row, info: _tx(info).links.page(issue_page(row)),
        "createdAt": lambda row, _info: row.created_at,
        "updatedAt": lambda row, _info: row.updated_at,
        "closedAt": lambda row, _info: row.closed_at,
        "closed": lambda row, _info: row.state == "closed",
        "comments": _comments,
        "reactions": _reactions,
        "repository": lambda row, _info: row.repository,
        "labels": lambda row, _info, **bounds: _connection(list(row.labels), **_bounds(bounds)),
    }


def _bounds(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if name in ("first", "last", "after")}


def _account_fields() -> dict[str, Resolver]:
    return {
        "id": lambda row, _info: account_node_id(row),
        "databaseId": lambda row, _info: row.id,
        # GraphQL names a bot without the suffix that REST gives it.
        "login": lambda row, _info: row.login.removesuffix("[bot]"),
        "url": lambda row, info: _tx(info).links.page(row.login),
        "name": lambda row, _info: row.name,
    }


RESOLVERS: dict[str, dict[str, Resolver]] = {
    "Query": {
        "node": lambda _root, info, id: _load(_tx(info), id),  # noqa: A006 - GitHub's argument
        "nodes": _nodes,
        "repository": _repository,
        "viewer": lambda _root, info: _tx(info).actor.signed_in(),
        "rateLimit": lambda _root, _info: {"cost": 1, "limit": 5000, "remaining": 4999, "used": 1},
    },
    "Mutation": {
        "minimizeComment": _minimize,
        "unminimizeComment": _unminimize,
        "addReaction": _add_reaction,
        "removeReaction": _remove_reaction,
        "markPullRequestReadyForReview": _draft(False),
        "convertPullRequestToDraft": _draft(True),
    },
    "IssueComment": {
        "id": lambda row, _info: node_id("comment", row.id),
        "databaseId": lambda row, _info: row.id,
        "author": lambda row, _info: row.author,
        "url": lambda row, info: f"{_tx(info).links.page(issue_page(row.issue))}#issuecomment-{row.id}",
        "createdAt": lambda row, _info: row.created_at,
        "updatedAt": lambda row, _info: row.updated_at,
        "lastEditedAt": lambda row, _info: row.updated_at if row.updated_at != row.created_at else None,
        "isMinimized": lambda row, _info: row.minimized_reason is not None,
        "minimizedReason": lambda row, _info: row.minimized_reason,
        "reactions": _reactions,
        "issue": lambda row, _info: row.issue,
        "repository": lambda row, _info: row.issue.repository,
    },
    "Issue": _conversation_fields("Issue"),
    "PullRequest": _conversation_fields("PullRequest")
    | {
        "isDraft": lambda row, _info: row.pull.draft,
        "merged": lambda row, _info: row.pull.merged_at is not None,
        "mergedAt": lambda row, _info: row.pull.merged_at,
        "headRefName": lambda row, _info: row.pull.head_ref,
        "headRefOid": lambda row, _info: row.pull.head_sha,
        "baseRefName": lambda row, _info: row.pull.base_ref,
        "baseRefOid": lambda row, _info: row.pull.base_sha,
        "isCrossRepository": lambda _row, _info: False,
        "headRepositoryOwner": lambda row, _info: row.repository.owner,
    },
    "Reaction": {
        "id": lambda row, _info: node_id("reaction", row.id),
        "databaseId": lambda row, _info: row.id,
        "content": lambda row, _info: CONTENT[row.content],
        "createdAt": lambda row, _info: row.created_at,
        # A bot is no User: GitHub leaves the field null for its reactions.
        "user": lambda row, _info: row.account if row.account.type == "User" else None,
    },
    "Label": {"id": lambda row, _info: node_id("label", row.id)},
    "Repository": {
        "id": lambda row, _info: node_id("repository", row.id),
        "databaseId": lambda row, _info: row.id,
        "nameWithOwner": lambda row, _info: row.full_name,
        "isPrivate": lambda row, _info: row.private,
        "url": lambda row, info: repository_payloads.minimal(_tx(info), row)["html_url"],
        "defaultBranchRef": lambda row, _info: {"name": row.default_branch},
        "issue": _issue_of,
        "pullRequest": _issue_of,
        "issueOrPullRequest": _issue_of,
        "pullRequests": _pull_requests,
        "hasIssuesEnabled": lambda _row, _info: True,
        "hasWikiEnabled": lambda _row, _info: False,
        "mergeCommitAllowed": lambda _row, _info: True,
        "rebaseMergeAllowed": lambda _row, _info: True,
        "squashMergeAllowed": lambda _row, _info: True,
        "viewerPermission": _viewer_permission,
        "parent": lambda _row, _info: None,
    },
    "User": _account_fields(),
    "Bot": _account_fields(),
    "Organization": _account_fields(),
}
