"""A Model that answers from a script: for tests, demonstrations and replays. It reaches no network and costs nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jsonschema

from agents.ports import ModelError, ModelReply, ModelRequest


class ScriptedModel:
    """Gives the scripted replies in order; an exception in the script is raised. Keeps the requests for inspection."""

    def __init__(self, replies: Iterable[dict[str, Any] | ModelError], name: str = "scripted"):
        self._replies = list(replies)
        self.name = name
        self.requests: list[ModelRequest] = []

    async def ask(self, request: ModelRequest) -> ModelReply:
        """The next reply. Raises ModelError when the script says so, has ended, or does not fit the request's schema."""
        self.requests.append(request)
        if len(self.requests) > len(self._replies):
            raise ModelError(
                f"the script has {len(self._replies)} replies; this is question {len(self.requests)}, {request.purpose}"
            )
        reply = self._replies[len(self.requests) - 1]
        if isinstance(reply, ModelError):
            raise reply
        try:
            jsonschema.validate(reply, request.json_schema)
        except jsonschema.ValidationError as error:
            raise ModelError(f"the scripted reply does not fit the schema: {error.message[:200]}") from error
        return ModelReply(data=reply, model=self.name, cost_usd=0.0)
