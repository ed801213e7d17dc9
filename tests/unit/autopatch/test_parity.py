"""What parity says of a model that has nothing to be compared with."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

CONFINED = Path(__file__).resolve().parents[3] / "runners" / "model_checks" / "confined"


class OnlyInFloat32(nn.Module):
    """Multiplies by a float32 table whatever it was cast to, as xLSTM's recurrence does."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(4))

    def forward(
        self, input_ids: torch.Tensor, labels: torch.Tensor | None = None, use_cache: bool = True
    ) -> Any:
        logits = torch.ones(2, 4) @ self.weight
        return SimpleNamespace(loss=logits.sum(), logits=None if labels is not None else logits)


@pytest.fixture
def parity(monkeypatch: pytest.MonkeyPatch) -> Any:
    """As the confined child loads it: by its path, with its neighbours beside it."""
    monkeypatch.syspath_prepend(str(CONFINED))
    import parity  # pyright: ignore[reportMissingImports]

    yield parity
    for name in ("parity", "parts", "tiny_runs"):
        sys.modules.pop(name, None)


def task() -> SimpleNamespace:
    def model(dtype: torch.dtype = torch.float32, state: Any = None) -> nn.Module:
        made = OnlyInFloat32().to(dtype)
        if state is not None:
            made.load_state_dict(state)
        return made

    ids = torch.zeros(2, 4, dtype=torch.long)
    return SimpleNamespace(
        model=model, batch=lambda _seed: {"input_ids": ids, "labels": ids}, apply=lambda: None
    )


def test_a_model_that_does_not_run_in_bfloat16_is_not_the_patchs_fault(parity: Any) -> None:
    ok, said, _ = parity.parity(task(), "class", "bfloat16")

    assert ok is None
    assert said.startswith("without the patch it doesn't run in bfloat16 either: RuntimeError")
    assert parity.parity(task(), "class", "float32")[0] is True
