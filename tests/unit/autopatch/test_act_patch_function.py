"""The plan and the text of apply_liger_kernel_to_{m}."""

from __future__ import annotations

import ast
from typing import Any

from agents.autopatch.layout import NormVariant
from agents.autopatch.model_profile import NormUse
from agents.autopatch.patch_function import patch_function
from agents.autopatch.patch_plan import patch_plan
from agents.autopatch.tests_files import instance_test
from agents.conventions.reading import Definition, Outline
from tests.unit.autopatch.act_profiles import mlp, norm, profile, standard_rope
from tests.unit.autopatch.test_act_model_file import layout

CLASSES = {
    "LigerRMSNorm": "liger_kernel.transformers.rms_norm",
    "LigerSwiGLUMLP": "liger_kernel.transformers.swiglu",
    "LigerGEGLUMLP": "liger_kernel.transformers.geglu",
    "LigerExperts": "liger_kernel.transformers.swiglu",
    "LigerReLUSquared": "liger_kernel.transformers.relu_squared",
    "liger_rotary_pos_emb": "liger_kernel.transformers.rope",
    "LigerRMSNormForGemma2": "liger_kernel.transformers.rms_norm",
}
HELPERS = Outline(
    functions={
        "_patch_rms_norm_module": Definition(
            "_patch_rms_norm_module", 1, ("module", "offset", "eps", "casting_mode", "in_place", "row_mode")
        ),
        "_patch_geglu_module": Definition("_patch_geglu_module", 2, ("module",)),
    }
)
NORMS = tuple(
    NormVariant(name, "liger_kernel.transformers.rms_norm", casting, offset, in_place, init, "hidden_size")
    for name, casting, offset, in_place, init in (
        ("LigerRMSNorm", "llama", 0.0, True, "ones"),
        ("LigerRMSNormForGemma2", "gemma", 1.0, False, "zeros"),
    )
)


def written_test(**changes: Any) -> str:
    """The instance test of the same profile."""
    here = layout(classes=CLASSES, patch_functions=HELPERS, norms=NORMS)
    made = profile(**changes)
    code = instance_test(made, patch_plan(made, here), here)
    ast.parse(code)
    return code


def written(**changes: Any) -> tuple[Any, str]:
    here = layout(classes=CLASSES, patch_functions=HELPERS, norms=NORMS, **changes.pop("layout", {}))
    made = profile(**changes)
    plan = patch_plan(made, here)
    text = patch_function(made, plan, here)
    ast.parse(text)
    return plan, text


def test_both_paths_patch_the_same_parts() -> None:
    _, text = written()
    class_path, _, instance_path = text.partition("if model is None:")[2].partition("else:")
    assert "modeling_tiny.TinyRMSNorm = LigerRMSNorm" in class_path
    assert "modeling_tiny.TinyMLP = LigerSwiGLUMLP" in class_path
    assert "_patch_rms_norm_module(base_model.norm)" in instance_path
    assert "_patch_rms_norm_module(decoder_layer.self_attn.q_norm)" in instance_path
    assert "_patch_swiglu_module(decoder_layer.mlp, LigerSwiGLUMLP)" in instance_path


def test_only_names_of_the_module_are_assigned() -> None:
    """Nemotron's and Ministral's first patches assigned a CrossEntropyLoss that their modules don't have."""
    _, text = written()
    assert "CrossEntropyLoss =" not in text
    assert "nn.functional.cross_entropy = liger_cross_entropy" in text


def test_what_liger_cannot_do_is_off_by_default_and_says_why() -> None:
    plan, text = written(
        rope=standard_rope(variant="partial", patched=False, why="half of the head is rotated")
    )
    assert "rope: bool = False," in text
    assert (
        'logger.warning("rope=True is not supported for tiny models: half of the head is rotated.")' in text
    )
    assert not plan.on("rope")
    assert plan.operations() == ["RMSNorm", "SwiGLU", "CrossEntropyLoss", "FusedLinearCrossEntropy"]


