"""Modify mode on a real release: a supported model gets what it lacks, and nothing else changes."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from agents.autopatch.act import write
from agents.autopatch.model_profile import NormUse
from agents.autopatch.modify import modify
from agents.formatting import ActFailed
from app.checkout import CheckoutTree
from tests.dict_tree import DictTree
from tests.liger_checkout import liger_checkout
from tests.unit.autopatch.act_profiles import mlp, norm, profile
from tests.unit.autopatch.test_act_edits import PACKAGE, applied, removed

RELU2 = {
    "norms": [norm(patched=False, kind="other", why="LayerNorm with an offset")],
    "mlps": [mlp(activation="relu2", gated=False, liger_class="LigerReLUSquared", through_act2fn="relu2")],
}
PLAIN = {"norms": RELU2["norms"], "mlps": [mlp(gated=False, patched=False, why="ungated", liger_class=None)]}


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> CheckoutTree:
    return CheckoutTree(liger_checkout(tmp_path_factory.mktemp("release"), "0.8.5"))


@pytest.fixture(scope="module")
def supported(release: CheckoutTree) -> DictTree:
    """A checkout that supports `tiny` without its activation, as Nemotron was before #1176."""
    return applied(release, write(profile(**PLAIN), release))


def modified(tree: Any, *requested: str, **changes: Any) -> Any:
    return modify(profile(mode="modify", requested=list(requested), **changes), tree)


def test_the_activation_comes_into_both_paths_the_readme_the_test_and_the_revert(supported: DictTree) -> None:
    candidate = modified(supported, "--add relu_squared", **RELU2)
    patch = candidate.files[f"{PACKAGE}/monkey_patch.py"]
    ast.parse(patch)
    function = patch[patch.index("def apply_liger_kernel_to_tiny(") :]
    assert "relu_squared: bool = True," in function
    assert 'modeling_tiny.ACT2FN["relu2"] = LigerReLUSquared' in function
    assert "decoder_layer.mlp.act_fn = LigerReLUSquared()" in function
    assert set(candidate.files) == {
        f"{PACKAGE}/monkey_patch.py", "README.md", "test/transformers/test_monkey_patch.py", "test/utils.py",
    }  # fmt: skip
    changed = [p for p in candidate.files if removed(supported.read(p) or "", candidate.files[p])]
    assert changed == ["README.md"]  # its row is the one line that can't be added to
    test = candidate.files["test/transformers/test_monkey_patch.py"]
    assert "assert not isinstance(layer.mlp.act_fn, LigerReLUSquared)" in test
    assert test.count("assert isinstance(layer.mlp.act_fn, LigerReLUSquared)") == 1


def test_a_second_time_there_is_nothing_to_do(supported: DictTree) -> None:
    candidate = modified(supported, "--add relu_squared", **RELU2)
    again = DictTree({**supported.contents, **candidate.files})
    with pytest.raises(ActFailed, match="Nothing to change"):
        modified(again, "--add relu_squared", **RELU2)


def test_norms_that_the_instance_path_missed_are_added_to_its_loop(release: CheckoutTree) -> None:
    """Qwen3's q and k norms: 18 kernel calls by class, 10 by instance."""
    uses = [NormUse(owner="base", attribute="norm", norm="TinyRMSNorm")]
    base = applied(release, write(profile(norm_uses=uses), release))
    uses = [*uses, NormUse(owner="attention", attribute="self_attn.q_norm", norm="TinyRMSNorm")]
    candidate = modified(base, "--add rms_norm", norm_uses=uses)
    patch = candidate.files[f"{PACKAGE}/monkey_patch.py"]
    assert removed(base.read(f"{PACKAGE}/monkey_patch.py") or "", patch) == []
    assert "                _patch_rms_norm_module(decoder_layer.self_attn.q_norm)\n" in patch
    assert patch.count("def apply_liger_kernel_to_tiny(") == 1


def test_an_assignment_that_patches_nothing_is_replaced(supported: DictTree) -> None:
    path = f"{PACKAGE}/monkey_patch.py"
    text = supported.read(path) or ""
    start = text.index("def apply_liger_kernel_to_tiny(")
    live = "        from transformers.loss.loss_utils import nn\n\n        nn.functional.cross_entropy = liger_cross_entropy\n"
    dead = text[:start] + text[start:].replace(
        live, "        modeling_tiny.CrossEntropyLoss = LigerCrossEntropyLoss\n", 1
    )
    assert dead != text
    candidate = modified(DictTree({**supported.contents, path: dead}), "cross_entropy", **PLAIN)
    assert candidate.files[path] == text


def test_a_refresh_makes_the_forward_anew(supported: DictTree) -> None:
    path = f"{PACKAGE}/model/tiny.py"
    old = (supported.read(path) or "").replace("cache: Optional[Cache] = None,", "past_key_values=None,")
    candidate = modified(DictTree({**supported.contents, path: old}), "--refresh", **PLAIN)
    assert candidate.files == {path: supported.read(path)}


def test_what_the_model_has_no_part_for_is_refused(supported: DictTree) -> None:
    with pytest.raises(ActFailed, match="`geglu` can't be added: tiny has no part for it"):
        modified(supported, "--add geglu", **PLAIN)


def test_a_model_that_is_not_there_is_a_case_for_add(release: CheckoutTree) -> None:
    with pytest.raises(ActFailed, match="doesn't support tiny yet"):
        modified(release, "--add rms_norm")
