"""What requests spent on the language model."""

from __future__ import annotations

from sqlalchemy import func, select

from agents.ports import ModelReply
from app.store.sessions import Sessions, now
from app.tables import ModelQuestion


class Spending(Sessions):
    """Questions to the language model."""

    def model_asked(self, request_id: str, purpose: str, reply: ModelReply) -> None:
        """Note a question and its price."""
        with self._session() as session:
            session.add(
                ModelQuestion(
                    request_id=request_id,
                    at=now(),
                    purpose=purpose[:60],
                    model=reply.model[:200],
                    input_tokens=reply.input_tokens,
                    output_tokens=reply.output_tokens,
                    cost_usd=reply.cost_usd,
                )
            )

    def model_spent_usd(self, request_id: str) -> float:
        """What a request's questions cost so far, US dollars, as far as prices are known."""
        with self._session() as session:
            query = select(func.sum(ModelQuestion.cost_usd)).where(ModelQuestion.request_id == request_id)
            return float(session.scalar(query) or 0.0)
