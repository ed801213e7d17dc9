"""kill -9 of whatever runs, at random moments of several requests; `python -m benchmarks.faults` does the same with 200."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos import Chaos, chaos_scene, plan
from tests.exhaustive import exhaustive

# From one process that does everything to five, of which any may be hit.
SHORT = plan(8, whole=1, analysed=1)


@exhaustive
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_nothing_is_lost_and_nothing_is_made_twice(store: str, tmp_path: Path):
    with chaos_scene(tmp_path, store) as (here, postgres):
        chaos = Chaos(here, postgres, seed=7, pause_s=(2.0, 8.0))
        result = chaos.run(SHORT, every_s=1.0, kills=3, patience_s=150)
        logs = here.service.log.read_text()[-3000:]
    assert result.kills.total() >= 3
    assert result.wrong == [], logs