def test_a_missing_part_is_taken_by_kwargs_so_that_callers_keep_working() -> None:
    plan, text = written(
        norms=[norm(patched=False, kind="layer_norm", why="LayerNorm with an offset")],
        mlps=[mlp(activation="relu2", gated=False, liger_class="LigerReLUSquared", through_act2fn="relu2")],
    )
    assert plan.takes_kwargs
    assert "**kwargs," in text
    assert 'modeling_tiny.ACT2FN["relu2"] = LigerReLUSquared' in text
    assert "decoder_layer.mlp.act_fn = LigerReLUSquared()" in text
    assert "TinyRMSNorm is not patched: LayerNorm with an offset." in text


def test_casting_mode_offset_and_in_place_reach_the_instance() -> None:
    gemma = norm(
        liger_class="LigerRMSNormForGemma2", casting_mode="gemma", offset=1.0, in_place=False, init_fn="zeros"
    )
    _, text = written(norms=[gemma])
    assert '_patch_rms_norm_module(base_model.norm, offset=1.0, casting_mode="gemma", in_place=False)' in text
    assert "modeling_tiny.TinyRMSNorm = LigerRMSNormForGemma2" in text


def test_a_norm_that_no_variant_computes_gets_a_class_of_its_own() -> None:
    plan, text = written(norms=[norm(casting_mode="gemma", liger_class=None, variant_of="LigerRMSNorm")])
    assert [(patch.liger_class, patch.new_variant) for patch in plan.norms] == [("LigerRMSNormForTiny", True)]
    assert "from liger_kernel.transformers.rms_norm import LigerRMSNormForTiny" in text


def test_layers_of_a_hybrid_model_are_told_apart() -> None:
    experts = mlp(name="TinyExperts", role="experts", attribute="mlp.experts", liger_class="LigerExperts")
    _, text = written(mlps=[mlp(), experts], architecture="hybrid")
    assert 'if IS_TRANSFORMERS_V5_OR_LATER and hasattr(decoder_layer.mlp, "experts"):' in text
    assert 'if not hasattr(decoder_layer.mlp, "experts"):' in text


def test_where_only_the_constructor_differs_the_forward_is_replaced() -> None:
    _, text = written(mlps=[mlp(liger_class=None, variant_of="LigerSwiGLUMLP")])
    assert "modeling_tiny.TinyMLP.forward = LigerSwiGLUMLP.forward" in text


def test_a_class_that_this_checkout_lacks_is_not_named() -> None:
    experts = mlp(name="TinyExperts", role="experts", attribute="mlp.experts", liger_class="LigerExperts")
    classes = {name: module for name, module in CLASSES.items() if name != "LigerExperts"}
    here = layout(classes=classes, patch_functions=HELPERS, norms=NORMS)
    made = profile(mlps=[experts], architecture="moe")
    plan = patch_plan(made, here)
    assert "LigerExperts" not in patch_function(made, plan, here).replace("has no LigerExperts", "")
    assert plan.notes == ("TinyExperts is not patched: this checkout has no LigerExperts.",)


def test_torchs_own_layer_norm_is_replaced_in_a_copy_of_the_modules_namespace() -> None:
    layer_norm = norm(
        name="LayerNorm", reached_as="nn.LayerNorm", kind="layer_norm", liger_class="LigerLayerNorm"
    )
    _, text = written(
        norms=[layer_norm],
        layout={},
    )
    assert "modeling_tiny.nn.LayerNorm =" not in text
    assert "modeling_tiny.nn = SimpleNamespace(" in text


def test_a_norm_with_a_constructor_that_no_class_of_the_checkout_has_stays_unpatched() -> None:
    scaled = norm(
        liger_class="LigerRMSNormForTiny",
        casting_mode="gemma",
        constructor="dim: int, eps: float=1e-06, with_scale: bool=True",
    )
    plan = patch_plan(profile(norms=[scaled]), layout())
    assert plan.norms == ()
    assert any("takes with_scale" in note for note in plan.notes)


