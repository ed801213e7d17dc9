"""What a failed check changes in the plan of a model patch, and what the repaired candidate is made of."""

from __future__ import annotations

import asyncio
import fnmatch

import pytest

from agents.autopatch.act import write
from agents.autopatch.before import BeforeTree
from agents.autopatch.model_candidate import ModelCandidate, Repair
from agents.autopatch.model_profile import ModelProfile
from agents.autopatch.narrow import narrowed
from agents.autopatch.repair import MAX_ROUNDS, changes, repair
from agents.profiles import PlannedFile
from app.checkout import CheckoutTree
from runners.protocol import Gate, Job, Outcome, Report, Status, StylePayload, StyleResult, Verdict
from tests.liger_checkout import liger_checkout
from tests.unit.autopatch.act_profiles import mlp, norm, profile

RELU2 = {"activation": "relu2", "gated": False, "liger_class": "LigerReLUSquared", "through_act2fn": "relu2"}


def failed(check: str, summary: str = "0.12 from fp32, HuggingFace 0.01", **more: object) -> Verdict:
    values = {
        "check": f"model/{check}",
        "gate": Gate.correctness,
        "outcome": Outcome.failed,
        "summary": summary,
    }
    return Verdict.model_validate({**values, **more})


def asked(profile: ModelProfile, *verdicts: Verdict) -> list[tuple[str, str]]:
    return [(one.change, one.part) for one in changes(profile, verdicts, 1)]


@pytest.mark.parametrize(
    ("verdict", "change"),
    [
        (failed("part/TinyMLP"), ("mlp_unpatched", "TinyMLP")),
        (failed("part/TinyMLP.forward"), ("mlp_unpatched", "TinyMLP")),
        (failed("part/apply_rotary_pos_emb"), ("rope_unpatched", "apply_rotary_pos_emb")),
        (failed("part/TinyRMSNorm"), ("norm_not_in_place", "TinyRMSNorm")),
        (failed("flag/instance_swiglu", "swiglu changes no kernel call"), ("mlp_unpatched", "TinyMLP")),
        (failed("flag/class_rms_norm", "rms_norm=False fails"), ("norm_unpatched", "TinyRMSNorm")),
        (
            failed("kernel_calls", "class path {'RMSNorm': 5, 'SiLUMul': 4}, instance path {'RMSNorm': 5, 'SiLUMul': 2}"),
            ("mlp_unpatched", "TinyMLP"),
        ),
        (failed("revert", "still called after the revert: {'Rope': 2}"), ("rope_unpatched", "apply_rotary_pos_emb")),
        (
            failed("others_untouched", "reached other models: {'a second instance': ['RMSNorm']}"),
            ("norm_unpatched", "TinyRMSNorm"),
        ),
        (
            failed("forward_cases", "1 of 30 differ", details="__init__() got an unexpected keyword argument 'predicted_tokens'"),
            ("output_field_dropped", "predicted_tokens"),
        ),
        (
            failed(
                "test/test_apply_liger_kernel_to_instance_for_tiny", "AssertionError",
                details="    assert inspect.getsource(layer.mlp.forward) == inspect.getsource(LigerSwiGLUMLP.forward)\nAssertionError",
            ),
            ("mlp_unpatched", "TinyMLP"),
        ),
    ],
)  # fmt: skip
def test_a_failed_check_changes_the_part_that_it_names(verdict: Verdict, change: tuple[str, str]) -> None:
    assert asked(profile(), verdict) == [change]


def test_a_norm_that_runs_in_place_is_first_made_careful_and_then_left_alone() -> None:
    (first,) = changes(profile(), [failed("part/TinyRMSNorm")], 1)
    careful = narrowed(profile(), [first])
    assert [(one.patched, one.in_place) for one in careful.norms] == [(True, False)]
    (second,) = changes(careful, [failed("part/TinyRMSNorm", "0.3 from fp32")], 2)
    assert second.change == "norm_unpatched"
    assert [(one.patched, one.why) for one in narrowed(careful, [second]).norms] == [(False, "0.3 from fp32")]


def test_an_activation_is_found_under_its_entry_of_the_table() -> None:
    assert asked(profile(mlps=[mlp(**RELU2)]), failed("part/ACT2FN[relu2]")) == [("mlp_unpatched", "TinyMLP")]


def test_torchs_layer_norm_is_found_under_the_namespace_that_is_replaced() -> None:
    layer = norm(name="LayerNorm", kind="layer_norm", reached_as="nn.LayerNorm", liger_class="LigerLayerNorm")
    assert asked(profile(norms=[layer]), failed("part/nn")) == [("norm_unpatched", "LayerNorm")]


def test_the_most_exact_finding_speaks_alone() -> None:
    verdicts = [failed("flag/class_rope"), failed("parity/class_float32"), failed("part/TinyMLP")]
    assert asked(profile(), *verdicts) == [("mlp_unpatched", "TinyMLP")]


@pytest.mark.parametrize(
    "verdict",
    [
        failed("part/fused_linear_cross_entropy"),
        failed("imports", "missing"),
        failed("part/TinyMLP", outcome=Outcome.passed),
        failed("part/TinyMLP", hard=False),
        failed("convergence/bf16/test_mini_models", outcome=Outcome.flagged, hard=False),
    ],
)
def test_what_no_rule_knows_or_does_not_block_changes_nothing(verdict: Verdict) -> None:
    assert asked(profile(), verdict) == []


