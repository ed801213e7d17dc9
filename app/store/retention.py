"""What is thrown away of requests that ended long ago; what they decided, and how they ended, stays."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import delete, null, select, update

from app.states import ENDED
from app.store.sessions import Sessions, now
from app.tables import LogLine, Request, StoredDispatch, StoredJob


class Retention(Sessions):
    """Deletes what is old and large."""

    def forget_reports(self, older_than_days: float) -> None:
        """Delete the jobs' reports of requests that ended before that, and lines of jobs that are as old."""
        before = now() - timedelta(days=older_than_days)
        ended = [str(state) for state in ENDED]
        old = select(Request.id).where(Request.state.in_(ended), Request.updated_at < before)
        with self._session() as session:
            session.execute(
                update(StoredJob)
                .where(StoredJob.request_id.in_(old), StoredJob.created_at < before)
                .values(report=null())
            )
            session.execute(
                update(StoredDispatch)
                .where(StoredDispatch.request_id.in_(old), StoredDispatch.created_at < before)
                .values(report=null(), packed="")
            )
            session.execute(delete(LogLine).where(LogLine.at < before))
