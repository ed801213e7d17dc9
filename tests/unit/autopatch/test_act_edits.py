"""The whole candidate on real releases: which files, and that nothing but the new model is touched."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from agents.autopatch.act import write
from agents.autopatch.model_candidate import ModelCandidate
from agents.formatting import ActFailed
from app.checkout import CheckoutTree
from tests.dict_tree import DictTree
from tests.liger_checkout import liger_checkout
from tests.unit.autopatch.act_profiles import HEAD, LOSS, TAIL, mlp, norm, profile, standard_rope

RELEASES = ("0.7.0", "0.8.0", "0.8.5")
PACKAGE = "src/liger_kernel/transformers"
USUAL = {
    f"{PACKAGE}/model/tiny.py",
    f"{PACKAGE}/monkey_patch.py",
    f"{PACKAGE}/__init__.py",
    "test/transformers/test_monkey_patch.py",
    "test/utils.py",
    "test/convergence/bf16/test_mini_models.py",
    "test/convergence/bf16/test_mini_models_with_logits.py",
    "test/convergence/fp32/test_mini_models.py",
    "test/convergence/fp32/test_mini_models_with_logits.py",
    "README.md",
}


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CheckoutTree]:
    return {
        release: CheckoutTree(liger_checkout(tmp_path_factory.mktemp("release"), release))
        for release in RELEASES
    }


def removed(before: str, after: str) -> list[str]:
    """Lines of `before` that `after` doesn't have in the same order."""
    left = iter(after.splitlines(keepends=True))
    return [line for line in before.splitlines(keepends=True) if line not in left]


@pytest.mark.parametrize("release", RELEASES)
def test_the_usual_files_are_written_and_no_line_is_removed(
    release: str, trees: dict[str, CheckoutTree]
) -> None:
    candidate = write(profile(), trees[release])
    assert set(candidate.files) == USUAL
    assert candidate.created == [f"{PACKAGE}/model/tiny.py"]
    assert (candidate.beyond, candidate.left_out) == ([], [])
    for path, text in candidate.files.items():
        if path.endswith(".py"):
            ast.parse(text)
        assert removed(trees[release].read(path) or "", text) == [], path


@pytest.mark.parametrize("release", RELEASES)
def test_the_model_is_registered_and_exported_once_in_each_place(
    release: str, trees: dict[str, CheckoutTree]
) -> None:
    candidate = write(profile(text_model_type="tiny_text"), trees[release])
    patch = candidate.files[f"{PACKAGE}/monkey_patch.py"]
    assert patch.count('    "tiny": apply_liger_kernel_to_tiny,\n') == 1
    assert patch.count('    "tiny_text": apply_liger_kernel_to_tiny,\n') == 1
    init = candidate.files[f"{PACKAGE}/__init__.py"]
    assert init.count("apply_liger_kernel_to_tiny") == 3
    assert (
        "    from liger_kernel.transformers.monkey_patch import apply_liger_kernel_to_tiny  # noqa: F401\n"
        in init
    )


@pytest.mark.parametrize("release", RELEASES)
def test_a_model_type_that_python_can_not_name_is_registered_as_it_is(
    release: str, trees: dict[str, CheckoutTree]
) -> None:
    candidate = write(profile(model_type="tiny-gpt"), trees[release])
    assert candidate.created == [f"{PACKAGE}/model/tiny_gpt.py"]
    assert "TINY_GPT_AVAILABLE = True" in candidate.files["test/convergence/fp32/test_mini_models.py"]
    table = '    "tiny-gpt": apply_liger_kernel_to_tiny_gpt,\n'
    for path, text in candidate.files.items():
        if path.endswith(".py"):
            ast.parse(text)
        assert "tiny-gpt" not in text.replace(table, ""), path
    assert table in candidate.files[f"{PACKAGE}/monkey_patch.py"]


def test_a_file_with_carriage_returns_keeps_them() -> None:
    row = "| Llama | `liger_kernel.transformers.apply_liger_kernel_to_llama` | RoPE |\r\n"
    from agents.autopatch.patch_plan import Plan
    from agents.autopatch.readme import add_row

    plan = Plan("apply_liger_kernel_to_tiny", "modeling_tiny", (), (), (), takes_kwargs=False, rope=False)
    after = add_row("# x\r\n" + row, profile(), plan)
    assert after is not None
    assert after.count("\r\n") == after.count("\n") == 3


