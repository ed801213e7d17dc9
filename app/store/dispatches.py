"""Jobs sent to GitHub Actions: what was meant to be sent, what became of it, and the minutes it took."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import select

from app.store.sessions import Sessions, now
from app.tables import StoredDispatch

SETTLED = "settled"


class Dispatches(Sessions):
    """Dispatches of jobs."""

    def start_dispatch(self, dispatch: StoredDispatch) -> StoredDispatch:
        """The dispatch with that id: the one given, or the one started before (its nonce and run stand)."""
        with self._session() as session:
            known = session.get(StoredDispatch, dispatch.id)
            if known is not None:
                return known
            session.add(dispatch)
            return dispatch

    def update_dispatch(self, identifier: str, **changes: Any) -> StoredDispatch:
        """Change an open dispatch; one that is settled stays as it is."""
        with self._session() as session:
            dispatch = session.get_one(StoredDispatch, identifier, with_for_update=True)
            if dispatch.state != SETTLED:
                for name, value in changes.items():
                    setattr(dispatch, name, value)
            return dispatch

    def settle_dispatch(
        self, identifier: str, *, fault: str = "", detail: str = "", report: dict[str, Any] | None = None
    ) -> StoredDispatch:
        """Close a dispatch with its report, or with why there is none; the first word stands."""
        return self.update_dispatch(
            identifier, state=SETTLED, fault=fault, detail=detail, report=report, settled_at=now()
        )

    def dispatch(self, identifier: str) -> StoredDispatch | None:
        with self._session() as session:
            return session.get(StoredDispatch, identifier)

    def dispatches_of_job(self, job_id: str) -> list[StoredDispatch]:
        with self._session() as session:
            query = select(StoredDispatch).where(StoredDispatch.job_id == job_id)
            return list(session.scalars(query.order_by(StoredDispatch.architecture)))

    def open_dispatches(self, request_id: str | None = None) -> list[StoredDispatch]:
        """Those that still wait for a report, oldest first; of one request, or of all."""
        with self._session() as session:
            query = select(StoredDispatch).where(StoredDispatch.state != SETTLED)
            if request_id is not None:
                query = query.where(StoredDispatch.request_id == request_id)
            return list(session.scalars(query.order_by(StoredDispatch.created_at)))

    def dispatch_of_run(self, repository: str, run_id: int, nonce: str) -> StoredDispatch | None:
        """The dispatch that a workflow run belongs to: by its id, or by the nonce in the run's name."""
        with self._session() as session:
            query = select(StoredDispatch).where(
                StoredDispatch.repository == repository,
                (StoredDispatch.run_id == run_id) | (StoredDispatch.nonce == nonce),
            )
            return session.scalars(query).first()

    def gpu_minutes(self, repository: str, since: datetime, request_id: str | None = None) -> float:
        """Minutes that runners worked for a repository, or for one of its requests, since then."""
        with self._session() as session:
            query = select(StoredDispatch).where(
                StoredDispatch.repository == repository, StoredDispatch.started_at > since
            )
            if request_id is not None:
                query = query.where(StoredDispatch.request_id == request_id)
            spent = timedelta()
            for one in session.scalars(query):
                if one.started_at is not None:
                    spent += (one.settled_at or now()) - one.started_at
            return spent.total_seconds() / 60
