"""Real inspections in the sandbox: the installed transformers beside a released Liger-Kernel."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from agents.autopatch.model_profile import ModelProfile
from agents.autopatch.understand import Asked, profile_of
from agents.dev.refused import Refused
from runners.jobs import run_job
from runners.protocol import (
    InspectModelPayload,
    InspectModelResult,
    Job,
    ModelRequest,
    Progress,
    Report,
    Status,
)
from tests.liger_checkout import liger_checkout

MODELS = [
    ModelRequest(model="nemotron"),
    ModelRequest(model="Gemma2ForCausalLM"),
    ModelRequest(model="lama"),
    ModelRequest(
        config={"model_type": "exotic", "auto_map": {"AutoModelForCausalLM": "modeling_exotic.Exotic"}}
    ),
]


def inspect(checkout: Path, models: list[ModelRequest], heard: list[Progress] | None = None) -> Report:
    payload = InspectModelPayload(checkout=str(checkout), models=models)
    return run_job(
        Job(id="inspect", nonce="n", deadline_s=200, payload=payload),
        (heard if heard is not None else []).append,
    )


@pytest.fixture(scope="module")
def heard() -> list[Progress]:
    return []


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory, heard: list[Progress]) -> Report:
    return inspect(liger_checkout(tmp_path_factory.mktemp("liger"), "0.8.5"), MODELS, heard)


def entry(report: Report, position: int) -> dict[str, Any]:
    assert isinstance(report.result, InspectModelResult), report.log_tail
    return report.result.models[position]


def profiled(report: Report, position: int) -> ModelProfile | Refused:
    request = MODELS[position]
    return profile_of(entry(report, position), Asked(request.model or "exotic", request), "5.24", replay=True)


def test_the_code_of_models_and_target_ran_confined_and_said_how_far_it_was(
    report: Report, heard: list[Progress]
):
    assert report.status is Status.completed, report.log_tail
    assert report.isolation is not None
    assert not report.isolation.network
    assert [(progress.done, progress.note) for progress in heard] == [
        (0, "nemotron"), (1, "Gemma2ForCausalLM"), (2, "lama"), (3, "config.json"),
    ]  # fmt: skip


def test_nemotron_is_told_apart_from_what_liger_computes(report: Report):
    made = profiled(report, 0)

    assert isinstance(made, ModelProfile), made
    decided = {decision.name: decision.value for decision in made.decisions}
    assert decided["norm_type"] == "layer_norm_1p"
    assert decided["mlp"].endswith("relu2 ungated -> LigerReLUSquared through ACT2FN")
    # Turning a part of each head came with 0.8.5; its own patch of nemotron still says that the kernel can't.
    assert decided["rope"] == "partial, patched"
    assert made.questions == []
    assert made.tiny_config["num_hidden_layers"] == 2


def test_gemma2s_bits_give_its_casting_mode_and_its_gradients_forbid_running_in_place(report: Report):
    facts = entry(report, 1)["facts"]
    norm = facts["norms"][0]

    assert norm["matches"] == ["gemma/1"]
    assert max(share for mode, share in norm["equal_bits"].items() if mode != "gemma/1") < 0.9
    moved = {name: found["distance"] for name, found in norm["in_place_gradients"].items()}
    assert moved["not_in_place"] < 1e-5 < 0.1 < moved["in_place"]
    candidates = facts["feed_forwards"][0]["candidates"]
    assert candidates["LigerGEGLUMLP"]["fp32"] < 1e-6 < 0.01 < candidates["LigerSwiGLUMLP"]["fp32"]
    made = profiled(report, 1)
    assert isinstance(made, ModelProfile), made
    assert (made.model_type, made.norms[0].liger_class) == ("gemma2", "LigerRMSNormForGemma2")


def test_what_is_no_model_here_is_refused_in_words(report: Report):
    unknown, remote = profiled(report, 2), profiled(report, 3)

    assert isinstance(unknown, Refused)
    assert unknown.suggestions[0] == "/liger autopatch llama"
    assert isinstance(remote, Refused)
    assert "remote code is never run" in remote.reason


def test_a_checkout_that_does_not_import_is_said_once_for_each_model(tmp_path: Path):
    package = tmp_path / "src" / "liger_kernel" / "transformers"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("")
    (package / "__init__.py").write_text("raise ImportError('needs a newer transformers')\n")
    started = time.monotonic()

    report = inspect(tmp_path, [ModelRequest(model="llama")])

    found = profile_of(entry(report, 0), Asked("llama", ModelRequest(model="llama")), "5.24")
    assert isinstance(found, Refused)
    assert (
        found.reason
        == "The checkout can't be imported with transformers 5.24: ImportError: needs a newer transformers."
    )
    assert time.monotonic() - started < 120
