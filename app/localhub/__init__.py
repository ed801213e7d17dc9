"""A small GitHub for one machine: REST, GraphQL, webhooks, git over HTTP, workflow runs, and pages for people."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from app.localhub.hub import LocalHub, RegisteredApp, ServedHub

__all__ = ["LocalHub", "RegisteredApp", "ServedHub"]


def __getattr__(name: str) -> Any:
    # Late, so that the runner, a process of its own, starts without the whole hub.
    if name in __all__:
        from app.localhub import hub

        return getattr(hub, name)
    raise AttributeError(name)
