"""The processes that share this database."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import delete, select

from app.store.sessions import Sessions, now
from app.tables import Executor


class Executors(Sessions):
    """Heartbeats."""

    def heartbeat(self, executor_id: str, process: str) -> None:
        with self._session() as session:
            session.merge(Executor(id=executor_id, process=process, heartbeat_at=now()))

    def executor(self, executor_id: str) -> Executor | None:
        with self._session() as session:
            return session.get(Executor, executor_id)

    def executors(self) -> list[Executor]:
        """Every process that has not been forgotten, alive or not."""
        with self._session() as session:
            return list(session.scalars(select(Executor)))

    def forget_silent_executors(self, silent_s: float) -> None:
        """Forget processes that have long been silent; one that speaks again is known again."""
        with self._session() as session:
            session.execute(
                delete(Executor).where(Executor.heartbeat_at < now() - timedelta(seconds=silent_s))
            )

    def forget_executor(self, executor_id: str) -> None:
        with self._session() as session:
            executor = session.get(Executor, executor_id)
            if executor is not None:
                session.delete(executor)