def test_tolerances_are_those_of_a_relative_as_written_there(trees: dict[str, CheckoutTree]) -> None:
    text = write(profile(), trees["0.8.5"]).files["test/convergence/fp32/test_mini_models.py"]
    block = text[text.index('pytest.param(\n            "mini_tiny",') :]
    numbers = [line.strip(" ,") for line in block.splitlines()[2:11]]
    assert numbers == ["32", "1e-4", "torch.float32", "1e-8", "1e-5", "5e-3", "1e-5", "5e-3", "1e-5"]


def test_what_run_mini_model_asks_of_every_model_is_not_asked_of_this_one(
    trees: dict[str, CheckoutTree],
) -> None:
    partial = standard_rope(variant="partial", patched=False, why="partial")
    candidate = write(profile(rope=partial), trees["0.8.5"])
    text = candidate.files["test/convergence/bf16/test_mini_models.py"]
    assert 'or model_name == "mini_tiny"' in text
    assert any("run_mini_model" in sentence for sentence in candidate.beyond)


def test_a_variant_class_goes_beyond_the_usual_files_and_says_so(trees: dict[str, CheckoutTree]) -> None:
    odd = norm(
        casting_mode="none", liger_class=None, variant_of="LigerRMSNorm", constructor="dim: int, eps=1e-6"
    )
    candidate = write(profile(norms=[odd]), trees["0.8.5"])
    text = candidate.files[f"{PACKAGE}/rms_norm.py"]
    assert "class LigerRMSNormForTiny(LigerRMSNorm):\n    def __init__(self, dim, " in text
    assert any("LigerRMSNormForTiny" in sentence for sentence in candidate.beyond)


def test_a_models_own_output_class_is_extended_behind_a_guard(trees: dict[str, CheckoutTree]) -> None:
    source = (HEAD + LOSS + TAIL).replace("CausalLMOutputWithPast", "TinyOutput")
    own = {"output_class": "TinyOutput", "output_module": "transformers.models.tiny.modeling_tiny"}
    candidate = write(profile(source, forward=own), trees["0.8.5"])
    text = candidate.files[f"{PACKAGE}/model/output_classes.py"]
    assert "except Exception:\n    _TinyOutput = None\n" in text
    assert "class LigerTinyOutput(_TinyOutput):" in text
    assert "return LigerTinyOutput(" in candidate.files[f"{PACKAGE}/model/tiny.py"]


def test_a_model_that_is_there_already_is_not_written_over(trees: dict[str, CheckoutTree]) -> None:
    with pytest.raises(ActFailed, match="supports llama already, by apply_liger_kernel_to_llama"):
        write(profile(model_type="llama"), trees["0.8.5"])


def test_the_result_is_the_same_every_time_and_can_be_applied_to_itself_only_once(
    trees: dict[str, CheckoutTree],
) -> None:
    first = write(profile(), trees["0.8.5"])
    assert write(profile(), trees["0.8.5"]) == first
    with pytest.raises(ActFailed, match="supports tiny already"):
        write(profile(), applied(trees["0.8.5"], first))


def test_an_activation_entry_is_restored_by_the_revert_helper(trees: dict[str, CheckoutTree]) -> None:
    relu2 = mlp(activation="relu2", gated=False, liger_class="LigerReLUSquared", through_act2fn="relu2")
    text = write(profile(mlps=[relu2]), trees["0.8.5"]).files["test/utils.py"]
    assert 'modeling_tiny.ACT2FN["relu2"] = ACT2CLS["relu2"]' in text


def applied(tree: CheckoutTree, candidate: ModelCandidate) -> DictTree:
    root = Path(tree.root)
    contents = {
        path.relative_to(root).as_posix(): tree.read(path.relative_to(root).as_posix()) or ""
        for pattern in (
            "src/**/*.py",
            "test/**/*.py",
            "benchmark/scripts/*.py",
            "*.toml",
            "setup.py",
            "README.md",
        )
        for path in root.glob(pattern)
        if path.is_file()
    }
    return DictTree({**contents, **candidate.files})
