"""Keeps what one request spends on the language model within what its repository allows."""

from __future__ import annotations

from agents.ports import Model, ModelError, ModelReply, ModelRequest
from app.repository_config import CONFIG_PATH
from app.store import Store


class BudgetedModel:
    """A model for one request; each question is noted, also across restarts. Raises ModelError when nothing is left."""

    def __init__(self, model: Model, store: Store, request_id: str, limit_usd: float):
        self._model, self._store, self._request_id, self._limit_usd = model, store, request_id, limit_usd

    async def ask(self, request: ModelRequest) -> ModelReply:
        spent = self._store.model_spent_usd(self._request_id)
        if spent >= self._limit_usd:
            raise ModelError(
                f"this request spent ${spent:.4f} of the ${self._limit_usd:g} that `model_usd_per_request` in {CONFIG_PATH} allows"
            )
        reply = await self._model.ask(request)
        self._store.model_asked(self._request_id, request.purpose, reply)
        return reply
