"""`liger-bot watch`: what an existing patch expects of transformers, and what it finds there."""

from __future__ import annotations

import ast

import pytest

from agents.autopatch.drift import Drift, signature_drift, watch
from agents.autopatch.patch_reading import holds
from tests.dict_tree import DictTree

ROOT = "src/liger_kernel"
PATCH = """\
from liger_kernel.transformers.model.tiny import lce_forward as tiny_lce_forward


def apply_liger_kernel_to_tiny(rope=True, cross_entropy=False, rms_norm=True, model=None):
    from transformers.models.tiny import modeling_tiny
    from transformers.models.tiny.modeling_tiny import TinyModel

    if rope:
        modeling_tiny.apply_rotary_pos_emb = liger_rotary_pos_emb
    if cross_entropy:
        modeling_tiny.CrossEntropyLoss = LigerCrossEntropyLoss
    if rms_norm:
        modeling_tiny.TinyRMSNorm = LigerRMSNorm
    if IS_TRANSFORMERS_V5_OR_LATER:
        modeling_tiny.TinyExperts = LigerExperts
    else:
        modeling_tiny.TinyOldExperts = LigerExperts
    modeling_tiny.TinyForCausalLM.forward = tiny_lce_forward
    if model is not None:
        for layer in model.model.layers:
            if rms_norm:
                _patch_rms_norm_module(layer.input_layernorm)
            if layer.optional is not None:
                _patch_rms_norm_module(layer.optional.norm)


MODEL_TYPE_TO_APPLY_LIGER_FN = {"tiny": apply_liger_kernel_to_tiny}
"""
FORWARD = "def lce_forward(self, input_ids=None, past_key_values=None, return_dict=None, skip_logits=None, **kwargs):\n    pass\n"
MODELING = """\
def apply_rotary_pos_emb(q, k): ...
class TinyRMSNorm: ...
class TinyExperts: ...
class TinyDecoderLayer:
    def __init__(self):
        self.input_layernorm = TinyRMSNorm()
class TinyModel: ...
class TinyForCausalLM:
    @deprecate_kwarg("past_key_values", "6.0", new_name="cache")
    def forward(self, input_ids=None, cache=None, logits_to_keep=0, **kwargs): ...
"""


def findings(modeling: str = MODELING, version: str = "5.24.0", patch: str = PATCH) -> list[Drift]:
    checkout = DictTree(
        {
            "pyproject.toml": "",
            f"{ROOT}/__init__.py": "",
            f"{ROOT}/ops/__init__.py": "from liger_kernel.ops.swiglu import LigerSiLUMulFunction\n",
            f"{ROOT}/ops/swiglu.py": "import triton\n\n\n@triton.jit\ndef _kernel(x): ...\n",
            f"{ROOT}/utils.py": "def infer_device(): ...\n",
            f"{ROOT}/ops/utils.py": "",
            "test/utils.py": "",
            "benchmark/scripts/utils.py": "",
            f"{ROOT}/transformers/__init__.py": "",
            f"{ROOT}/transformers/functional.py": "",
            f"{ROOT}/transformers/monkey_patch.py": patch,
            f"{ROOT}/transformers/model/tiny.py": FORWARD,
        }
    )
    transformers = {"transformers/models/tiny/modeling_tiny.py": modeling} if modeling else {}
    return watch(checkout, DictTree(transformers), version)


def test_an_assignment_to_a_name_that_the_module_lacks_is_dead() -> None:
    (dead,) = [one for one in findings() if one.kind == "dead"]
    assert "`cross_entropy` replaces modeling_tiny.CrossEntropyLoss" in dead.what
    assert dead.where == f"{ROOT}/transformers/monkey_patch.py:11"
    assert dead.propose == "/liger autopatch tiny --add cross_entropy"


def test_a_name_that_the_module_imports_is_alive() -> None:
    alive = "from torch.nn import CrossEntropyLoss\n" + MODELING
    assert [one for one in findings(alive) if one.kind == "dead"] == []


@pytest.mark.parametrize(
    ("version", "looked_at", "passed_over"),
    [("4.57.0", "TinyOldExperts", "TinyExperts"), ("5.24.0", "TinyExperts", "TinyOldExperts")],
)
def test_the_branch_of_the_other_version_is_not_looked_at(
    version: str, looked_at: str, passed_over: str
) -> None:
    without_experts = MODELING.replace("class TinyExperts: ...\n", "")
    dead = " ".join(one.what for one in findings(without_experts, version) if one.kind == "dead")
    assert f"modeling_tiny.{looked_at}," in dead
    assert f"modeling_tiny.{passed_over}," not in dead


def test_the_forward_is_compared_with_the_models_own() -> None:
    (drift,) = [one for one in findings() if one.kind == "drifts"]
    assert drift.what == (
        "TinyForCausalLM.forward: past_key_values is called cache now; "
        "lce_forward knows logits_to_keep only as keyword arguments that it passes on; "
        "lce_forward takes return_dict, which the model no longer has"
    )
    assert drift.where == f"{ROOT}/transformers/model/tiny.py:1"
    assert drift.propose == "/liger autopatch tiny --refresh"


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("class TinyForCausalLM", "class TinyForOther", "modeling_tiny has no TinyForCausalLM"),
        ("class TinyModel", "class TinyBase", "transformers.models.tiny.modeling_tiny has no TinyModel"),
        ("self.input_layernorm", "self.pre_norm", "no class of the model sets `input_layernorm`"),
    ],
)
def test_what_is_gone_breaks_the_patch(old: str, new: str, what: str) -> None:
    assert [one for one in findings() if one.kind == "breaks"] == []
    (broken,) = [one for one in findings(MODELING.replace(old, new)) if one.kind == "breaks"]
    assert what in broken.what


def test_a_module_that_is_gone_is_told_once() -> None:
    (only,) = findings(modeling="")
    assert only.kind == "breaks"
    assert only.what == "this transformers has no transformers.models.tiny.modeling_tiny"
    assert only.propose == ""  # no request mends that


def test_a_forward_that_can_not_take_an_argument_says_that_it_raises() -> None:
    theirs, ours = (
        ast.parse(text).body[0] for text in ("def forward(self, a, b): ...", "def lce_forward(self, a): ...")
    )
    assert isinstance(theirs, ast.FunctionDef)
    assert isinstance(ours, ast.FunctionDef)
    assert signature_drift(theirs, ours) == ["lce_forward doesn't take b: passing one raises"]
    assert signature_drift(ours, ours) == []


@pytest.mark.parametrize(
    ("test", "version", "answer"),
    [
        ("IS_TRANSFORMERS_V5_OR_LATER", (5, 24, 0), True),
        ("not IS_TRANSFORMERS_V5_OR_LATER", (4, 57, 0), True),
        ('transformer_version < version.parse("4.52.4")', (4, 52, 3), True),
        ('transformer_version < version.parse("4.52.4")', (5, 0, 0), False),
        ("rms_norm", (5, 0, 0), None),
    ],
)
def test_a_condition_on_the_version(test: str, version: tuple[int, ...], answer: bool | None) -> None:
    assert holds(ast.parse(test, mode="eval").body, version) is answer
