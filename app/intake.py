"""What happens to a delivery after it was acknowledged: who sent it, what it asks for, and whether that is followed."""

from __future__ import annotations

import asyncio
import json
import logging

from pydantic import ValidationError

from app import policy
from app.approvals import Approvals
from app.commands import Mistake, parse
from app.comments import replies
from app.deliveries import (
    MODELS,
    CheckRunEvent,
    CheckSuiteEvent,
    Event,
    IssueCommentEvent,
    IssuesEvent,
    PullRequestEvent,
)
from app.following import Following, Said
from app.github import GitHubRepository
from app.policy import Door, may_write
from app.ports import Ports
from app.replies import answer, react
from app.states import IllegalMoveError, State
from app.verbs import Verb

log = logging.getLogger(__name__)


class Intake:
    """Processes deliveries. Each may be processed twice; the second time changes nothing."""

    def __init__(self, ports: Ports, following: Following, approvals: Approvals):
        self._ports, self._following, self._approvals = ports, following, approvals

    async def process(self, event_name: str, body: str) -> str:
        """Follow one delivery; returns a note of what came of it. Raises GitHubError when GitHub couldn't be asked."""
        try:
            event = MODELS[event_name].model_validate(json.loads(body))
        except ValidationError as error:
            return f"not an understood {event_name}: {error.error_count()} fields"
        match event:
            case IssueCommentEvent():
                note = await self._comment(event)
                await self._read_reactions(event, event.issue.number)
                return note
            case IssuesEvent():
                await self._read_reactions(event, event.issue.number)
                return "looked at the issue's profiles"
            case PullRequestEvent():
                note = await self._pull(event)
                await self._read_reactions(event, event.pull_request.number)
                return note
            case CheckRunEvent() | CheckSuiteEvent():
                return await self._rerequested(event)
        return "nothing to do"

    async def _comment(self, event: IssueCommentEvent) -> str:
        comment = event.comment
        about = policy.CommentEvent(
            action=event.action,
            sender_type=event.sender.type,
            author_type=comment.user.type if comment.user else "",
            body=comment.body or "",
            via_app_id=comment.performed_via_github_app.id if comment.performed_via_github_app else None,
        )
        ignored = policy.ignored_because(about, self._ports.github.app_id)
        if ignored is not None:
            return ignored
        # hostile Markdown may take a while; deliveries are answered meanwhile
        command = await asyncio.to_thread(parse, about.body)
        if command is None:
            return "no command in it"
        repository = self._ports.github.repository(event.installation.id, event.repository.full_name)
        permission = await repository.permission(event.sender.login)
        if await self._refused(event, repository, command, permission):
            return f"refused: {event.sender.login} has {permission} permission"
        await react(repository, comment.id, "eyes")
        if isinstance(command, Mistake):
            await react(repository, comment.id, "confused")
            await self._answer(event, repository, replies.mistake(event.sender.login, command))
            return f"mistake: {command.what}"
        said = Said(
            command=command,
            repository=repository,
            installation_id=event.installation.id,
            issue=event.issue.number,
            comment_id=comment.id,
            created_at=comment.created_at,
            login=event.sender.login,
            user_id=event.sender.id,
            permission=permission,
        )
        try:
            await self._following.follow(said)
        except IllegalMoveError as error:
            # someone else's answer came first
            await self._answer(event, repository, replies.overtaken(said.login, str(error.before)))
        return f"followed: {command.verb}"

    async def _refused(
        self, event: IssueCommentEvent, repository: GitHubRepository, command: object, permission: str
    ) -> bool:
        """Whether the door stays shut; says so, but not often."""
        login, issue = event.sender.login, event.issue.number
        verb = Verb.dev if isinstance(command, Mistake) else command.verb  # type: ignore[attr-defined]
        requests = self._ports.store.requests_of_issue(repository.full_name, issue)
        answers = self._ports.store.replies_today(repository.full_name, issue, login, event.comment.id)
        door = policy.door(
            verb,
            permission,
            is_requester=any(one.requester == login for one in requests),
            answers_today=answers,
        )
        if may_write(permission):
            return False
        if door is not Door.ignore:
            self._ports.store.record_reply(repository.full_name, issue, login, event.comment.id)
        if door is Door.refuse:
            await answer(repository, issue, event.comment.id, replies.not_allowed(login, verb))
        return door is not Door.follow

    async def _answer(self, event: IssueCommentEvent, repository: GitHubRepository, text: str) -> None:
        await answer(repository, event.issue.number, event.comment.id, text)

    async def _read_reactions(self, event: Event, number: int) -> None:
        """Reactions send no event of their own, so any event of the issue is an occasion to read them."""
        for request in self._ports.store.requests_of_issue(event.repository.full_name, number):
            if State(request.state) is State.awaiting_approval:
                await self._approvals.read(request.id)

    async def _pull(self, event: PullRequestEvent) -> str:
        request = self._ports.store.request_of_pull(event.repository.full_name, event.pull_request.number)
        if request is None:
            return "not a pull request of ours"
        after = {
            "closed": State.merged if event.pull_request.merged else State.closed,
            "reopened": State.in_review,
        }.get(event.action)
        if after is None:
            return f"{event.action}: nothing to do"
        try:
            self._ports.store.move(request.id, after, f"by {event.sender.login}")
        except IllegalMoveError as error:
            return str(error)
        await self._ports.status.put(request.id)
        return f"request {request.id} is {after}"

    async def _rerequested(self, event: CheckRunEvent | CheckSuiteEvent) -> str:
        if event.action != "rerequested" or event.sender.type != "User":
            return "nothing to do"
        repository = self._ports.github.repository(event.installation.id, event.repository.full_name)
        if not may_write(await repository.permission(event.sender.login)):
            return f"{event.sender.login} may not ask for that"
        if isinstance(event, CheckRunEvent):
            job = self._ports.store.job(event.check_run.external_id or "")
            request = self._ports.store.request(job.request_id) if job else None
        else:
            request = self._ports.store.request_of_head(repository.full_name, event.check_suite.head_sha)
        if (
            request is None
            or request.repository != repository.full_name
            or State(request.state) is not State.in_review
        ):
            return "no request of ours waits in review for that"
        await self._following.retry(request)
        return f"request {request.id} is verified again"
