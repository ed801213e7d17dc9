"""The verify_model job on a real release and a real model: an honest patch passes, three broken ones are caught by name."""

from __future__ import annotations

import importlib
import inspect
import textwrap
from pathlib import Path
from typing import Any

import pytest

from agents.autopatch.act import write
from agents.autopatch.model_candidate import ModelCandidate
from agents.autopatch.model_profile import ModelProfile
from agents.autopatch.verify import plan
from app.checkout import CheckoutTree
from runners.jobs import run_job
from runners.protocol import Gate, Job, Outcome, Report, Status
from tests.liger_checkout import liger_checkout
from tests.unit.autopatch.act_profiles import IMPORTS, mlp, norm, profile

PATCH = "src/liger_kernel/transformers/monkey_patch.py"


def arcee() -> ModelProfile:
    """Arcee: RMSNorm, standard rope, and an ungated feed-forward with ReLU squared, which no release supports yet."""
    module = importlib.import_module("transformers.models.arcee.modeling_arcee")
    source = textwrap.dedent(inspect.getsource(inspect.unwrap(module.ArceeForCausalLM.forward)))
    uses = [
        {"owner": "base", "attribute": "norm", "norm": "ArceeRMSNorm"},
        {"owner": "layer", "attribute": "input_layernorm", "norm": "ArceeRMSNorm"},
        {"owner": "layer", "attribute": "post_attention_layernorm", "norm": "ArceeRMSNorm"},
    ]
    relu2 = mlp(
        name="ArceeMLP",
        activation="relu2",
        gated=False,
        liger_class="LigerReLUSquared",
        through_act2fn="relu2",
    )
    tiny = {
        "vocab_size": 128, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 128,
        "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip
    return profile(
        source,
        model_type="arcee",
        causal_class="ArceeForCausalLM",
        base_class="ArceeModel",
        layer_class="ArceeDecoderLayer",
        config_class="ArceeConfig",
        modeling_module=module.__name__,
        norms=[norm(name="ArceeRMSNorm")],
        norm_uses=uses,
        mlps=[relu2],
        tiny_config=tiny,
        mini_config=tiny,
        forward={"imports": IMPORTS},
    )


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return liger_checkout(tmp_path_factory.mktemp("release"), "0.8.5")


@pytest.fixture(scope="module")
def candidate(checkout: Path) -> ModelCandidate:
    return write(arcee(), CheckoutTree(checkout))


def verify(checkout: Path, candidate: ModelCandidate, **changes: Any) -> Report:
    payload = plan(arcee(), candidate, str(checkout), "", applied=False)[Gate.correctness]
    job = Job(id="verify-arcee", nonce="n", deadline_s=280.0, payload=payload.model_copy(update=changes))
    return run_job(job, lambda _: None)


def failed(report: Report) -> set[str]:
    return {v.check.removeprefix("model/") for v in report.verdicts if v.outcome is not Outcome.passed}


def broken(candidate: ModelCandidate, path: str, before: str, after: str) -> dict[str, str]:
    text = candidate.files[path]
    assert before in text
    return {**candidate.files, path: text.replace(before, after, 1)}


@pytest.mark.slow
def test_an_honest_patch_passes_every_check(checkout: Path, candidate: ModelCandidate) -> None:
    report = verify(checkout, candidate, convergence=["test/convergence/fp32/test_mini_models.py"])
    assert report.status is Status.completed, report.log_tail
    assert failed(report) == set()
    checks = {v.check.removeprefix("model/") for v in report.verdicts}
    assert {
        "imports", "dead_names", "signature", "kernel_calls", "flag/class_rope", "flag/instance_relu_squared",
        "parity/class_float32", "parity/instance_bfloat16", "others_untouched", "forward_cases", "revert",
        "test/test_apply_liger_kernel_to_instance_for_arcee", "convergence/fp32/test_mini_models",
    } <= checks  # fmt: skip


@pytest.mark.slow
def test_a_dead_assignment_a_missed_instance_and_a_wrong_forward_are_named(
    checkout: Path, candidate: ModelCandidate
) -> None:
    assigned = "modeling_arcee.ArceeRMSNorm = LigerRMSNorm"
    files = broken(candidate, PATCH, assigned, assigned.replace("ArceeRMSNorm", "ArceeNorm"))
    model = "src/liger_kernel/transformers/model/arcee.py"
    # the slice ignores what it is asked for, and a parameter of HuggingFace's is gone
    files[model] = files[model].replace("hidden_states[:, slice_indices, :]", "hidden_states", 1)
    files[model] = (
        files[model]
        .replace("    use_cache: Optional[bool] = None,\n", "", 1)
        .replace("use_cache=use_cache,", "", 1)
    )
    report = verify(checkout, candidate, files=files, convergence=[], instance_tests=[])
    assert {"dead_names", "signature", "kernel_calls", "forward_cases"} <= failed(report)
    assert "imports" not in failed(report)


def test_a_patch_that_does_not_import_is_one_finding(checkout: Path, candidate: ModelCandidate) -> None:
    files = broken(candidate, PATCH, "import inspect\n", "import inspect\nimport no_such_package\n")
    report = verify(checkout, candidate, files=files)
    assert [(v.check, v.outcome, v.hard) for v in report.verdicts] == [
        ("model/imports", Outcome.failed, True)
    ]
    assert "no_such_package" in report.verdicts[0].summary
