"""Which agent follows which verb. Pure."""

from __future__ import annotations

from typing import Any

from agents.autopatch.agent import AutopatchAgent
from agents.command_agent import CommandAgent
from agents.dev.agent import DevAgent

# One verb's profiles and candidates never meet another's agent: the stored request says which it is.
AGENTS: dict[str, CommandAgent[Any, Any]] = {"dev": DevAgent(), "autopatch": AutopatchAgent()}


def agent_of(verb: str) -> CommandAgent[Any, Any]:
    """The agent of a verb. Raises KeyError for a verb that has none."""
    return AGENTS[verb]