def test_where_layers_hold_other_mixers_an_activation_is_replaced_only_where_there_is_one() -> None:
    relu2 = {
        "activation": "relu2",
        "gated": False,
        "liger_class": "LigerReLUSquared",
        "through_act2fn": "relu2",
    }
    dense = mlp(attribute="mixer", activation_attribute="act_fn", **relu2)
    experts = mlp(
        name="TinyExperts", role="experts", attribute="mixer.experts", activation_attribute="act_fn", **relu2
    )
    _, text = written(mlps=[dense, experts])
    assert (
        'if not hasattr(decoder_layer.mixer, "experts") and hasattr(decoder_layer.mixer, "act_fn"):\n' in text
    )
    code = written_test(mlps=[dense, experts])
    for sign in ("not ", ""):
        assert (
            'if hasattr(layer.mixer, "experts"):\n'
            f"                assert {sign}isinstance(layer.mixer.experts.act_fn, LigerReLUSquared)" in code
        )
        assert (
            'if not hasattr(layer.mixer, "experts") and hasattr(layer.mixer, "act_fn"):\n'
            f"                assert {sign}isinstance(layer.mixer.act_fn, LigerReLUSquared)" in code
        )


def test_a_place_that_holds_a_norm_in_some_layers_and_a_container_of_one_in_others() -> None:
    uses = [
        NormUse(owner="layer", attribute="post_norm", norm="TinyRMSNorm", optional=True),
        NormUse(owner="other", attribute="post_norm.norm", norm="TinyRMSNorm", optional=True),
    ]
    _, text = written(norm_uses=uses)
    assert (
        'if getattr(decoder_layer, "post_norm", None) is not None and not hasattr(decoder_layer.post_norm, "norm"):'
        in text
    )
    code = written_test(norm_uses=uses)
    assert 'if hasattr(layer, "post_norm") and not hasattr(layer.post_norm, "norm"):' in code
    assert 'if hasattr(layer, "post_norm") and hasattr(layer.post_norm, "norm"):' in code


def test_parts_in_a_list_of_a_layer_are_reached_by_their_number() -> None:
    uses = [
        NormUse(owner="other", attribute="input_layernorm.0", norm="TinyRMSNorm"),
        NormUse(owner="attention", attribute="self_attn.1.q_norm", norm="TinyRMSNorm", optional=True),
    ]
    mlps = [mlp(attribute="mlps.0"), mlp(attribute="mlps.1")]
    _, text = written(norm_uses=uses, mlps=mlps)
    assert "_patch_rms_norm_module(decoder_layer.input_layernorm[0])" in text
    assert (
        'if getattr(decoder_layer, "self_attn", None) is not None '
        'and getattr(decoder_layer.self_attn[1], "q_norm", None) is not None:' in text
    )
    assert "_patch_swiglu_module(decoder_layer.mlps[1], LigerSwiGLUMLP)" in text
    code = written_test(norm_uses=uses, mlps=mlps)
    assert "inspect.getsource(layer.mlps[0].forward) == inspect.getsource(LigerSwiGLUMLP.forward)" in code
    assert 'if hasattr(layer, "self_attn") and hasattr(layer.self_attn[1], "q_norm"):' in code


def test_a_norm_without_a_weight_is_left_where_the_model_exists_already() -> None:
    uses = [
        NormUse(owner="attention", attribute="self_attn.q_norm", norm="TinyRMSNorm"),
        NormUse(owner="attention", attribute="self_attn.v_norm", norm="TinyRMSNorm", weightless=True),
    ]
    _, text = written(norm_uses=uses)
    assert "_patch_rms_norm_module(decoder_layer.self_attn.q_norm)" in text
    assert "v_norm" not in text
    assert "v_norm" not in written_test(norm_uses=uses)


def test_layers_with_experts_are_passed_over_when_only_the_dense_ones_are_patched() -> None:
    dense = mlp(liger_class="LigerSwiGLUMLP")
    experts = mlp(
        name="TinyExperts", role="experts", attribute="mlp.experts", liger_class=None, patched=False
    )
    _, text = written(mlps=[dense, experts])
    assert 'if not hasattr(decoder_layer.mlp, "experts"):' in text
