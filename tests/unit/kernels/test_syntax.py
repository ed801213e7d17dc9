"""Parsing in several threads of one process, as the service does."""

from __future__ import annotations

import ast
import gc
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kernels.syntax import syntax_tree


@pytest.fixture
def python_inside_every_collection():
    """What a finalizer does: Python code runs in the middle of another thread's parse, and gives the lock away."""

    def give_way(phase: str, info: dict) -> None:
        time.sleep(0)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    gc.callbacks.append(give_way)
    yield
    gc.callbacks.remove(give_way)
    sys.setswitchinterval(interval)


def test_threads_that_parse_at_once_all_get_their_tree(python_inside_every_collection) -> None:
    source = Path(ast.__file__).read_text()
    whole = len(ast.parse(source).body)
    start = threading.Barrier(3)

    def parse_again() -> list[int]:
        start.wait()
        return [len(syntax_tree(source).body) for _ in range(25)]

    with ThreadPoolExecutor(3) as threads:
        found = [count for task in [threads.submit(parse_again) for _ in range(3)] for count in task.result()]
    assert found == [whole] * 75


def test_what_is_not_python_is_told_once() -> None:
    with pytest.raises(SyntaxError):
        syntax_tree("def (")
    with pytest.raises((SyntaxError, ValueError), match="null"):  # the one since 3.11.4, the other before
        syntax_tree("a\0b")
