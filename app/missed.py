"""Looks for what GitHub couldn't tell us: deliveries that failed, comments and closed pull requests that no delivery told of."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

from app.commands import parse
from app.deliveries import MODELS, comment_subject
from app.github import GitHubError, GitHubRepository, NotFoundError
from app.ports import Ports
from app.states import State
from app.store import NewDelivery, now
from app.tables import Request

log = logging.getLogger(__name__)

# GitHub sends a delivery again for three days.
LOOK_BACK = timedelta(days=3)
# A comment's delivery may be on its way; and GitHub's clock and ours need not agree.
GIVE_TIME = timedelta(seconds=60)
OVERLAP = timedelta(minutes=10)
PAGES_A_SWEEP = 10
_WITH_PULL = (State.verifying, State.repairing, State.in_review)

Accept = Callable[[NewDelivery], Awaitable[bool]]  # keeps a delivery; False when it is known


class Missed:
    """Remembers how far it has looked; what it finds goes the way of every delivery, and counts once."""

    def __init__(self, ports: Ports, accept: Accept, give_time: timedelta = GIVE_TIME):
        self._ports, self._accept, self._give_time = ports, accept, give_time
        self._began = now()
        self._deliveries_since: datetime | None = None
        self._comments_since: dict[str, datetime] = {}

    async def ask_for_deliveries(self) -> int:
        """Have GitHub send again what it couldn't hand over, for instance while we were down; returns how many."""
        started, asked = now(), 0
        since = self._deliveries_since or started - LOOK_BACK
        for delivery in await self._ports.github.failed_deliveries(since):
            known = await asyncio.to_thread(self._ports.store.delivery, delivery.guid)
            if delivery.event in MODELS and known is None:
                await self._ports.github.redeliver(delivery.id)
                asked += 1
        self._deliveries_since = max(since, started - OVERLAP)
        if asked:
            log.info("asked GitHub to send %s missed deliveries again", asked)
        return asked

    async def sweep_comments(self) -> int:
        """Follow commands in comments that no delivery told of; returns how many.

        Nothing is swept from before the first delivery that is known: a new service doesn't answer old comments.
        """
        found = 0
        first = await asyncio.to_thread(self._ports.store.first_delivery_at) or self._began
        begin = max(now() - LOOK_BACK, first - OVERLAP)
        for installation_id, full_name in await self._ports.github.installed_repositories():
            repository = self._ports.github.repository(installation_id, full_name)
            since = self._comments_since.get(full_name, begin)
            try:
                found += await self._sweep_repository(repository, installation_id, since, first)
            except GitHubError as error:
                log.warning("%s: missed comments can't be looked for: %s", full_name, error)
        return found

    async def _sweep_repository(
        self, repository: GitHubRepository, installation_id: int, since: datetime, first: datetime
    ) -> int:
        found, seen = 0, since
        for page in range(1, PAGES_A_SWEEP + 1):
            comments = await repository.comments_since(since, page)
            written = {comment_subject(repository.full_name, one["id"]): one for one in comments}
            untold = await asyncio.to_thread(self._ports.store.untold, list(written))
            for subject in untold:
                comment = written[subject]
                created = datetime.fromisoformat(comment["created_at"])
                if not first - OVERLAP <= created <= now() - self._give_time:
                    continue
                command = await asyncio.to_thread(parse, comment["body"] or "")
                if command is None or (comment["user"] or {}).get("type") != "User":
                    continue
                log.info("%s: no delivery told of comment %s", repository.full_name, comment["id"])
                event = _comment_event(repository.full_name, installation_id, comment)
                found += await self._take(f"sweep-comment-{comment['id']}", "issue_comment", event, subject)
            if comments:
                seen = max(seen, datetime.fromisoformat(comments[-1]["updated_at"]))
            if len(comments) < 100:
                break
        self._comments_since[repository.full_name] = max(since, min(seen, now()) - OVERLAP)
        return found

    async def sweep_pulls(self) -> int:
        """Notice pull requests of ours that were merged or closed without a delivery telling of it; returns how many."""
        found = 0
        for request in await asyncio.to_thread(self._ports.store.requests_in, _WITH_PULL):
            if request.pull_number is None:
                continue
            try:
                found += await self._look_at_pull(request, request.pull_number)
            except GitHubError as error:
                log.warning("request %s: its pull request can't be read: %s", request.id, error)
        return found

    async def _look_at_pull(self, request: Request, number: int) -> int:
        repository = self._ports.repository(request)
        try:
            pull, issue = await repository.raw_pull(number)
        except NotFoundError:
            return 0
        if pull["state"] != "closed":
            return 0
        us = (await self._ports.github.identity()).login
        by = pull.get("merged_by") or issue.get("closed_by") or {"login": "ghost", "id": 0, "type": "User"}
        if by["login"] == us:
            return 0
        event = {
            "action": "closed",
            "pull_request": pull,
            "sender": by,
            "repository": {"full_name": request.repository},
            "installation": {"id": request.installation_id},
        }
        guid = f"sweep-pull-{request.id}-{number}-{pull['closed_at']}"
        return await self._take(guid, "pull_request", event, "")

    async def _take(self, guid: str, event: str, payload: dict[str, Any], subject: str) -> bool:
        return await self._accept(NewDelivery(guid, event, json.dumps(payload), subject))


def _comment_event(full_name: str, installation_id: int, comment: dict[str, Any]) -> dict[str, Any]:
    """What GitHub would have delivered, as far as it is read."""
    return {
        "action": "created",
        "issue": {"number": int(comment["issue_url"].rsplit("/", 1)[1])},
        "comment": comment,
        "sender": comment["user"],
        "repository": {"full_name": full_name},
        "installation": {"id": installation_id},
    }
