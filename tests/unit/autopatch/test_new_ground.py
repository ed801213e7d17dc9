"""Kinds of model that new ground brought: two decoders, a capping module, a router in float32, a config without an auto class."""

from __future__ import annotations

import ast
import importlib
import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import LayerNorm

from agents.autopatch.act import write
from agents.autopatch.compose import compose
from agents.autopatch.decide_norms import _liger_class, constructor_of
from agents.autopatch.facts import ModelFacts, NormFacts
from app.checkout import CheckoutTree
from runners.model_checks.confined.tiny_runs import in_dtype
from runners.model_probe.norms import _made_as_nn
from runners.model_probe.rope import STATEMENTS, _record
from runners.model_probe.structure import imports_for, source_of
from tests.liger_checkout import liger_checkout
from tests.unit.autopatch.act_profiles import norm, profile

DATA = Path(__file__).resolve().parents[2] / "data" / "autopatch"
PATCH, TEST = "src/liger_kernel/transformers/monkey_patch.py", "test/transformers/test_monkey_patch.py"


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> CheckoutTree:
    return CheckoutTree(liger_checkout(tmp_path_factory.mktemp("release"), "0.8.5"))


def function(text: str, name: str) -> str:
    return next(
        ast.unparse(n) for n in ast.parse(text).body if isinstance(n, ast.FunctionDef) and n.name == name
    )


def test_both_decoders_of_a_model_are_patched_and_tested(release: CheckoutTree) -> None:
    made = profile(decoder_path="model.L_module", decoder_twins=["model.H_module"])
    files = write(made, release).files
    patched = function(files[PATCH], "apply_liger_kernel_to_tiny")
    assert "for base_model in (inner_model.L_module, inner_model.H_module):" in patched
    assert "for decoder_layer in base_model.layers:" in patched
    tested = function(files[TEST], "test_apply_liger_kernel_to_instance_for_tiny")
    assert tested.count(
        "for decoder in (dummy_model_instance.base_model.L_module, dummy_model_instance.base_model.H_module):"
    ) == 2  # fmt: skip
    assert "inspect.getsource(decoder.norm.forward) == inspect.getsource(LigerRMSNorm.forward)" in tested


def test_a_class_that_no_auto_class_builds_is_built_by_its_own_name(release: CheckoutTree) -> None:
    name = "test_apply_liger_kernel_to_instance_for_tiny"
    usual = function(write(profile(), release).files[TEST], name)
    own = function(write(profile(by_auto_class=False), release).files[TEST], name)
    assert "AutoModelForCausalLM.from_config(config)" in usual
    assert "transformers.TinyForCausalLM._from_config(config)" in own


def test_a_model_that_can_not_be_cast_gets_no_convergence_test_that_casts(release: CheckoutTree) -> None:
    candidate = write(profile(bf16_error="RuntimeError: float != c10::BFloat16"), release)
    assert {path for path in candidate.files if "convergence" in path} == {
        "test/convergence/fp32/test_mini_models.py",
        "test/convergence/fp32/test_mini_models_with_logits.py",
    }
    assert sum("/bf16/" in text and "float != c10::BFloat16" in text for text in candidate.left_out) == 2


if sys.version_info:  # as xLSTM's module has its norm, in the branch without another package

    class InABranch:
        def __init__(self, num_features: int, use_bias: bool = False) -> None: ...


def test_a_class_that_a_branch_defines_is_read_like_any_other() -> None:
    found = source_of(InABranch)
    assert found is not None
    assert constructor_of(found["text"]) == "num_features: int, use_bias: bool=False"


def test_the_number_of_a_cap_that_a_module_applies_is_found_by_the_probe() -> None:
    found = json.loads((DATA / "gemma2.json").read_text())
    source: str = found["forward"]["source"]
    lines = source.splitlines(keepends=True)
    first = next(i for i, line in enumerate(lines) if "if self.config.final_logit_softcapping" in line)
    indent = lines[first][: len(lines[first]) - len(lines[first].lstrip())]
    last = first + 1
    while lines[last].startswith(f"{indent} "):
        last += 1
    lines[first:last] = [f"{indent}logits = self.logit_softcap(logits)\n"]
    found["forward"]["source"] = "".join(lines)
    made = compose(ModelFacts.model_validate(found))
    assert made.forward.softcap == "final_logit_softcapping"
    found["head"]["logit_distances"]["final_logit_softcapping"] = 0.5
    assert compose(ModelFacts.model_validate(found)).forward.softcap is None


def test_the_norms_of_a_vision_part_are_reached_on_both_paths_and_the_tests_left_out_are_named(
    release: CheckoutTree,
) -> None:
    made = profile(
        vision=["TinyVisionBlock"],
        vision_norms=[
            norm(),
            norm(
                name="LayerNorm", kind="layer_norm", reached_as="nn.LayerNorm", liger_class="LigerLayerNorm"
            ),
        ],
        vision_norm_uses={
            "TinyRMSNorm": ["model.visual.blocks.*.norm1", "model.visual.final"],
            "LayerNorm": ["model.visual.stages.*.blocks.*.norm"],
        },
    )
    candidate = write(made, release)
    patched = function(candidate.files[PATCH], "apply_liger_kernel_to_tiny")
    assert (
        "for block in model.model.visual.blocks:\n                _patch_rms_norm_module(block.norm1)"
        in patched
    )
    assert "_patch_rms_norm_module(model.model.visual.final)" in patched
    assert "for block in model.model.visual.stages:" in patched
    assert "for inner_block in block.blocks:" in patched
    assert "_patch_layer_norm_module(inner_block.norm)" in patched
    assert "'LayerNorm': LigerLayerNorm" in patched
    tested = function(candidate.files[TEST], "test_apply_liger_kernel_to_instance_for_tiny")
    assert (
        "inspect.getsource(inner_block.norm.forward) == inspect.getsource(LigerLayerNorm.forward)" in tested
    )
    # a text batch calls no kernel of the vision part, so no count can show that its flag works
    assert "layer_norm" not in candidate.flags
    assert "layer_norm: bool" in patched
    left = [text for text in candidate.left_out if "multimodal" in text]
    assert [text.split(":")[0] for text in left] == [
        "test/convergence/bf16/test_mini_models_multimodal.py",
        "test/convergence/fp32/test_mini_models_multimodal.py",
    ]


