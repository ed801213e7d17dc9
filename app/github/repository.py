"""One repository: people, comments, reactions, files, pull requests, check runs."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal
from urllib.parse import quote

from githubkit import GitHub
from githubkit.utils import UNSET

from app.github.actions import Actions
from app.github.assets import Assets
from app.github.check_body import ANNOTATIONS_A_REQUEST, check_body
from app.github.errors import NotFoundError, RejectedError, ask
from app.github.records import Branch, Check, Comment, Pull, Reaction, comment_of, pull_of

ReactionContent = Literal["+1", "-1", "laugh", "confused", "heart", "hooray", "rocket", "eyes"]

MAX_FILE_BYTES = 1_000_000
REACTIONS_A_QUERY = 100
_REACTIONS_QUERY = "query($ids: [ID!]!) { nodes(ids: $ids) { ... on IssueComment { id reactions(first: 100) { nodes { databaseId content } } } } }"


class GitHubRepository:
    """One repository, with the rights of the App's installation."""

    def __init__(self, github: GitHub[Any], app: GitHub[Any], installation_id: int, owner: str, name: str):
        self._github, self._app, self._installation_id = github, app, installation_id
        self.owner, self.name = owner, name
        self._rest = github.rest

    @property
    def full_name(self) -> str:
        return f"{self.owner}/{self.name}"

    @property
    def actions(self) -> Actions:
        """Its workflows, runs and artifacts."""
        return Actions(self._github, self.owner, self.name)

    @property
    def assets(self) -> Assets:
        """Its branch of pictures."""
        return Assets(self._github, self.owner, self.name)

    # people

    async def public(self) -> bool:
        """Whether anybody may read it; one that is internal to an enterprise is not public."""
        repository = await ask(self._rest.repos.async_get(self.owner, self.name), f"read {self.full_name}")
        return not repository.parsed_data.private

    async def permission(self, login: str) -> str:
        """admin, maintain, write, triage, read or none: what that person has now. Apps and unknown names have none."""
        try:
            answer = await ask(
                self._rest.repos.async_get_collaborator_permission_level(self.owner, self.name, login),
                f"read @{login}'s permission",
            )
        except NotFoundError:
            return "none"
        # `permission` knows four levels; the role tells maintain from write, and triage from read
        role = answer.parsed_data.role_name
        return role if role in {"maintain", "triage"} else answer.parsed_data.permission

    async def in_team(self, team: str, login: str) -> bool:
        """Whether a person belongs to a team of this organisation. Raises ForbiddenError without `members: read`."""
        try:
            answer = await ask(
                self._rest.teams.async_get_membership_for_user_in_org(self.owner, team, login),
                f"look for @{login} in team {team}",
            )
        except NotFoundError:
            return False
        return answer.parsed_data.state == "active"

    # comments

    async def comment(self, comment_id: int) -> Comment:
        answer = await ask(
            self._rest.issues.async_get_comment(self.owner, self.name, comment_id), "read a comment"
        )
        return comment_of(answer.parsed_data)

    async def create_comment(self, issue: int, body: str) -> Comment:
        answer = await ask(
            self._rest.issues.async_create_comment(self.owner, self.name, issue, body=body),
            f"comment on #{issue}",
        )
        return comment_of(answer.parsed_data)

    async def update_comment(self, comment_id: int, body: str) -> Comment:
        answer = await ask(
            self._rest.issues.async_update_comment(self.owner, self.name, comment_id, body=body),
            "edit a comment",
        )
        return comment_of(answer.parsed_data)

    async def comments_since(self, since: datetime, page: int) -> list[dict[str, Any]]:
        """A hundred comments of all issues and pull requests, as GitHub's API shows them, oldest change first."""
        answer = await ask(
            self._rest.issues.async_list_comments_for_repo(
                self.owner, self.name, sort="updated", direction="asc", since=since, per_page=100, page=page
            ),
            f"list comments of {self.full_name}",
        )
        return answer.raw_response.json()

    async def find_comment(self, issue: int, marker: str, since: datetime | None = None) -> Comment | None:
        """Our first comment on an issue that holds a hidden marker."""
        page = 1
        while True:
            answer = await ask(
                self._rest.issues.async_list_comments(
                    self.owner,
                    self.name,
                    issue,
                    per_page=100,
                    page=page,
                    since=since or UNSET,
                ),
                f"list comments of #{issue}",
            )
            for raw in answer.parsed_data:
                if marker in (raw.body or "") and raw.user and raw.user.type == "Bot":
                    return comment_of(raw)
            if len(answer.parsed_data) < 100:
                return None
            page += 1

    # reactions

    async def react(self, comment_id: int, content: ReactionContent) -> None:
        """React to a comment; reacting twice is once."""
        await ask(
            self._rest.reactions.async_create_for_issue_comment(
                self.owner, self.name, comment_id, content=content
            ),
            "react",
        )

    async def reactions(self, comment_id: int) -> list[Reaction]:
        """Every reaction on a comment."""
        found: list[Reaction] = []
        page = 1
        while True:
            answer = await ask(
                self._rest.reactions.async_list_for_issue_comment(
                    self.owner, self.name, comment_id, per_page=100, page=page
                ),
                "read reactions",
            )
            found += [
                Reaction(one.id, one.content, one.user.login, one.user.type, one.created_at)
                for one in answer.parsed_data
                if one.user
            ]
            if len(answer.parsed_data) < 100:
                return found
            page += 1

    async def reacted(self, node_ids: Sequence[str]) -> dict[str, frozenset[int]]:
        """Ids of the 👍 and 👎 on those of the comments that carry some: one question for a hundred comments, cheap
        enough to ask often."""
        found: dict[str, frozenset[int]] = {}
        for start in range(0, len(node_ids), REACTIONS_A_QUERY):
            ids = list(node_ids[start : start + REACTIONS_A_QUERY])
            data = await ask(self._github.graphql.arequest(_REACTIONS_QUERY, {"ids": ids}), "read reactions")
            for node in data.get("nodes") or []:
                reactions = ((node or {}).get("reactions") or {}).get("nodes") or []
                answers = [one for one in reactions if one["content"] in {"THUMBS_UP", "THUMBS_DOWN"}]
                if answers:
                    found[node["id"]] = frozenset(one["databaseId"] for one in answers)
        return found

    # files and branches

    async def default_branch(self) -> Branch:
        """The default branch and the commit it stands at."""
        repository = await ask(self._rest.repos.async_get(self.owner, self.name), f"read {self.full_name}")
        return await self.branch(repository.parsed_data.default_branch)

    async def branch(self, name: str) -> Branch:
        answer = await ask(
            self._rest.repos.async_get_branch(self.owner, self.name, name), f"read branch {name}"
        )
        return Branch(name, answer.parsed_data.commit.sha)

    async def read_file(self, path: str, ref: str = "") -> str:
        """Text of a file at a branch, tag or commit; empty: on the default branch.

        Raises NotFoundError, or RejectedError (with no status) when it isn't a text file.
        """
        answer = await ask(
            self._github.arequest(
                "GET",
                f"repos/{self.owner}/{self.name}/contents/{quote(path)}",
                params={"ref": ref} if ref else {},
            ),
            f"read {path}",
        )
        body = answer.json()
        if not isinstance(body, dict) or body.get("type") != "file" or body.get("size", 0) > MAX_FILE_BYTES:
            raise RejectedError(f"{path} is not a file of at most {MAX_FILE_BYTES:,} bytes")
        try:
            return base64.b64decode(body.get("content") or "").decode("utf-8")
        except ValueError:
            raise RejectedError(f"{path} is not a text file") from None

    async def read_public_file(self, full_name: str, path: str, ref: str) -> tuple[str, str]:
        """(text, commit) of a file in any repository that the App can read."""
        url = f"repos/{full_name}/commits/{quote(ref, safe='')}"
        commit = (await ask(self._github.arequest("GET", url), f"read {full_name} at {ref}")).json()["sha"]
        return await self.beside(full_name).read_file(path, commit), commit

    def beside(self, full_name: str) -> GitHubRepository:
        """Another repository, seen with this one's token: what anyone may read of it."""
        owner, name = full_name.split("/", 1)
        return GitHubRepository(self._github, self._app, self._installation_id, owner, name)

    async def token(self, **permissions: str) -> str:
        """A token for this repository with those permissions alone; it lasts an hour. Never log it."""
        answer = await ask(
            self._app.rest.apps.async_create_installation_access_token(
                self._installation_id,
                data={"repositories": [self.name], "permissions": permissions},  # type: ignore[typeddict-item]
            ),
            "mint a token",
        )
        return answer.parsed_data.token

    # pull requests

    async def pull(self, number: int) -> Pull:
        answer = await ask(
            self._rest.pulls.async_get(self.owner, self.name, number), f"read pull request #{number}"
        )
        return pull_of(answer.parsed_data)

    async def raw_pull(self, number: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """(the pull request, the issue that it is too) as GitHub's API shows them: what a webhook would have told.

        The issue is only read when the pull request is closed: it says by whom.
        """
        what = f"read pull request #{number}"
        answer = await ask(self._rest.pulls.async_get(self.owner, self.name, number), what)
        pull: dict[str, Any] = answer.raw_response.json()
        if pull["state"] != "closed":
            return pull, {}
        issue = await ask(self._rest.issues.async_get(self.owner, self.name, number), what)
        return pull, issue.raw_response.json()

    async def find_pull(self, branch: str) -> Pull | None:
        """The newest pull request from that branch of this repository."""
        answer = await ask(
            self._rest.pulls.async_list(self.owner, self.name, head=f"{self.owner}:{branch}", state="all"),
            f"look for a pull request from {branch}",
        )
        return pull_of(answer.parsed_data[0]) if answer.parsed_data else None

    async def create_draft_pull(self, branch: str, base: str, title: str, body: str) -> Pull:
        """The draft pull request from a branch: the one that is there, or a new one."""
        known = await self.find_pull(branch)
        if known is not None:
            return known
        try:
            answer = await ask(
                self._rest.pulls.async_create(
                    self.owner, self.name, head=branch, base=base, title=title, body=body, draft=True
                ),
                "open a pull request",
            )
        except RejectedError:
            known = await self.find_pull(branch)  # someone else may have opened it a moment ago
            if known is None:
                raise
            return known
        return pull_of(answer.parsed_data)

    async def describe_pull(self, number: int, body: str) -> None:
        """Give a pull request another text."""
        await ask(
            self._rest.pulls.async_update(self.owner, self.name, number, body=body), f"describe #{number}"
        )

    async def close_pull(self, number: int) -> None:
        await ask(
            self._rest.pulls.async_update(self.owner, self.name, number, state="closed"), f"close #{number}"
        )

    async def add_labels(self, number: int, labels: list[str]) -> None:
        await ask(
            self._rest.issues.async_add_labels(self.owner, self.name, number, labels=[*labels]),
            f"label #{number}",
        )

    # checks

    async def put_check(self, head_sha: str, check: Check, known_id: int | None = None) -> int:
        """Create or update the check run with that external id on a commit; returns GitHub's id for it."""
        check_id = known_id or await self._find_check(head_sha, check)
        annotations = list(check.annotations)
        first, rest = annotations[:ANNOTATIONS_A_REQUEST], annotations[ANNOTATIONS_A_REQUEST:]
        body = check_body(check, first)
        if check_id is None:
            answer = await ask(
                self._github.arequest(
                    "POST",
                    f"repos/{self.owner}/{self.name}/check-runs",
                    json={**body, "head_sha": head_sha, "external_id": check.external_id},
                ),
                f"create check {check.name}",
            )
            check_id = int(answer.json()["id"])
        else:
            await self._patch_check(check_id, body, check.name)
        while rest:
            first, rest = rest[:ANNOTATIONS_A_REQUEST], rest[ANNOTATIONS_A_REQUEST:]
            await self._patch_check(check_id, check_body(check, first), check.name)
        return check_id

    async def _patch_check(self, check_id: int, body: dict[str, Any], name: str) -> None:
        await ask(
            self._github.arequest(
                "PATCH", f"repos/{self.owner}/{self.name}/check-runs/{check_id}", json=body
            ),
            f"update check {name}",
        )

    async def _find_check(self, head_sha: str, check: Check) -> int | None:
        answer = await ask(
            self._github.arequest(
                "GET",
                f"repos/{self.owner}/{self.name}/commits/{head_sha}/check-runs",
                params={"check_name": check.name, "filter": "all", "per_page": 100},
            ),
            f"look for check {check.name}",
        )
        return next(
            (
                int(run["id"])
                for run in answer.json()["check_runs"]
                if run.get("external_id") == check.external_id
            ),
            None,
        )
