"""What GitHub last said about its rate limits, for the metrics. No token and no account is kept, only the tightest one."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class RateLimit:
    """How many requests of a resource are left until `reset_at`, in seconds since 1970."""

    limit: int
    remaining: int
    reset_at: float


_seen: dict[str, RateLimit] = {}


def note_rate_limit(headers: Mapping[str, str]) -> None:
    """Keep what an answer says; of several installations' limits the one with the least left stands until its reset."""
    try:
        said = RateLimit(
            int(headers["x-ratelimit-limit"]),
            int(headers["x-ratelimit-remaining"]),
            float(headers["x-ratelimit-reset"]),
        )
    except (KeyError, ValueError):
        return
    resource = headers.get("x-ratelimit-resource", "core")
    before = _seen.get(resource)
    if before is None or before.reset_at <= time.time() or said.remaining <= before.remaining:
        _seen[resource] = said


def rate_limits() -> dict[str, RateLimit]:
    """Resource -> the tightest limit seen that has not been reset since."""
    return {resource: one for resource, one in _seen.items() if one.reset_at > time.time()}
