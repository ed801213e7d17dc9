"""What the live page of a request follows: lines of running jobs, and a stamp that changes whenever the page does."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import delete, func, select

from app.store.sessions import Sessions, now
from app.tables import Event, LogLine, ModelQuestion, Profile, Request, StoredDispatch, StoredJob

LOG_LINES_KEPT = 200


class Watching(Sessions):
    """Lines and stamps."""

    def log_line(self, request_id: str, text: str) -> None:
        """Keep a line of what is going on; the oldest beyond LOG_LINES_KEPT go."""
        with self._session() as session:
            session.add(LogLine(request_id=request_id, at=now(), text=text))
            session.flush()
            newest = (
                select(LogLine.id)
                .where(LogLine.request_id == request_id)
                .order_by(LogLine.id.desc())
                .offset(LOG_LINES_KEPT)
                .limit(1)
            )
            last_to_go = session.scalar(newest)
            if last_to_go is not None:
                session.execute(
                    delete(LogLine).where(LogLine.request_id == request_id, LogLine.id <= last_to_go)
                )

    def log_lines(self, request_id: str, limit: int) -> list[LogLine]:
        """The newest lines, oldest of them first."""
        with self._session() as session:
            query = select(LogLine).where(LogLine.request_id == request_id).order_by(LogLine.id.desc())
            return list(reversed(session.scalars(query.limit(limit)).all()))

    def dispatches(self, request_id: str) -> list[StoredDispatch]:
        """All that was sent to runners for a request, oldest first."""
        with self._session() as session:
            query = select(StoredDispatch).where(StoredDispatch.request_id == request_id)
            return list(session.scalars(query.order_by(StoredDispatch.created_at, StoredDispatch.id)))

    def stamps(self, request_ids: Collection[str]) -> dict[str, str]:
        """For each request that exists, a text that differs once anything on its page does. Five small queries for all."""
        marks: dict[str, list[str]] = {}
        queries = [
            select(Request.id, Request.updated_at).where(Request.id.in_(request_ids)),
            *(
                select(table.request_id, func.count(), *columns)
                .where(table.request_id.in_(request_ids))
                .group_by(table.request_id)
                for table, columns in (
                    (Event, [func.max(Event.id)]),
                    (LogLine, [func.max(LogLine.id)]),
                    (ModelQuestion, [func.max(ModelQuestion.id)]),
                    (Profile, [func.count(Profile.schedules), func.max(Profile.shown_at)]),
                    (StoredJob, [func.count(StoredJob.conclusion), func.max(StoredJob.finished_at)]),
                    (
                        StoredDispatch,
                        [
                            func.count(StoredDispatch.sent_at),
                            func.count(StoredDispatch.started_at),
                            func.count(StoredDispatch.settled_at),
                        ],
                    ),
                )
            ),
        ]
        with self._session() as session:
            for number, query in enumerate(queries):
                for row in session.execute(query):
                    marks.setdefault(row[0], []).append(f"{number}:{row[1:]}")
        return {identifier: "|".join(parts) for identifier, parts in marks.items() if parts[0][0] == "0"}
