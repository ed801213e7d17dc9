"""Answers to shown profiles. Reactions fire no webhook, so they are read: often while a profile is fresh, and at once
when anything happens on its issue."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from datetime import datetime

from app.comments import replies
from app.comments.status import body_sha256
from app.github import (
    GitHubError,
    GitHubRepository,
    LimitedError,
    NotFoundError,
    RejectedError,
    UnreachableError,
)
from app.policy import (
    APPROVE,
    VETO,
    Answer,
    SeenReaction,
    Shown,
    expired,
    judge_reactions,
    poll_interval_s,
)
from app.ports import Engine, Ports
from app.states import IllegalMoveError, Stage, State
from app.store import now
from app.tables import Approval, Profile, Request

log = logging.getLogger(__name__)


class Approvals:
    """Reads and records people's answers, and starts what follows from them."""

    def __init__(self, ports: Ports, engine: Engine):
        self._ports, self._engine = ports, engine
        self._due: dict[str, float] = {}
        self._reading: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._paused_until = 0.0
        self._one_question = True  # until the server turns out to have no GraphQL

    async def poll_forever(self) -> None:
        """Read what is due, again and again."""
        while True:
            try:
                await self.poll()
            except LimitedError as error:
                self._paused_until = time.monotonic() + (error.retry_after_s or 60.0)
                log.warning("reading reactions pauses: %s", error)
            except GitHubError as error:
                log.warning("reading reactions failed; it is tried again: %s", error)
            except Exception:
                log.exception("reading reactions failed; it is tried again")
            await asyncio.sleep(min(1.0, self._ports.settings.fresh_poll_seconds))

    async def poll(self) -> None:
        """Read the reactions of every pending profile that is due."""
        clock = time.monotonic()
        if clock < self._paused_until:
            return
        by_repository: dict[tuple[int, str], list[tuple[Request, Profile]]] = defaultdict(list)
        for request, profile in self._ports.store.pending_profiles():
            if self._due.get(request.id, 0.0) > clock:
                continue
            shown_at = profile.shown_at or profile.created_at
            if expired(shown_at, now(), self._ports.settings.approval_days):
                await self._expire(request)
                continue
            self._due[request.id] = clock + poll_interval_s(
                now() - shown_at, self._ports.settings.fresh_poll_seconds
            )
            by_repository[(request.installation_id, request.repository)].append((request, profile))
        for (installation_id, full_name), pending in by_repository.items():
            repository = self._ports.github.repository(installation_id, full_name)
            for request_id in await self._answered(repository, pending):
                await self.read(request_id)

    async def _answered(
        self, repository: GitHubRepository, pending: list[tuple[Request, Profile]]
    ) -> list[str]:
        """Requests whose profile may have been answered: one question for all, or all of them when it isn't understood."""
        nodes = {
            profile.comment_node_id: request.id for request, profile in pending if profile.comment_node_id
        }
        if not self._one_question:
            return list(nodes.values())
        try:
            return [nodes[node] for node in await repository.reacted(list(nodes))]
        except (RejectedError, NotFoundError, UnreachableError) as error:
            self._one_question = error.status not in {404, 501}
            log.warning("reactions are read one by one: %s", error)
            return list(nodes.values())

    async def read(self, request_id: str) -> None:
        """Read one pending profile's reactions and do what they say."""
        # the poll and an event may come at the same moment; the second one then finds it done
        async with self._reading[request_id]:
            await self._read(request_id)

    async def _read(self, request_id: str) -> None:
        request = self._ports.store.request(request_id)
        profile = self._ports.store.profile(request_id, request.attempt)
        if (
            State(request.state) is not State.awaiting_approval
            or profile is None
            or profile.comment_id is None
        ):
            return
        repository = self._ports.repository(request)
        try:
            comment = await repository.comment(profile.comment_id)
        except NotFoundError:
            await self._ports.status.show_profile(request_id)
            return
        answers = [one for one in await repository.reactions(comment.id) if one.content in {APPROVE, VETO}]
        people = {one.login for one in answers if one.user_type == "User"}
        permissions = {login: await repository.permission(login) for login in people}
        seen = [
            SeenReaction(
                one.id,
                one.content,
                one.login,
                one.user_type,
                permissions.get(one.login, "none"),
                one.created_at,
            )
            for one in answers
        ]
        judgement = judge_reactions(
            seen,
            _shown(request, profile),
            body_sha256(comment.body),
            requester_may_approve=self._ports.settings.requester_may_approve,
        )
        if judgement.by is None:
            return
        try:
            await self._follow(judgement.answer, judgement.by, request, profile)
        except IllegalMoveError as error:
            log.info("request %s: someone else's answer came first: %s", request_id, error)

    async def _follow(self, answer: Answer, by: SeenReaction, request: Request, profile: Profile) -> None:
        match answer:
            case Answer.approved:
                await self.approve(request, profile, by.login, "reaction", by.id)
            case Answer.vetoed:
                await self.reject(request, by.login, "👎")
            case Answer.altered:
                log.warning(
                    "request %s: the profile's comment was edited by someone; it is shown again", request.id
                )
                await self.show_again(request.id, by.login)

    async def altered(self, profile: Profile, request: Request) -> bool:
        """Whether someone edited the comment that shows a profile, or removed it."""
        if profile.comment_id is None:
            return True
        try:
            comment = await self._ports.repository(request).comment(profile.comment_id)
        except NotFoundError:
            return True
        return body_sha256(comment.body) != profile.body_sha256

    async def show_again(self, request_id: str, login: str) -> None:
        """Put a profile back as it was; what was said about the altered one doesn't count."""
        request = self._ports.store.request(request_id)
        await self._ports.status.show_profile(request_id)
        await self._ports.repository(request).create_comment(request.issue_number, replies.shown_again(login))

    async def approve(self, request: Request, profile: Profile, login: str, by: str, source_id: int) -> None:
        """Record an approval of the stored profile and start the act stage."""
        self._ports.store.approve(
            Approval(
                request_id=request.id,
                profile_sha256=profile.sha256,
                login=login,
                by=by,
                source_id=source_id,
                at=now(),
            )
        )
        self._ports.store.move(request.id, State.acting, f"approved by {login}")
        await self._engine.start_stage(Stage.act, request.id, request.attempt)

    async def reject(self, request: Request, login: str, why: str) -> None:
        """End a request whose profile was turned down. Raises IllegalMoveError when it isn't waiting any more."""
        self._ports.store.move(request.id, State.rejected, why, ended_by=login)
        await self._ports.status.put(request.id)

    async def _expire(self, request: Request) -> None:
        self._ports.store.move(
            request.id, State.expired, f"no answer in {self._ports.settings.approval_days:g} days"
        )
        try:
            await self._ports.status.put(request.id)
        except GitHubError as error:
            log.warning("request %s: expired, not shown: %s", request.id, error)


def _shown(request: Request, profile: Profile) -> Shown:
    return Shown(
        profile_sha256=profile.sha256,
        body_sha256=profile.body_sha256 or "",
        shown_at=profile.shown_at or datetime.max.replace(tzinfo=profile.created_at.tzinfo),
        stale_reactions=frozenset(profile.stale_reactions or []),
        requester=request.requester,
    )
