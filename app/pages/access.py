"""Which repositories a visitor may see requests of: public ones, and those that their own token can read."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from app.github import ForbiddenError, GitHubApp, GitHubError, NotFoundError, UnreachableError
from app.github.visitors import Visitors

log = logging.getLogger(__name__)

KEPT_S = 60.0
# A repository that was public when GitHub could last be asked stays so for a while when it can't.
KEPT_UNREACHABLE_S = 3600.0
MAX_KEPT = 10_000
AT_ONCE = 10


@dataclass(frozen=True)
class Visitor:
    """A person who signed in. Their token is in their browser's cookie, sealed, and nowhere else."""

    login: str
    token: str

    def __repr__(self) -> str:
        return f"Visitor({self.login!r})"

    @property
    def key(self) -> str:
        """What answers to this visitor's token are kept under."""
        return hashlib.sha256(self.token.encode()).hexdigest()


class SignedOutError(Exception):
    """The visitor's token is not valid any more."""


class Access:
    """Asks GitHub, and remembers its answer for KEPT_S seconds."""

    def __init__(self, github: GitHubApp, visitors: Visitors | None):
        self._github, self._visitors = github, visitors
        self._known: dict[tuple[str, str], tuple[float, bool]] = {}
        self._few = asyncio.Semaphore(AT_ONCE)

    async def may_see(self, repository: str, installation_id: int, visitor: Visitor | None) -> bool:
        """Whether a visitor may see requests of a repository. Raises UnreachableError, SignedOutError."""
        if await self._public(repository, installation_id):
            return True
        return visitor is not None and await self._readable(repository, visitor)

    async def visible(
        self, repositories: Mapping[str, int], visitor: Visitor | None
    ) -> tuple[set[str], set[str]]:
        """(those that may be seen, those that GitHub couldn't be asked about). Raises SignedOutError."""
        await self._ask_together(repositories)
        answers = await asyncio.gather(
            *(self._answer(name, installation, visitor) for name, installation in repositories.items())
        )
        return (
            {name for name, answer in zip(repositories, answers, strict=True) if answer},
            {name for name, answer in zip(repositories, answers, strict=True) if answer is None},
        )

    async def refresh(self, repositories: Mapping[str, int]) -> None:
        """Ask about all of them again before what is known gets too old, so that nobody has to wait for it."""
        await asyncio.gather(*(self._list(one) for one in set(repositories.values())))

    async def _ask_together(self, repositories: Mapping[str, int]) -> None:
        """One question for all repositories of an installation; what it doesn't answer is asked one by one."""
        unknown = [name for name in repositories if self._recent(("", name), KEPT_S) is None]
        installations = Counter(repositories[name] for name in unknown)
        await asyncio.gather(*(self._list(one) for one, count in installations.items() if count > 1))

    async def _list(self, installation_id: int) -> None:
        try:
            async with self._few:
                visibilities = await self._github.visibilities(installation_id)
        except GitHubError as error:
            log.info("the repositories of installation %s can't be listed: %s", installation_id, error)
            return
        for name, public in visibilities.items():
            self._keep(("", name), public)

    async def _answer(self, name: str, installation_id: int, visitor: Visitor | None) -> bool | None:
        try:
            return await self.may_see(name, installation_id, visitor)
        except GitHubError:
            return None

    async def _public(self, repository: str, installation_id: int) -> bool:
        key = ("", repository)
        known = self._recent(key, KEPT_S)
        if known is not None:
            return known
        try:
            async with self._few:
                public = await self._github.repository(installation_id, repository).public()
        except (NotFoundError, ForbiddenError):
            public = False  # gone, or not ours to see any more: then only a person's own token opens it
        except GitHubError as error:
            if self._recent(key, KEPT_UNREACHABLE_S):
                return True
            raise UnreachableError(str(error), error.status, error.retry_after_s) from None
        return self._keep(key, public)

    async def _readable(self, repository: str, visitor: Visitor) -> bool:
        if self._visitors is None:
            return False
        key = (visitor.key, repository)
        known = self._recent(key, KEPT_S)
        if known is not None:
            return known
        try:
            async with self._few:
                readable = await self._visitors.can_read(visitor.token, repository)
        except ForbiddenError:
            raise SignedOutError from None
        return self._keep(key, readable)

    def forget(self, visitor: Visitor) -> None:
        """Drop what is known of a visitor who signs out."""
        for key in [key for key in self._known if key[0] == visitor.key]:
            del self._known[key]

    def _recent(self, key: tuple[str, str], seconds: float) -> bool | None:
        known = self._known.get(key)
        return known[1] if known is not None and time.monotonic() - known[0] < seconds else None

    def _keep(self, key: tuple[str, str], answer: bool) -> bool:
        if len(self._known) >= MAX_KEPT:
            self._drop(_oldest(self._known.items()))
        self._known[key] = (time.monotonic(), answer)
        return answer

    def _drop(self, keys: Iterable[tuple[str, str]]) -> None:
        for key in keys:
            del self._known[key]


def _oldest(known: Iterable[tuple[tuple[str, str], tuple[float, bool]]]) -> list[tuple[str, str]]:
    """The older half."""
    by_age = sorted(known, key=lambda item: item[1][0])
    return [key for key, _ in by_age[: len(by_age) // 2]]
