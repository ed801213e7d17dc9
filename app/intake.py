"""What happens to a delivery after it was acknowledged: who sent it, what it asks for, and whether that is followed."""

from __future__ import annotations

import asyncio
import json
import logging

from pydantic import ValidationError

from app import policy
from app.actions.following import Follower
from app.approvals import Approvals
from app.check_runs import cancel_checks
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
    WorkflowJobEvent,
    WorkflowRunEvent,
)
from app.following import Following, Said
from app.github import GitHubRepository
from app.policy import Door, may_write
from app.ports import Ports
from app.pushes import follow_push
from app.replies import answer, react
from app.repository_config import ConfigMistake, RepositoryConfig, Who
from app.repository_config_source import is_among
from app.states import IllegalMoveError, State
from app.tables import Request
from app.verbs import Verb

log = logging.getLogger(__name__)


class Intake:
    """Processes deliveries. Each may be processed twice; the second time changes nothing."""

    def __init__(
        self, ports: Ports, following: Following, approvals: Approvals, follower: Follower | None = None
    ):
        self._ports, self._following, self._approvals = ports, following, approvals
        self._follower = follower or Follower(ports, following.engine)

    async def process(self, event_name: str, body: str) -> str:
        """Follow one delivery; returns a note of what came of it. Raises GitHubError when GitHub couldn't be asked."""
        try:
            event = MODELS[event_name].model_validate(json.loads(body))
        except ValidationError as error:
            return f"not an understood {event_name}: {error.error_count()} fields"
        match event:
            case IssueCommentEvent():
                note = await self._comment(event)
                self._look_at_reactions(event, event.issue.number)
                return note
            case IssuesEvent():
                self._look_at_reactions(event, event.issue.number)
                return "looked at the issue's profiles"
            case PullRequestEvent():
                note = await self._pull(event)
                self._look_at_reactions(event, event.pull_request.number)
                return note
            case CheckRunEvent() | CheckSuiteEvent():
                return await self._rerequested(event)
            case WorkflowRunEvent():
                run = event.workflow_run
                return await self._follower.hint(event.repository.full_name, run.id, run.display_title)
            case WorkflowJobEvent():
                return await self._follower.hint(event.repository.full_name, event.workflow_job.run_id, "")
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
        permission, config = await asyncio.gather(
            repository.permission(event.sender.login), self._config(event)
        )
        if isinstance(config, ConfigMistake):
            return await self._broken_config(event, repository, permission, config)
        rule = None if isinstance(command, Mistake) else policy.rule_for(command.verb, config)
        named = None if rule is None else await is_among(rule, repository, event.sender.login, permission)
        if await self._refused(event, repository, command, permission, rule, named):
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
            config=config,
            named=named,
        )
        try:
            await self._following.follow(said)
        except IllegalMoveError as error:
            # someone else's answer came first
            await self._answer(event, repository, replies.overtaken(said.login, str(error.before)))
        return f"followed: {command.verb}"

    async def _config(self, event: Event) -> RepositoryConfig | ConfigMistake:
        try:
            return await self._ports.configs.of(event.installation.id, event.repository.full_name)
        except ConfigMistake as mistake:
            return mistake

    async def _broken_config(
        self,
        event: IssueCommentEvent,
        repository: GitHubRepository,
        permission: str,
        mistake: ConfigMistake,
    ) -> str:
        """Say what is wrong with the file, to people who can mend it, and do nothing else."""
        if may_write(permission):
            await react(repository, event.comment.id, "confused")
            await self._answer(event, repository, replies.broken_config(event.sender.login, str(mistake)))
        return f"the configuration is broken: {mistake}"

    async def _refused(
        self,
        event: IssueCommentEvent,
        repository: GitHubRepository,
        command: object,
        permission: str,
        rule: Who | None,
        named: bool | None,
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
            named=named,
        )
        if door is not Door.ignore and not may_write(permission):
            self._ports.store.record_reply(repository.full_name, issue, login, event.comment.id)
        if door is Door.refuse:
            await answer(repository, issue, event.comment.id, replies.not_allowed(login, verb, rule))
        return door is not Door.follow

    async def _answer(self, event: IssueCommentEvent, repository: GitHubRepository, text: str) -> None:
        await answer(repository, event.issue.number, event.comment.id, text)

    def _look_at_reactions(self, event: Event, number: int) -> None:
        """Reactions send no event of their own, so any event of the issue makes them due."""
        for request in self._ports.store.requests_of_issue(event.repository.full_name, number):
            if State(request.state) is State.awaiting_approval:
                self._approvals.read_next(request.id)

    async def _pull(self, event: PullRequestEvent) -> str:
        request = self._ports.store.request_of_pull(event.repository.full_name, event.pull_request.number)
        if request is None:
            return "not a pull request of ours"
        us = (await self._ports.github.identity()).login
        if event.sender.login == us:
            return "our own doing"
        engine = self._following.engine
        if event.action == "synchronize" and event.pull_request.head is not None:
            sha = event.pull_request.head.sha
            return await follow_push(self._ports, engine, request, sha, event.sender.login)
        if event.action not in {"closed", "reopened"}:
            return f"{event.action}: nothing to do"
        try:
            return await self._ended_or_reopened(event, request)
        except IllegalMoveError as error:
            return str(error)

    async def _ended_or_reopened(self, event: PullRequestEvent, request: Request) -> str:
        login, pull = event.sender.login, event.pull_request
        # Deliveries come late, out of order, or again: what they say was so once, and what is so now decides.
        now = await self._ports.github.repository(event.installation.id, event.repository.full_name).pull(
            pull.number
        )
        if (now.state == "closed") is not (event.action == "closed"):
            return f"{event.action} before: pull request #{pull.number} is {now.state} now"
        if event.action == "reopened":
            self._ports.store.move(request.id, State.in_review, f"by {login}", ended_by=None)
            await self._ports.status.put(request.id)
            return f"request {request.id} is {State.in_review}"
        after = State.merged if now.merged else State.closed
        self._ports.store.move(request.id, after, f"by {login}", ended_by=login)
        await self._following.engine.cancel(request)
        await cancel_checks(self._ports, request.id, f"The pull request was {after}.")
        gates = [
            f"{job.gate} {job.conclusion}" for job in self._ports.store.jobs(request.id, request.attempt)
        ]
        how = f"{after} by {login}" + (f" as {(pull.merge_commit_sha or '')[:12]}" if now.merged else "")
        self._ports.store.note(request.id, "outcome", f"{how}, attempt {request.attempt}: {', '.join(gates)}")
        await self._ports.status.put(request.id)
        return f"request {request.id} is {after}"

    async def _rerequested(self, event: CheckRunEvent | CheckSuiteEvent) -> str:
        if event.action != "rerequested" or event.sender.type != "User":
            return "nothing to do"
        repository = self._ports.github.repository(event.installation.id, event.repository.full_name)
        config = await self._config(event)
        if isinstance(config, ConfigMistake):
            return f"the configuration is broken: {config}"
        login = event.sender.login
        if not await is_among(config.commands.retry, repository, login, await repository.permission(login)):
            return f"{login} may not ask for that"
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
