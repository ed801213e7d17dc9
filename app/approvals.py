"""Answers to shown profiles. Reactions fire no webhook, so they are read: often while a profile is fresh, and within a
second when anything happens on its issue."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from datetime import datetime
from math import inf

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
from app.replies import answer
from app.repository_config import ConfigMistake
from app.repository_config_source import is_among
from app.states import IllegalMoveError, Stage, State
from app.store import now
from app.tables import Approval, Profile, Request

log = logging.getLogger(__name__)

# Answers that decided nothing are judged again, since people gain and lose rights: after two minutes, then ever more seldom,
# or many strangers' answers would use up the hour's requests.
AGAIN_S, SELDOM_AGAIN_S = 120.0, 3600.0


class Approvals:
    """Reads and records people's answers, and starts what follows from them."""

    def __init__(self, ports: Ports, engine: Engine):
        self._ports, self._engine = ports, engine
        self._due: dict[str, float] = {}
        self._reading: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._paused_until = 0.0
        # requests whose people were told of a broken configuration, and profiles whose people were told of an early answer
        self._told: set[str] = set()
        # answers that decided nothing, a stranger's for instance, when they are judged again, and after how long that is
        self._decided_nothing: dict[str, tuple[frozenset[int], float, float]] = {}
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

    def read_next(self, request_id: str) -> None:
        """Read this profile's reactions in the next round, a second from now at most, with all that are due then."""
        # not here and now: after an outage a thousand events would be thousands of questions, where a few will do
        self._due.pop(request_id, None)
        self._decided_nothing.pop(request_id, None)

    async def poll(self) -> None:
        """Read the reactions of every pending profile that is due."""
        clock = time.monotonic()
        if clock < self._paused_until:
            return
        by_repository: dict[tuple[int, str], list[tuple[Request, Profile]]] = defaultdict(list)
        pending_now = await asyncio.to_thread(self._ports.store.pending_profiles)
        for memory in (self._due, self._decided_nothing):
            for gone in memory.keys() - {request.id for request, _ in pending_now}:
                del memory[gone]
        for request, profile in pending_now:
            if self._due.get(request.id, 0.0) > clock:
                continue
            age = now() - _shown_at(profile)
            self._due[request.id] = clock + poll_interval_s(age, self._ports.settings.fresh_poll_seconds)
            by_repository[(request.installation_id, request.repository)].append((request, profile))
        for (installation_id, full_name), pending in by_repository.items():
            try:
                await self._poll_repository(installation_id, full_name, pending)
            except LimitedError:
                raise
            except GitHubError as error:  # the App was removed there, say: the others go on
                log.warning("%s: reading reactions failed; it is tried again: %s", full_name, error)

    async def _poll_repository(
        self, installation_id: int, full_name: str, pending: list[tuple[Request, Profile]]
    ) -> None:
        try:
            days = (await self._ports.configs.of(installation_id, full_name)).approval_days
        except ConfigMistake:
            days = inf  # nothing expires while nobody knows when
        waiting = []
        for request, profile in pending:
            if expired(_shown_at(profile), now(), days):
                await self._expire(request, days)
            else:
                waiting.append((request, profile))
        repository = self._ports.github.repository(installation_id, full_name)
        for request_id, answers in (await self._answered(repository, waiting)).items():
            before, again_at, wait_s = self._decided_nothing.get(request_id, (None, 0.0, 0.0))
            if answers is None or answers != before or time.monotonic() > again_at:
                await self.read(request_id)
                if answers is not None:
                    wait_s = min(2 * wait_s, SELDOM_AGAIN_S) if answers == before else AGAIN_S
                    self._decided_nothing[request_id] = (answers, time.monotonic() + wait_s, wait_s)

    async def _answered(
        self, repository: GitHubRepository, pending: list[tuple[Request, Profile]]
    ) -> dict[str, frozenset[int] | None]:
        """Requests whose profile may have been answered, and the answers' ids: one question for all.

        When it isn't understood it's all of them, and the answers are None.
        """
        nodes = {
            profile.comment_node_id: request.id for request, profile in pending if profile.comment_node_id
        }
        if not self._one_question:
            return dict.fromkeys(nodes.values())
        try:
            found = await repository.reacted(list(nodes))
            return {nodes[node]: answers for node, answers in found.items()}
        except (RejectedError, NotFoundError, UnreachableError) as error:
            self._one_question = error.status not in {404, 501}
            log.warning("reactions are read one by one: %s", error)
            return dict.fromkeys(nodes.values())

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
            reactions = await repository.reactions(profile.comment_id)
            # after the reactions: what was edited before one of them came is then seen
            comment = await repository.comment(profile.comment_id)
        except NotFoundError:
            await self._ports.status.show_profile(request_id)
            return
        answers = [one for one in reactions if one.content in {APPROVE, VETO}]
        if not answers:
            return
        try:
            config = await self._ports.config(request)
        except ConfigMistake as mistake:
            await self._tell_once(request, comment.id, mistake)
            return
        people = {one.login for one in answers if one.user_type == "User"}
        permissions = {login: await repository.permission(login) for login in people}
        approvers = {
            login
            for login, permission in permissions.items()
            if await is_among(config.approvers, repository, login, permission)
        }
        seen = [
            SeenReaction(
                one.id,
                one.content,
                one.login,
                one.user_type,
                permissions.get(one.login, "none"),
                one.created_at,
                approver=one.login in approvers,
            )
            for one in answers
        ]
        judgement = judge_reactions(
            seen,
            _shown(request, profile),
            body_sha256(comment.body),
            requester_may_approve=config.requester_may_approve,
        )
        if judgement.by is None:
            return
        try:
            await self._follow(judgement.answer, judgement.by, request, profile)
        except IllegalMoveError as error:
            log.info("request %s: someone else's answer came first: %s", request_id, error)

    async def _tell_once(self, request: Request, comment_id: int, mistake: ConfigMistake) -> None:
        """Someone answered, and nothing can follow from it: say why, once for each profile that was shown."""
        log.warning("request %s: answers wait for the configuration: %s", request.id, mistake)
        if request.id not in self._told:
            repository = self._ports.repository(request)
            text = replies.broken_config(request.requester, str(mistake))
            await answer(repository, request.issue_number, comment_id, text)
            self._told.add(request.id)

    async def _tell_early(self, request: Request, profile: Profile, login: str) -> None:
        """Someone took the progress comment's 👍 for an answer to the profile that came later: say so, once a profile."""
        told = f"{request.id}-{profile.sha256[:12]}"
        if told not in self._told:
            text = replies.early(login, profile.sha256)
            await answer(self._ports.repository(request), request.issue_number, told, text)
            self._told.add(told)

    async def _follow(self, judged: Answer, by: SeenReaction, request: Request, profile: Profile) -> None:
        match judged:
            case Answer.approved:
                await self.approve(request, profile, by.login, "reaction", by.id)
            case Answer.vetoed:
                await self.reject(request, by.login, "👎")
            case Answer.early:
                await self._tell_early(request, profile, by.login)
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
        return body_sha256(comment.body) not in {profile.body_sha256, profile.earlier_body_sha256}

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

    async def _expire(self, request: Request, days: float) -> None:
        self._ports.store.move(request.id, State.expired, f"no answer in {days:g} days")
        try:
            await self._ports.status.put(request.id)
        except GitHubError as error:
            log.warning("request %s: expired, not shown: %s", request.id, error)


def _shown_at(profile: Profile) -> datetime:
    return profile.shown_at or profile.created_at


def _shown(request: Request, profile: Profile) -> Shown:
    return Shown(
        profile_sha256=profile.sha256,
        body_sha256=profile.body_sha256 or "",
        shown_at=profile.shown_at or datetime.max.replace(tzinfo=profile.created_at.tzinfo),
        stale_reactions=frozenset(profile.stale_reactions or []),
        requester=request.requester,
        earlier_body_sha256=profile.earlier_body_sha256 or "",
    )
