"""A pytest plugin for the overlay: one JSON line a test, with how often derived kernels ran in it.

Copied as liger_kernel/derived/plugin.py; imports none of ours. Reads UPSTREAM_RECORDS (the file to write) and
UPSTREAM_TEST_S (a test's limit in seconds). After a test ran into its limit the others with the same sizes are skipped
as too slow: an interpreter needs about a millisecond a program, whatever the options are.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
from liger_kernel.derived import CALLS, LAUNCHES, NOT_OURS  # pyright: ignore[reportMissingImports] - the overlay

RECORDS = Path(os.environ["UPSTREAM_RECORDS"])
TEST_S = float(os.environ["UPSTREAM_TEST_S"])
TOO_SLOW = "too slow here"
COUNTERS = {"calls": CALLS, "launches": LAUNCHES, "not_ours": NOT_OURS}
NOT_SIZES = ("ignore_index",)
slow_sizes: set[tuple[int, ...]] = set()


class TooSlowError(Exception):
    """A test ran into its limit."""


def write(record: dict[str, Any]) -> None:
    with RECORDS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")


def sizes(item: pytest.Item) -> tuple[int, ...]:
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    return tuple(sorted(v for k, v in parameters.items() if type(v) is int and k not in NOT_SIZES))


def pytest_collection_finish(session: pytest.Session) -> None:
    device = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "CPU"
    try:
        from transformers import __version__ as transformers
    except ImportError:
        transformers = None
    write(
        {
            "collected": [item.nodeid for item in session.items],
            "environment": {
                "device": device,
                "torch": torch.__version__,
                "triton": triton.__version__,
                "transformers": transformers,
                "interpreter": os.environ.get("TRITON_INTERPRET") == "1",
            },
        }
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    before = {name: dict(counter) for name, counter in COUNTERS.items()}
    item._ran_before = (before, time.monotonic())  # type: ignore[attr-defined]
    if sizes(item) and sizes(item) in slow_sizes:
        pytest.skip(f"{TOO_SLOW}: another test with the sizes {sizes(item)} ran into {TEST_S:g} s")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    def stop(_signal: int, _frame: Any) -> None:
        raise TooSlowError(f"{TOO_SLOW}: ran into {TEST_S:g} s")

    previous = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, TEST_S)
    try:
        return (yield)
    except TooSlowError:
        if sizes(item):
            slow_sizes.add(sizes(item))
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[Any]:
    report = yield
    # A test is told once: by its call, or by a setup that did not get as far (a skip, an error).
    if report.when == "call" or (report.when == "setup" and report.outcome != "passed"):
        before, started = item._ran_before  # type: ignore[attr-defined]
        counts = {
            name: {key: value - before[name].get(key, 0) for key, value in counter.items()}
            for name, counter in COUNTERS.items()
        }
        write(
            {
                "test": item.nodeid,
                "outcome": "xfailed" if hasattr(report, "wasxfail") and report.skipped else report.outcome,
                "seconds": round(time.monotonic() - started, 3),
                **{name: {k: v for k, v in count.items() if v} for name, count in counts.items()},
                "reason": reason(report, call),
            }
        )
    return report


def reason(report: Any, call: pytest.CallInfo[None]) -> str:
    """One line: the skip's reason, or the exception's type and text and our line nearest to it."""
    if report.outcome == "passed":
        return ""
    if report.skipped:
        text = report.wasxfail if hasattr(report, "wasxfail") else report.longrepr[2]
        return str(text).removeprefix("Skipped: ")[:300]
    assert call.excinfo is not None
    first = (str(call.excinfo.value).strip() or "no text").splitlines()
    where = next(
        (
            f" at {Path(str(entry.path)).name}:{entry.lineno + 1}"
            for entry in reversed(call.excinfo.traceback)
            if "test_" in str(entry.path) or "derived" in str(entry.path)
        ),
        "",
    )
    return f"{call.excinfo.typename}: {' '.join(first)[:240]}{where}"
