"""Runs one probe in a process of its own: a kernel that is given what it wasn't made for may read outside its tensors."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from typing import Any

SECONDS = 60


def run_apart(probe: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The probe's result, which must be JSON, or {"error": …} that says how its process died."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(SECONDS)
        try:
            os.close(reading)
            with os.fdopen(writing, "w") as pipe:
                json.dump(probe(), pipe)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        written = pipe.read()
    _, ended = os.waitpid(pid, 0)
    if os.WIFSIGNALED(ended):
        number = os.WTERMSIG(ended)
        why = "it took too long" if number == signal.SIGALRM else "it reads or writes outside its tensors"
        return {"error": f"{why} ({signal.Signals(number).name})"}
    return json.loads(written) if written else {"error": "it ended without a result"}