class Applied:
    """A checkout with a candidate's files in it."""

    def __init__(self, tree: CheckoutTree, candidate: ModelCandidate):
        self.tree, self.candidate = tree, candidate

    def read(self, path: str) -> str | None:
        return self.candidate.files.get(path) or self.tree.read(path)

    def files(self, pattern: str) -> list[str]:
        return sorted({*self.tree.files(pattern), *fnmatch.filter(self.candidate.created, pattern)})


class Formatter:
    """A bench that has nothing to format."""

    async def run(self, job: Job, on_progress: object = None) -> Report:
        assert isinstance(job.payload, StylePayload)
        result = StyleResult(files=job.payload.files)
        return Report(job_id=job.id, nonce=job.nonce, kind="style", status=Status.completed, result=result)


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> CheckoutTree:
    return CheckoutTree(liger_checkout(tmp_path_factory.mktemp("release"), "0.8.5"))


def repaired(
    made: ModelProfile, before: ModelCandidate, tree: object, attempt: int, *verdicts: Verdict
) -> ModelCandidate | None:
    report = Report(
        job_id="j", nonce="n", kind="verify_model", status=Status.completed, verdicts=list(verdicts)
    )
    return asyncio.run(repair(made, before, {Gate.correctness: report}, tree, Formatter(), attempt=attempt))  # type: ignore[arg-type]


def listed(made: ModelProfile, candidate: ModelCandidate) -> ModelProfile:
    files = [PlannedFile(path=path, action="edit", why="w") for path in candidate.files]
    return made.model_copy(update={"files": files})


def test_the_repaired_candidate_leaves_the_part_alone_and_says_so_in_the_pull_request(
    release: CheckoutTree,
) -> None:
    made = listed(profile(), write(profile(), release))
    first = write(made, release)
    applied = Applied(release, first)
    second = repaired(made, first, applied, 1, failed("part/TinyMLP"))
    assert second is not None
    patch = "src/liger_kernel/transformers/monkey_patch.py"
    assert "modeling_tiny.TinyMLP = LigerSwiGLUMLP" in first.files[patch]
    assert "modeling_tiny.TinyMLP" not in second.files[patch]
    assert "swiglu" not in second.flags
    assert second.files[patch].count("def apply_liger_kernel_to_tiny(") == 1
    said = "0.12 from fp32, HuggingFace 0.01"
    assert said in second.pull_body
    assert said in second.commit_message
    assert f"sha256:{made.sha256()}" in second.pull_body  # the approval binds to the profile as it was
    assert [(one.attempt, one.part) for one in second.repairs] == [(1, "TinyMLP")]
    third = repaired(made, second, applied, 2, failed("part/apply_rotary_pos_emb"))
    assert third is not None
    assert [(one.attempt, one.part) for one in third.repairs] == [(1, "TinyMLP"), (2, "apply_rotary_pos_emb")]
    assert "TinyMLP is left unpatched" in third.commit_message
    assert repaired(made, third, applied, MAX_ROUNDS + 1, failed("part/TinyRMSNorm")) is None


def test_a_file_that_only_the_first_plan_touched_is_put_back(release: CheckoutTree) -> None:
    first_plan = profile(norms=[norm(offset=1.0, casting_mode="none", liger_class=None)])
    made = listed(first_plan, write(first_plan, release))
    first = write(made, release)
    path = "src/liger_kernel/transformers/rms_norm.py"
    assert path in first.files
    second = repaired(made, first, release, 1, failed("flag/class_rms_norm"))
    assert second is not None
    assert second.files[path] == release.read(path)
    assert set(second.files) == set(first.files)


def test_a_repair_does_not_touch_a_file_that_was_not_approved(release: CheckoutTree) -> None:
    """Not in place, this norm needs a class of its own, in a file that the profile doesn't name: so it is left alone."""
    first_plan = profile(norms=[norm(casting_mode="llama", in_place=True)])
    made = listed(first_plan, write(first_plan, release))
    second = repaired(made, write(made, release), release, 1, failed("part/TinyRMSNorm"))
    assert second is not None
    assert set(second.files) <= {one.path for one in made.files}


def test_the_tree_before_a_candidate_has_neither_its_new_files_nor_its_edits(release: CheckoutTree) -> None:
    candidate = write(profile(), release)
    model = "src/liger_kernel/transformers/model/tiny.py"
    before = BeforeTree(Applied(release, candidate), candidate)
    assert before.read(model) is None
    assert model not in before.files("src/liger_kernel/transformers/model/*.py")
    assert before.read("README.md") == release.read("README.md") != candidate.files["README.md"]


def test_a_repair_is_recorded_with_what_was_measured() -> None:
    (one,) = changes(profile(), [failed("part/TinyMLP")], 2)
    assert one == Repair(
        attempt=2, check="model/part/TinyMLP", change="mlp_unpatched", part="TinyMLP",
        why="0.12 from fp32, HuggingFace 0.01",
    )  # fmt: skip
