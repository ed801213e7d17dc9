"""The list of requests: what the address asks for, and what the page shows of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from app.request_view import command_of
from app.states import ENDED, LIVE, RUNNING, State
from app.store import Filters, Listed
from app.tables import Request

A_PAGE = 50
MAX_PAGE = 100_000
MAX_TEXT = 200
# What people ask for more often than for a single state.
GROUPS: dict[str, tuple[str, frozenset[State]]] = {
    "open": ("open", LIVE),
    "running": ("at work", frozenset(RUNNING)),
    "waiting": ("waiting for people", frozenset({State.awaiting_approval, State.in_review})),
    "ended": ("ended", ENDED),
}
_NAMES = ("state", "command", "repository", "requester", "text")


@dataclass(frozen=True)
class Asked:
    """The filters as they stand in the address, and the page's number from 1."""

    state: str = ""
    command: str = ""
    repository: str = ""
    requester: str = ""
    text: str = ""
    page: int = 1

    @property
    def filtered(self) -> bool:
        return any(getattr(self, name) for name in _NAMES)

    def filters(self) -> Filters:
        """The same for the store. An unknown state was dropped before."""
        if self.state in GROUPS:
            states = GROUPS[self.state][1]
        else:
            states = frozenset({State(self.state)}) if self.state in set(State) else frozenset()
        return Filters(states, self.command, self.repository, self.requester, self.text)

    def address(self, page: int) -> str:
        """This list at another page."""
        given = {name: getattr(self, name) for name in _NAMES if getattr(self, name)}
        given |= {"page": str(page)} if page > 1 else {}
        return "/requests" + (f"?{urlencode(given)}" if given else "")


def asked(query: Mapping[str, str]) -> Asked:
    """What an address asks for; whatever makes no sense in it is as if it weren't there."""
    values = {name: query.get(name, "").replace("\0", "").strip()[:MAX_TEXT] for name in _NAMES}
    values["requester"] = values["requester"].removeprefix("@")
    if values["state"] not in GROUPS and values["state"] not in set(State):
        values["state"] = ""
    page = query.get("page", "1")
    number = int(page) if page.isascii() and page.isdecimal() and len(page) < 9 else 1
    return Asked(**values, page=min(max(1, number), MAX_PAGE))


@dataclass(frozen=True)
class Row:
    """One request in the list."""

    request: Request
    command: str


@dataclass(frozen=True)
class ListPage:
    """The page. unasked: repositories left out because GitHub couldn't be asked about them."""

    asked: Asked
    rows: list[Row]
    total: int
    repositories: list[str]
    unasked: list[str]

    @property
    def pages(self) -> int:
        return max(1, -(-self.total // A_PAGE))

    @property
    def first(self) -> int:
        return (self.asked.page - 1) * A_PAGE + 1

    @property
    def last(self) -> int:
        return self.first + len(self.rows) - 1

    @property
    def numbers(self) -> list[int]:
        """Pages that get a link of their own: the first, the last, and those around this one."""
        near = range(self.asked.page - 2, self.asked.page + 3)
        return sorted({1, self.pages, *near} & set(range(1, self.pages + 1)))


def list_page(asked_for: Asked, listed: Listed, visible: set[str], unasked: set[str]) -> ListPage:
    """What the page shows."""
    rows = [Row(request, command_of(request)) for request in listed.requests]
    return ListPage(asked_for, rows, listed.total, sorted(visible), sorted(unasked))
