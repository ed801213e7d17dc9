"""Transactions on our tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Self

from sqlalchemy import Engine
from sqlalchemy.orm import Session, sessionmaker

from app.database import for_reading
from app.states import State
from app.tables import Event


def now() -> datetime:
    return datetime.now(UTC)


class Sessions:
    """What every part of the store works with."""

    def __init__(self, engine: Engine):
        self._engine = engine
        self._sessions = sessionmaker(engine, expire_on_commit=False)

    def reader(self) -> Self:
        """The same tables for pages and metrics, which only read: on SQLite they neither wait for a writer nor hold one up."""
        return type(self)(for_reading(self._engine))

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def _session(self) -> Iterator[Session]:
        with self._sessions.begin() as session:
            yield session


def add_event(session: Session, identifier: str, kind: str, text: str, state: State | None = None) -> None:
    """Add a line to a request's history, within a transaction."""
    session.add(Event(request_id=identifier, at=now(), kind=kind, text=text, state=state))
