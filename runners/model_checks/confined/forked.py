"""Runs one scenario in a forked copy of this process: a class-level patch can't be undone, and a copy starts clean.

Standard library only; loaded by the confined child, imports none of ours.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any


def in_fork(scenario: Callable[[], Any]) -> dict[str, Any]:
    """{"value": what it returned} or {"error": the traceback}, with "seconds". The value must be JSON."""
    reading, writing = os.pipe()
    started = time.monotonic()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            answer = {"value": scenario()}
        except BaseException:  # noqa: BLE001 - whatever a candidate raises is the finding
            answer = {"error": traceback.format_exc()[-6000:]}
        with os.fdopen(writing, "w") as pipe:
            json.dump(answer, pipe)
        sys.stdout.flush()
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    answer: dict[str, Any]
    try:
        answer = json.loads(text)
    except ValueError:
        answer = {"error": f"the process died: {_death(status)}"}
    answer["seconds"] = time.monotonic() - started
    return answer


def _death(status: int) -> str:
    return (
        f"signal {os.WTERMSIG(status)}"
        if os.WIFSIGNALED(status)
        else f"exit status {os.waitstatus_to_exitcode(status)}"
    )
