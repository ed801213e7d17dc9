"""The processes that share this database."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import select

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

    def silent_executors(self, silent_s: float) -> list[str]:
        with self._session() as session:
            return list(
                session.scalars(
                    select(Executor.id).where(Executor.heartbeat_at < now() - timedelta(seconds=silent_s))
                )
            )

    def forget_executor(self, executor_id: str) -> None:
        with self._session() as session:
            executor = session.get(Executor, executor_id)
            if executor is not None:
                session.delete(executor)
