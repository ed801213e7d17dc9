"""What happened to a request, and the short answers given to people."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import func, select

from app.store.sessions import Sessions, add_event, now
from app.tables import Event, Reply


class History(Sessions):
    """Events and replies."""

    def note(self, identifier: str, kind: str, text: str) -> None:
        with self._session() as session:
            add_event(session, identifier, kind, text)

    def events(self, identifier: str) -> list[Event]:
        with self._session() as session:
            return list(
                session.scalars(select(Event).where(Event.request_id == identifier).order_by(Event.id))
            )

    def replies_today(self, repository: str, number: int, login: str, comment_id: int) -> int:
        """Replies that a person got on an issue in the last 24 hours, other than the one to that comment."""
        with self._session() as session:
            query = select(func.count()).where(
                Reply.repository == repository,
                Reply.issue_number == number,
                Reply.login == login,
                Reply.comment_id != comment_id,
                Reply.at > now() - timedelta(days=1),
            )
            return session.scalar(query) or 0

    def record_reply(self, repository: str, number: int, login: str, comment_id: int) -> None:
        with self._session() as session:
            session.merge(
                Reply(
                    repository=repository, comment_id=comment_id, issue_number=number, login=login, at=now()
                )
            )
