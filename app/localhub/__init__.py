"""A small GitHub for one machine: REST, GraphQL, webhooks, git over HTTP and pages for people."""

from app.localhub.hub import LocalHub, RegisteredApp, ServedHub

__all__ = ["LocalHub", "RegisteredApp", "ServedHub"]
