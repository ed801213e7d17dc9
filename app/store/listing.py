"""The list of requests as the pages show it: filtered, counted, a page at a time."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import ColumnElement, func, or_, select

from app.states import State
from app.store.sessions import Sessions
from app.tables import Request


@dataclass(frozen=True)
class Filters:
    """What a person looks for; what is empty doesn't filter. states: any of them."""

    states: frozenset[State] = frozenset()
    verb: str = ""
    repository: str = ""
    requester: str = ""
    text: str = ""


@dataclass(frozen=True)
class Listed:
    """One page of the list, newest first, and how many requests there are on all of them."""

    requests: list[Request]
    total: int


class Listing(Sessions):
    """Reads of the list."""

    def repositories(self) -> dict[str, int]:
        """Every repository with a request, and the newest installation that it was seen through."""
        with self._session() as session:
            query = select(Request.repository, func.max(Request.installation_id)).group_by(Request.repository)
            return {row[0]: row[1] for row in session.execute(query)}

    def newest_installation(self, repository: str) -> int:
        """The newest installation that a repository was seen through: an App that was installed again has another id."""
        with self._session() as session:
            newest = select(func.max(Request.installation_id)).where(Request.repository == repository)
            return session.scalar(newest) or 0

    def listed(self, filters: Filters, among: Collection[str], *, offset: int, limit: int) -> Listed:
        """A page of the requests that match. among: repositories that may be seen; nothing of any other is counted."""
        where = [Request.repository.in_(sorted(among)), *_conditions(filters)]
        with self._session() as session:
            total = session.scalar(select(func.count()).select_from(Request).where(*where)) or 0
            query = select(Request).where(*where).order_by(Request.created_at.desc(), Request.id)
            return Listed(list(session.scalars(query.offset(offset).limit(limit))), total)


def _conditions(filters: Filters) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = []
    if filters.states:
        found.append(Request.state.in_(sorted(filters.states)))
    if filters.verb:
        found.append(Request.verb == filters.verb)
    if filters.repository:
        found.append(Request.repository == filters.repository)
    if filters.requester:
        found.append(func.lower(Request.requester) == filters.requester.lower())
    if filters.text:
        found.append(_holds(filters.text))
    return found


def _holds(text: str) -> ColumnElement[bool]:
    """An id's beginning, words of the command, or the number of an issue or pull request."""
    either = [
        Request.id.startswith(text.lower(), autoescape=True),
        Request.op_text.icontains(text, autoescape=True),
        Request.op_key.icontains(text, autoescape=True),
    ]
    number = text.removeprefix("#")
    if number.isascii() and number.isdecimal() and len(number) < 10:
        either += [Request.issue_number == int(number), Request.pull_number == int(number)]
    return or_(*either)
