"""Follows one well-formed command of a person who may give it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from agents.dev.refused import Refused
from agents.registry import agent_of
from app.approvals import Approvals
from app.check_runs import cancel_checks
from app.commands import Command
from app.comments import replies
from app.deliveries import NotYetError
from app.github import GitHubRepository
from app.ports import Engine, Ports
from app.replies import answer, react
from app.repository_config import RepositoryConfig
from app.repository_config_source import is_among
from app.request_view import command_of
from app.states import RUNNING, Stage, State
from app.store import LiveRequestError, NewRequest
from app.tables import Request
from app.verbs import Verb

log = logging.getLogger(__name__)

_CANCELLABLE = frozenset(RUNNING) | {State.awaiting_approval}
_ANSWERS = frozenset({Verb.approve, Verb.reject, Verb.revise})
_RETRIABLE = frozenset({State.failed, State.cancelled, State.rejected, State.expired, State.in_review})


@dataclass(frozen=True)
class Said:
    """A command, and where and by whom it was given."""

    command: Command
    repository: GitHubRepository
    installation_id: int
    issue: int
    comment_id: int
    created_at: datetime
    login: str
    user_id: int
    permission: str
    config: RepositoryConfig
    named: bool | None = None  # among those whom the configuration lets give this command


class Following:
    """What each verb does. Every method may be called again for the same comment."""

    def __init__(self, ports: Ports, engine: Engine, approvals: Approvals):
        self._ports, self.engine, self._approvals = ports, engine, approvals
        self._verbs: dict[Verb, Callable[[Said], Awaitable[None]]] = {
            Verb.dev: self._request,
            Verb.autopatch: self._request,
            Verb.perf: self._not_available,
            Verb.approve: self._approve,
            Verb.revise: self._revise,
            Verb.reject: self._reject,
            Verb.retry: self._retry,
            Verb.cancel: self._cancel,
            Verb.status: self._status,
            Verb.help: self._help,
        }

    async def follow(self, said: Said) -> None:
        """Do what a command says, or answer why not."""
        await self._verbs[said.command.verb](said)

    async def _answer(self, said: Said, text: str) -> None:
        await answer(said.repository, said.issue, said.comment_id, text)

    async def _request(self, said: Said) -> None:
        command = said.command
        wanted = agent_of(command.verb).wanted(command.text, command.block, self._ports.web_host)
        if isinstance(wanted, Refused):
            await react(said.repository, said.comment_id, "confused")
            await self._answer(said, replies.refused(said.login, wanted, command.verb))
            return
        new = NewRequest(
            repository=said.repository.full_name,
            installation_id=said.installation_id,
            issue_number=said.issue,
            comment_id=said.comment_id,
            requester=said.login,
            requester_id=said.user_id,
            verb=command.verb,
            op_text=command.text,
            op_key=wanted.key,
            block=command.block,
        )
        try:
            request = self._ports.store.create_request(new)
        except LiveRequestError as live:
            await self._answer_live(said, live.request)
            return
        if State(request.state) is State.received:
            await self.engine.start_stage(Stage.understand, request.id, request.attempt)

    async def _approve(self, said: Said) -> None:
        request = self._newest(said, frozenset({State.awaiting_approval}))
        if request is None:
            await self._nothing_to(said)
            return
        profile = self._ports.store.profile(request.id, request.attempt)
        if profile is None or profile.shown_at is None or said.created_at < profile.shown_at:
            await self._nothing_to(said)
        elif not profile.sha256.startswith(said.command.text):
            await self._answer(said, replies.other_profile(said.login, said.command.text, profile.sha256))
        elif said.login == request.requester and not said.config.requester_may_approve:
            await self._answer(said, replies.second_person(said.login))
        elif not await is_among(said.config.approvers, said.repository, said.login, said.permission):
            await self._answer(said, replies.not_allowed(said.login, Verb.approve, said.config.approvers))
        elif await self._approvals.altered(profile, request):
            await self._approvals.show_again(request.id, said.login)
        else:
            self._ports.store.update_request(request.id, followed_comment_id=said.comment_id)
            await self._approvals.approve(request, profile, said.login, "command", said.comment_id)

    async def _revise(self, said: Said) -> None:
        request = self._newest(said, frozenset({State.awaiting_approval, State.in_review}))
        if request is None:
            await self._nothing_to(said)
            return
        changes: dict[str, Any] = {
            "attempt": request.attempt + 1,
            "changes": said.command.changes,
            "changed_by": said.login,
            "followed_comment_id": said.comment_id,
        }
        if State(request.state) is State.in_review:
            # another attempt, and with it another pull request, which takes this one's place when it's there
            request = self._ports.store.retry(request.id, State.revising, round=0, **changes)
            self._ports.store.note(request.id, "state", f"{said.command.text} by {said.login}")
        else:
            why = f"{said.command.text} by {said.login}"
            request = self._ports.store.move(request.id, State.revising, why, **changes)
        await self.engine.start_stage(Stage.understand, request.id, request.attempt)

    async def _reject(self, said: Said) -> None:
        request = self._newest(said, frozenset({State.awaiting_approval}))
        if request is None:
            await self._nothing_to(said)
            return
        self._ports.store.update_request(request.id, followed_comment_id=said.comment_id)
        await self._approvals.reject(request, said.login, said.command.text)

    async def _retry(self, said: Said) -> None:
        request = self._newest(said, _RETRIABLE)
        if request is None:
            await self._nothing_to(said)
            return
        await self.retry(request, said)

    async def retry(self, request: Request, said: Said | None = None) -> None:
        """Take a request up again where it stopped."""
        stage = self._where_it_stopped(request)
        state = {
            Stage.understand: State.understanding,
            Stage.act: State.acting,
            Stage.verify: State.verifying,
        }[stage]
        fresh: dict[str, Any] = {
            "attempt": request.attempt + 1,
            "round": 0,
            "failure": None,
            "failed_stage": None,
            "ended_by": None,
        }
        if said is not None:
            fresh["followed_comment_id"] = said.comment_id
        if stage is Stage.understand and request.changes:
            state = State.revising if State(request.state) is State.failed else state
        try:
            request = self._ports.store.retry(request.id, state, **fresh)
        except LiveRequestError as live:
            if said is not None:
                await self._answer_live(said, live.request)
            return
        await self.engine.start_stage(stage, request.id, request.attempt)

    def _where_it_stopped(self, request: Request) -> Stage:
        if State(request.state) is State.in_review:
            return Stage.verify
        if State(request.state) is State.failed and request.failed_stage:
            return Stage(request.failed_stage)
        return Stage.understand

    async def _cancel(self, said: Said) -> None:
        request = self._newest(said, _CANCELLABLE)
        if request is None:
            await self._nothing_to(said)
            return
        if not said.named and said.login != request.requester:
            await self._answer(
                said, replies.not_allowed(said.login, Verb.cancel, said.config.commands.cancel)
            )
            return
        self._ports.store.move(
            request.id,
            State.cancelled,
            f"by {said.login}",
            ended_by=said.login,
            followed_comment_id=said.comment_id,
        )
        await self.engine.cancel(request)
        await cancel_checks(self._ports, request.id)
        await self._ports.status.put(request.id)

    async def _status(self, said: Said) -> None:
        requests = self._ports.store.requests_of_issue(said.repository.full_name, said.issue)
        rows = [(one.id, command_of(one), one.state, self._ports.page_url(one.id)) for one in requests]
        await self._answer(said, replies.status_reply(said.login, rows))

    async def _help(self, said: Said) -> None:
        await self._answer(said, replies.help_text(said.login, said.command.topic))

    async def _not_available(self, said: Said) -> None:
        await self._answer(said, replies.not_available(said.login, said.command.verb))

    async def _nothing_to(self, said: Said) -> None:
        if self._done_already(said):
            return
        requests = self._ports.store.requests_of_issue(said.repository.full_name, said.issue)
        if said.command.verb in _ANSWERS and any(self._about_to_wait(one) for one in requests):
            raise NotYetError(f"the profile that `{said.command.verb}` is about is just being shown")
        states = [(command_of(one), one.state) for one in requests]
        await self._answer(said, replies.nothing_to(said.login, said.command.verb, states))

    def _about_to_wait(self, request: Request) -> bool:
        """Whether the profile is made and perhaps shown, but not yet noted as waiting: someone may be that fast."""
        showing = State(request.state) in {State.understanding, State.revising}
        return showing and self._ports.store.profile(request.id, request.attempt) is not None

    def _done_already(self, said: Said) -> bool:
        """Whether this very comment was followed before a crash: then there is nothing left to say."""
        requests = self._ports.store.requests_of_issue(said.repository.full_name, said.issue)
        return any(request.followed_comment_id == said.comment_id for request in requests)

    async def _answer_live(self, said: Said, live: Request) -> None:
        text = replies.live_already(said.login, live.id, command_of(live), self._ports.page_url(live.id))
        await self._answer(said, text)

    def _newest(self, said: Said, states: frozenset[State]) -> Request | None:
        requests = self._ports.store.requests_of_issue(said.repository.full_name, said.issue)
        return next((one for one in requests if State(one.state) in states), None)
