"""The verify_model job on a real release and a real model: an honest patch passes, three broken ones are caught by name."""

from __future__ import annotations

import importlib
import inspect
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from agents.autopatch.act import write
from agents.autopatch.model_candidate import ModelCandidate
from agents.autopatch.model_profile import ModelProfile
from agents.autopatch.repair import changes
from agents.autopatch.verify import plan
from app.checkout import CheckoutTree
from runners.checkout import copy_checkout
from runners.jobs import run_job
from runners.model_checks.import_range import import_range
from runners.protocol import Gate, Job, Outcome, Report, Status, VerifyModelPayload
from tests.exhaustive import EXHAUSTIVE, exhaustive
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


@exhaustive  # tests/e2e/test_autopatch.py sees an honest patch pass, as a whole request
@pytest.mark.slow
def test_an_honest_patch_passes_every_check(checkout: Path, candidate: ModelCandidate) -> None:
    report = verify(checkout, candidate, convergence=["test/convergence/fp32/test_mini_models.py"])
    assert report.status is Status.completed, report.log_tail
    assert failed(report) == {"import/oldest"}  # not run: this runner has one transformers
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


PARITY = ["kernel_calls", "parity/class_bfloat16"]


@pytest.mark.slow
def test_a_wrong_casting_mode_is_named_as_the_part_that_differs_and_a_repair_leaves_it_alone(
    checkout: Path,
) -> None:
    wrong = arcee().model_copy(
        update={"norms": [norm(name="ArceeRMSNorm", casting_mode="gemma", offset=1.0)]}
    )
    candidate = write(wrong, CheckoutTree(checkout))
    quick = {"scenarios": PARITY, "instance_tests": [], "convergence": []}
    report = verify(checkout, candidate, **quick)
    assert {"parity/class_bfloat16", "part/ArceeRMSNorm"} <= failed(report)
    passed = {v.check for v in report.verdicts if v.outcome is Outcome.passed}
    assert {
        "model/part/apply_rotary_pos_emb",
        "model/part/ACT2FN[relu2]",
        "model/part/fused_linear_cross_entropy",
    } <= passed
    found = changes(
        wrong.model_copy(update={"norms": [norm(name="ArceeRMSNorm", in_place=False)]}), report.verdicts, 1
    )
    assert [(one.change, one.part) for one in found] == [("norm_unpatched", "ArceeRMSNorm")]
    assert "HuggingFace" in found[0].why
    if not EXHAUSTIVE:
        return
    again = verify(checkout, write(wrong, CheckoutTree(checkout), found), **quick)
    assert failed(again) == set()
    counted = next(v for v in again.verdicts if v.check == "model/kernel_calls")
    assert "RMSNorm" not in counted.summary


@pytest.mark.slow
def test_a_defect_that_was_there_before_the_change_is_not_blamed_on_it(
    checkout: Path, candidate: ModelCandidate
) -> None:
    rope = "modeling_arcee.apply_rotary_pos_emb = liger_rotary_pos_emb"
    old = broken(candidate, PATCH, rope, "modeling_arcee.CrossEntropyLoss = liger_rotary_pos_emb")
    quick = {"scenarios": ["dead_names"], "instance_tests": [], "convergence": [], "baseline": old}
    report = verify(checkout, candidate, files=old, **quick)
    (verdict,) = [v for v in report.verdicts if v.check == "model/dead_names"]
    assert (verdict.outcome, verdict.hard) == (Outcome.flagged, False)
    assert verdict.summary.startswith("already so before this change: ")


def ranged(
    checkout: Path, candidate: ModelCandidate, files: dict[str, str], folder: Path
) -> dict[str, tuple[Outcome, bool, str]]:
    payload = plan(arcee(), candidate, str(checkout), "", applied=False)[Gate.correctness]
    assert isinstance(payload, VerifyModelPayload)
    job = Job(id="range", nonce="n", deadline_s=120.0, payload=payload)
    after, before = (
        copy_checkout(checkout, folder / name, given) for name, given in (("after", files), ("before", {}))
    )
    found = import_range(job, payload, (after, before), folder, Path(sys.executable))
    return {v.check.removeprefix("model/import/"): (v.outcome, v.hard, v.summary) for v in found}


@exhaustive
@pytest.mark.slow
def test_a_patch_is_imported_under_each_transformers_that_the_runner_has(
    checkout: Path, candidate: ModelCandidate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stand-ins for older versions: one is the installed package, the other can't be imported."""
    installed = Path(importlib.import_module("transformers").__file__ or "").parent
    for version, first in (("5.2.0", ""), ("5.1.0", "raise ImportError('no transformers at all')\n")):
        (tmp_path / version / f"transformers-{version}.dist-info").mkdir(parents=True)
        if first:
            (tmp_path / version / "transformers").mkdir()
            (tmp_path / version / "transformers" / "__init__.py").write_text(first)
        else:
            (tmp_path / version / "transformers").symlink_to(installed)
    monkeypatch.setenv("LIGER_BOT_TRANSFORMERS_SITES", f"{tmp_path}/5.1.0:{tmp_path}/5.2.0")
    (tmp_path / "bad").mkdir()
    files = broken(
        candidate, PATCH, "import inspect\n", "import inspect\nfrom transformers import NoSuchName\n"
    )
    found = ranged(checkout, candidate, files, tmp_path / "bad")
    assert found["5.2.0"][:2] == (Outcome.failed, True)
    assert "NoSuchName" in found["5.2.0"][2]
    assert str(tmp_path) not in found["5.2.0"][2]
    assert found["5.1.0"][0] is Outcome.skipped
    assert "no transformers at all" in found["5.1.0"][2]
    assert found["oldest"][0] is Outcome.skipped
    assert found["oldest"][2].startswith("not run: ")
    monkeypatch.setenv("LIGER_BOT_TRANSFORMERS_SITES", f"{tmp_path}/5.2.0")
    (tmp_path / "good").mkdir()
    found = ranged(checkout, candidate, candidate.files, tmp_path / "good")
    assert found["5.2.0"][0] is Outcome.passed
