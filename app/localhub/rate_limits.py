"""GitHub's primary rate limit: so many requests an hour for each caller."""

import threading
import time
from dataclasses import dataclass

HOUR = 3600
LIMITS = {"anonymous": 60, "user": 5000, "installation": 5000, "app": 5000}


@dataclass
class _Window:
    limit: int
    used: int
    reset: int


class RateLimits:
    """Counters by caller; `enabled=False` counts but never refuses, as a fresh Enterprise Server does."""

    def __init__(self, enabled: bool = True) -> None:
        self._enabled = enabled
        self._lock = threading.Lock()
        self._windows: dict[str, _Window] = {}

    def _window(self, key: str, kind: str) -> _Window:
        now = int(time.time())
        window = self._windows.get(key)
        if window is None or window.reset <= now:
            window = self._windows[key] = _Window(LIMITS[kind], 0, now + HOUR)
        return window

    def take(self, key: str, kind: str) -> bool:
        """Count one request; False when none was left."""
        with self._lock:
            window = self._window(key, kind)
            if self._enabled and window.used >= window.limit:
                return False
            window.used += 1
            return True

    def give_back(self, key: str, kind: str) -> None:
        """Take one count back: an authorized 304 is free."""
        with self._lock:
            window = self._window(key, kind)
            window.used = max(0, window.used - 1)

    def exhaust(self, key: str, kind: str, seconds: float) -> None:
        """Leave the caller nothing until `seconds` from now."""
        with self._lock:
            window = self._window(key, kind)
            window.used, window.reset = window.limit, int(time.time() + seconds)

    def peek(self, key: str, kind: str) -> dict[str, int]:
        """The caller's limit, used, remaining and reset (epoch seconds)."""
        with self._lock:
            window = self._window(key, kind)
            remaining = max(0, window.limit - window.used)
            return {"limit": window.limit, "used": window.used, "remaining": remaining, "reset": window.reset}

    def headers(self, key: str, kind: str) -> dict[str, str]:
        """The same as reply headers."""
        state = self.peek(key, kind)
        return {f"X-RateLimit-{name.capitalize()}": str(value) for name, value in state.items()} | {
            "X-RateLimit-Resource": "core"
        }
