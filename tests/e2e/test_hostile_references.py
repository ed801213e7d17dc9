"""Blocks that loop, eat memory, or reach for the network or the machine: a clear answer, and nothing of theirs runs here."""

from __future__ import annotations

import asyncio
import time

import pytest

from agents.dev.analysis import DEADLINE_S
from agents.dev.refused import Refused
from agents.dev.understand import understand
from app.dispatch import LocalBench
from tests.dict_tree import DictTree
from tests.exhaustive import EXHAUSTIVE
from tests.mini_library import mini_library

# Runs until analyze's deadline, a minute; `contract/runners` has one that is stopped sooner.
ENDLESS = {
    "loops for ever": (
        "def f(x):\n    n = 0\n    while n >= 0:\n        n = n + 1\n    return x * n\n",
        "longer than it may",
    ),
}
BLOCKS = {
    **(ENDLESS if EXHAUSTIVE else {}),
    "allocates 100 GB": ("def f(x):\n    y = [0.0] * 12_500_000_000\n    return x * y[0]\n", "MemoryError"),
    "loads from a hub": ("def f(x):\n    return torch.hub.load('a/b', 'c')(x)\n", "hub"),
    "opens a file": ("def f(x):\n    open('/etc/passwd').read()\n    return x\n", "open"),
    "loads a pickle": ("def f(x):\n    return x * torch.load('/tmp/x')\n", "load"),
    "compiles C++": ("from torch.utils import cpp_extension\n\ndef f(x):\n    return x\n", "torch.utils"),
    "walks to the builtins": ("def f(x):\n    ().__class__.__base__.__subclasses__()\n    return x\n", "__"),
}


@pytest.mark.slow
async def test_hostile_blocks_are_answered_and_stopped():
    started = time.monotonic()
    bench = LocalBench(slots=2)

    async def ask(block: str) -> object:
        return await understand("", f"import torch\n\n\n{block}", DictTree(mini_library()), bench)

    answers = await asyncio.gather(*(ask(block) for block, _ in BLOCKS.values()))

    told = {
        name: f"{answer.reason} {answer.where} {answer.needed}"
        if isinstance(answer, Refused)
        else f"not refused: {answer!r:.200}"
        for name, answer in zip(BLOCKS, answers, strict=True)
    }
    assert {name: text for name, text in told.items() if BLOCKS[name][1] not in text} == {}
    assert time.monotonic() - started < DEADLINE_S + 60