def test_a_norm_class_that_only_the_vision_part_would_need_written_is_left(release: CheckoutTree) -> None:
    odd = norm(name="OddNorm", casting_mode="none", offset=1.0, liger_class=None)
    made = profile(vision=["V"], vision_norms=[odd], vision_norm_uses={"OddNorm": ["model.visual.norm"]})
    assert "OddNorm" not in write(made, release).files[PATCH]


def test_the_sizes_of_a_multimodal_model_are_its_text_configs(release: CheckoutTree) -> None:
    made = profile(causal_class="TinyForConditionalGeneration", text_model_type="tiny_text")
    text = write(made, release).files["src/liger_kernel/transformers/model/tiny.py"]
    assert "hidden_size=self.config.get_text_config().hidden_size" in text
    assert "hidden_size=self.config.hidden_size" not in text


class Router(nn.Module):
    _keep_in_fp32_modules_strict = frozenset({"gate"})

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.gate_proj = nn.Linear(4, 2), nn.Linear(4, 4)


def test_what_a_class_keeps_in_float32_keeps_its_values_too() -> None:
    model = Router()
    before = model.gate.weight.detach().clone()
    cast = in_dtype(model, torch.bfloat16)
    assert cast.gate_proj.weight.dtype is torch.bfloat16
    assert torch.equal(cast.gate.weight, before)
    assert in_dtype(Router(), torch.float32).gate.weight.dtype is torch.float32


MODELING = """\
from __future__ import annotations
import math
from typing import TYPE_CHECKING
from collections.abc import Sequence

if TYPE_CHECKING:
    from collections import OrderedDict
try:
    from no_such_package import soft_cap
except ImportError:
    def soft_cap(x):
        return x
"""


def test_what_a_modeling_file_may_have_made_itself_comes_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "modeling_capped.py").write_text(MODELING)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("modeling_capped")
    used = ast.parse("def f(x: Sequence, y: OrderedDict):\n    return soft_cap(math.exp(x))\n")
    assert imports_for(used, module) == [
        "from collections import OrderedDict",
        "from collections.abc import Sequence",
        "from modeling_capped import soft_cap",
        "import math",
    ]


class Indexer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.k_norm, self.q_norm = nn.LayerNorm(4), LayerNorm(4)


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q_norm = LayerNorm(4)


def test_a_norm_that_is_made_by_way_of_nn_is_not_reached_by_the_name_that_the_module_imported_too() -> None:
    for owner, made in ((Indexer(), True), (Plain(), False)):
        tiny: Any = types.SimpleNamespace(model=nn.Sequential(owner))
        (norm, *_) = owner.children()
        assert _made_as_nn(norm, "LayerNorm", tiny) is made


def test_a_helper_that_only_the_rotary_function_calls_is_not_taken_for_it() -> None:
    module: Any = types.ModuleType("modeling_tiny")
    module._apply_rotary_emb = lambda x: x
    module.apply_rotary_pos_emb = lambda q, k: (module._apply_rotary_emb(q), module._apply_rotary_emb(k))
    tiny = types.SimpleNamespace(
        resolved=types.SimpleNamespace(modeling=module),
        model=lambda **_: module.apply_rotary_pos_emb(1, 2),
        inputs=lambda: {"input_ids": None},
    )
    calls = _record(tiny, ["_apply_rotary_emb", "apply_rotary_pos_emb"])  # type: ignore[arg-type]
    assert {name: len(found) for name, found in calls.items()} == {
        "_apply_rotary_emb": 0,
        "apply_rotary_pos_emb": 1,
    }


def test_cos_and_sin_of_half_the_head_turn_the_whole_of_it() -> None:
    from transformers.models.gpt_oss.modeling_gpt_oss import apply_rotary_pos_emb

    q, k = torch.randn(1, 2, 3, 8), torch.randn(1, 1, 3, 8)
    cos, sin = torch.randn(1, 3, 4), torch.randn(1, 3, 4)
    ours = STATEMENTS["standard_halves"](q, k, cos, sin, 1)
    for found, wanted in zip(ours, apply_rotary_pos_emb(q, k, cos, sin), strict=True):
        torch.testing.assert_close(found, wanted)
    with pytest.raises(ValueError, match="half as wide"):
        STATEMENTS["standard_halves"](q, k, cos[..., :2], sin[..., :2], 1)


@pytest.mark.parametrize(
    ("keywords", "patched"), [(["num_features", "eps"], True), (["num_features", "use_bias"], False)]
)
def test_a_norm_that_is_made_with_what_no_liger_class_takes_is_left(
    keywords: list[str], patched: bool
) -> None:
    """xLSTM: `use_bias=` met a class without it, and the patched model could not be built."""
    facts = NormFacts(name="xLSTMRMSNorm", kind="rms_norm", keywords=keywords)
    made = norm(
        name="xLSTMRMSNorm",
        liger_class=None,
        constructor="num_features: int, eps: float=1e-06, use_bias: bool=False",
    )

    _liger_class(facts, made)

    assert made.patched is patched
    assert ("use_bias" in made.why) is not patched
