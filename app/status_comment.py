"""Puts the status comment of a request where people read it, and keeps it up to date."""

from __future__ import annotations

import logging
import time
from datetime import timedelta

from app.comments.status import body_sha256, marker, status_markdown
from app.github import Comment, GitHubApp, GitHubError, GitHubRepository, NotFoundError
from app.outbox import Outbox
from app.policy import APPROVE, VETO
from app.repository_config import RepositoryConfig
from app.repository_config_source import RepositoryConfigs
from app.request_view import status_view
from app.settings import Settings
from app.states import State
from app.store import Store, now
from app.tables import Request

log = logging.getLogger(__name__)

LINE_EVERY_S = 1.0


class StatusComments:
    """One comment a request, found by its marker and edited in place."""

    def __init__(self, settings: Settings, store: Store, github: GitHubApp):
        self._settings, self._store, self._github = settings, store, github
        self._edited_at: dict[str, float] = {}
        self._noted_at: dict[str, float] = {}
        self.outbox = Outbox(store, settings.executor_id)
        self.configs = RepositoryConfigs.of_settings(settings, github)

    async def put(self, request_id: str, note: str = "") -> None:
        """Bring the comment up to date; not while a profile waits in it, whose approval is bound to its last edit."""
        request = self._store.request(request_id)
        if State(request.state) is State.awaiting_approval:
            return
        await self._write(request, self._body(request, await self._config(request), note))

    async def progress(self, request_id: str, note: str) -> None:
        """The same for a passing remark: skipped when the last edit is recent, and when GitHub doesn't take it."""
        if time.monotonic() - self._noted_at.get(request_id, 0.0) >= LINE_EVERY_S:
            self._noted_at[request_id] = time.monotonic()
            self._store.log_line(request_id, note)  # for the request's page, which may be another process'
        if time.monotonic() - self._edited_at.get(request_id, 0.0) < self._settings.live_edit_seconds:
            return
        self._edited_at[request_id] = time.monotonic()
        try:
            await self.put(request_id, note)
        except GitHubError as error:
            log.warning("request %s: progress not shown: %s", request_id, error)

    async def show_profile(self, request_id: str) -> None:
        """Put the newest profile before people and remember exactly how, so that an approval can be tied to it."""
        request = self._store.request(request_id)
        profile = self._store.profile(request_id, request.attempt)
        if profile is None:
            raise LookupError(f"request {request_id} has no profile for attempt {request.attempt}")
        body = self._body(request, await self._config(request), state=State.awaiting_approval)
        comment, edited = await self._write(request, body)
        reactions = await self._repository(request).reactions(comment.id)
        answers = [one for one in reactions if one.content in {APPROVE, VETO}]
        # GitHub's times have whole seconds: of the second in which it was written, what is there already came before
        stale = [
            one.id
            for one in answers
            if one.created_at < comment.updated_at or (edited and one.created_at == comment.updated_at)
        ]
        self._store.profile_shown(
            request_id,
            request.attempt,
            comment_id=comment.id,
            comment_node_id=comment.node_id,
            body_sha256=body_sha256(body),
            shown_at=comment.updated_at,
            stale_reactions=stale,
        )

    async def extend_profile(self, request_id: str) -> None:
        """Say what has come since of a profile that waits. It is the same profile: answers already given go on counting."""
        request = self._store.request(request_id)
        profile = self._store.profile(request_id, request.attempt)
        if (
            State(request.state) is not State.awaiting_approval
            or profile is None
            or profile.comment_id is None
        ):
            return
        repository = self._repository(request)
        body = self._body(request, await self._config(request))
        comment = await repository.comment(profile.comment_id)
        if body_sha256(comment.body) not in {profile.body_sha256, profile.earlier_body_sha256}:
            log.info("request %s: the profile's comment was edited by someone; nothing is added", request_id)
            return
        # first the note, then the edit: between the two either text counts
        if profile.body_sha256 != body_sha256(body):
            self._store.profile_extended(request_id, request.attempt, body_sha256(body))
        await repository.update_comment(profile.comment_id, body)
        await self.put(
            request_id
        )  # for an answer that came meanwhile; while the profile waits it does nothing

    def _repository(self, request: Request) -> GitHubRepository:
        return self._github.repository(request.installation_id, request.repository)

    async def _config(self, request: Request) -> RepositoryConfig:
        return await self.configs.for_show(request.installation_id, request.repository)

    def _body(
        self, request: Request, config: RepositoryConfig, note: str = "", state: State | None = None
    ) -> str:
        profile = self._store.profile(request.id)
        view = status_view(
            request,
            self._store.events(request.id),
            profile=profile,
            approval=self._store.approval(request.id, profile.sha256) if profile else None,
            jobs=self._store.jobs(request.id),
            page_url=f"{self._settings.pages_url}/requests/{request.id}",
            now=now(),
            approval_days=config.approval_days,
            requester_may_approve=config.requester_may_approve,
            note=note,
            state=state,
        )
        return status_markdown(view)

    async def _write(self, request: Request, body: str) -> tuple[Comment, bool]:
        """(the comment, whether it was written just now)."""
        if request.status_comment_id is not None:
            return await self._find_and_write(request, body)
        async with self.outbox.making(marker(request.id)):
            return await self._find_and_write(self._store.request(request.id), body)

    async def _find_and_write(self, request: Request, body: str) -> tuple[Comment, bool]:
        repository = self._repository(request)
        known = await self._find(repository, request)
        self._edited_at[request.id] = time.monotonic()
        if known is not None and body_sha256(known.body) == body_sha256(body):
            return known, False
        if known is not None:
            return await repository.update_comment(known.id, body), True
        comment = await repository.create_comment(request.issue_number, body)
        self._store.update_request(request.id, status_comment_id=comment.id)
        return comment, True

    async def _find(self, repository: GitHubRepository, request: Request) -> Comment | None:
        if request.status_comment_id is not None:
            try:
                return await repository.comment(request.status_comment_id)
            except NotFoundError:
                log.info("request %s: its status comment is gone; a new one is written", request.id)
        # It may have been written just before a crash; GitHub's clock and ours need not agree.
        since = request.created_at - timedelta(minutes=10)
        comment = await repository.find_comment(request.issue_number, marker(request.id), since)
        if comment is not None:
            self._store.update_request(request.id, status_comment_id=comment.id)
        return comment
