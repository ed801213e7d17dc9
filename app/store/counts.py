"""What the metrics are made of: counts and sums over our tables."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import func, select, text

from app.states import State
from app.store.sessions import Sessions, now
from app.tables import Delivery, Event, Executor, ModelQuestion, Request, StoredDispatch, StoredJob


@dataclass(frozen=True)
class ModelUse:
    """What one model was asked. usd: as far as prices are known."""

    model: str
    questions: int
    input_tokens: int
    output_tokens: int
    usd: float


@dataclass(frozen=True)
class Move:
    """One change of a request's state; at: seconds since 1970."""

    event_id: int
    request_id: str
    state: State
    at: float


class Counts(Sessions):
    """Reads for the metrics; none of them names a person."""

    def ping(self) -> None:
        """Raises sqlalchemy.exc.SQLAlchemyError when the database doesn't answer."""
        with self._session() as session:
            session.execute(text("SELECT 1"))

    def requests_by_state(self) -> dict[str, int]:
        with self._session() as session:
            query = select(Request.state, func.count()).group_by(Request.state)
            return {row[0]: row[1] for row in session.execute(query)}

    def deliveries_by_state(self) -> dict[str, int]:
        with self._session() as session:
            query = select(Delivery.state, func.count()).group_by(Delivery.state)
            return {row[0]: row[1] for row in session.execute(query)}

    def jobs_by_outcome(self) -> dict[tuple[str, str], int]:
        """(gate, conclusion, or state where there is none) -> how many."""
        columns = StoredJob.gate, StoredJob.state, StoredJob.conclusion
        counts: dict[tuple[str, str], int] = {}
        with self._session() as session:
            for gate, state, conclusion, count in session.execute(
                select(*columns, func.count()).group_by(*columns)
            ):
                key = gate, (conclusion or state) if state == "done" else state
                counts[key] = counts.get(key, 0) + count
        return counts

    def open_dispatches_by_state(self) -> dict[str, int]:
        with self._session() as session:
            query = select(StoredDispatch.state, func.count()).group_by(StoredDispatch.state)
            return {state: count for state, count in session.execute(query) if state != "settled"}

    def model_use(self) -> list[ModelUse]:
        asked = ModelQuestion
        with self._session() as session:
            query = select(
                asked.model,
                func.count(),
                func.sum(asked.input_tokens),
                func.sum(asked.output_tokens),
                func.sum(asked.cost_usd),
            ).group_by(asked.model)
            return [ModelUse(*row[:4], usd=float(row[4] or 0.0)) for row in session.execute(query)]

    def moves_after(self, event_id: int, limit: int) -> list[Move]:
        """Changes of state since that event, oldest first."""
        with self._session() as session:
            query = select(Event.id, Event.request_id, Event.state, Event.at).where(
                Event.id > event_id, Event.state.is_not(None)
            )
            return [
                Move(identifier, request_id, State(state), at.timestamp())
                for identifier, request_id, state, at in session.execute(
                    query.order_by(Event.id).limit(limit)
                )
            ]

    def live_executors(self, silent_s: float) -> int:
        with self._session() as session:
            fresh = Executor.heartbeat_at > now() - timedelta(seconds=silent_s)
            return session.scalar(select(func.count()).select_from(Executor).where(fresh)) or 0
