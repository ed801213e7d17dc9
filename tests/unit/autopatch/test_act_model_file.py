"""lce_forward from a model's own forward."""

from __future__ import annotations

import ast

import pytest

from agents.autopatch.forward_cut import Unpatchable
from agents.autopatch.layout import Layout
from agents.autopatch.model_file import model_file
from agents.autopatch.model_profile import ModelProfile
from agents.conventions.reading import Outline
from tests.unit.autopatch.act_profiles import (
    AUX,
    HEAD,
    LOSS,
    SCALE,
    SOFTCAP,
    TAIL,
    UNSHIFTED,
    Z_LOSS,
    profile,
)


def layout(**changes: object) -> Layout:
    values = {
        "package": "liger_kernel",
        "source_root": "src/liger_kernel",
        "monkey_patch": "src/liger_kernel/transformers/monkey_patch.py",
        "patch_names": {},
        "patch_functions": Outline(),
        "registered": {},
        "classes": {},
        "norms": (),
        "output_classes": ("LigerCausalLMOutputWithPast",),
        "has_output_classes": True,
        "trainable_head": True,
        "unpacked": ("loss", "_", "token_accuracy", "predicted_tokens"),
        "loss_filters": True,
        "loss_parameters": (),
        "v5_flag": True,
        "convergence": (),
    }
    return Layout(**{**values, **changes})  # type: ignore[arg-type]


def function(text: str) -> ast.FunctionDef:
    found = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    assert [node.name for node in found] == ["lce_forward"]
    return found[0]


def branches(text: str) -> tuple[str, str]:
    """What runs with the fused loss, and what runs without."""
    conditional = [
        n for n in function(text).body if isinstance(n, ast.If) and ast.unparse(n.test) == "skip_logits"
    ][-1]
    return tuple("\n".join(map(ast.unparse, part)) for part in (conditional.body, conditional.orelse))  # type: ignore[return-value]


def test_the_signature_is_the_models_own_with_skip_logits() -> None:
    node = function(model_file(profile(), layout()))
    names = [argument.arg for argument in node.args.args]
    assert names == ["self", "input_ids", "cache", "labels", "logits_to_keep", "skip_logits"]
    assert node.args.kwarg is not None
    assert ast.unparse(node.args.args[4].annotation or ast.Constant(0)) == "Union[int, torch.Tensor]"


def test_decorators_that_behave_stay_and_those_that_document_go() -> None:
    decorators = [ast.unparse(one) for one in function(model_file(profile(), layout())).decorator_list]
    assert decorators == [
        "can_return_tuple",
        "deprecate_kwarg('past_key_values', '5.40.0', new_name='cache')",
    ]


def test_every_name_is_imported_or_local_and_nothing_else_is_imported() -> None:
    text = model_file(profile(), layout())
    imported = {
        alias.name
        for node in ast.parse(text).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert imported == {
        "Optional", "Tuple", "Union", "Cache", "can_return_tuple", "deprecate_kwarg",
        "LigerCausalLMOutputWithPast", "lce_maybe_trainable_lm_head", "unpack_cross_entropy_result",
    }  # fmt: skip


def test_the_logits_helper_of_new_transformers_is_not_needed() -> None:
    text = model_file(profile(), layout())
    assert "slice_logits_to_keep" not in text
    assert "kept_hidden_states = hidden_states[:, slice_indices, :]" in text


def test_without_the_fused_loss_the_models_own_loss_gets_the_shifted_labels() -> None:
    fused, plain = branches(model_file(profile(), layout()))
    assert "self.lm_head(" not in fused
    assert "shift_labels=shift_labels" in fused
    assert "vocab_size=self.vocab_size" in plain
    assert "shift_labels=shift_labels" in plain


def test_a_slice_is_made_contiguous_because_the_loss_views_it() -> None:
    fused, _ = branches(model_file(profile(), layout()))
    assert "hidden_states=kept_hidden_states.contiguous()" in fused


def test_softcapping_goes_into_the_fused_loss_and_stays_on_the_logits() -> None:
    text = model_file(
        profile(HEAD + SOFTCAP + LOSS + TAIL, forward={"softcap": "final_logit_softcapping"}), layout()
    )
    fused, plain = branches(text)
    assert "final_logit_softcapping=self.config.final_logit_softcapping" in fused
    assert "torch.tanh(logits)" in plain


def test_the_cap_is_read_from_the_part_of_the_config_that_the_model_reads_it_from() -> None:
    walrus = """\
    if (cap := self.config.get_text_config().final_logit_softcapping) is not None:
        logits = torch.tanh(logits / cap) * cap
"""
    forward = {"softcap": "final_logit_softcapping"}
    fused, _ = branches(model_file(profile(HEAD + walrus + LOSS + TAIL, forward=forward), layout()))
    assert "final_logit_softcapping=self.config.get_text_config().final_logit_softcapping" in fused
    by_module = HEAD + "    logits = self.logit_softcap(logits)\n" + LOSS + TAIL
    fused, _ = branches(model_file(profile(by_module, forward=forward), layout()))
    assert "final_logit_softcapping=self.config.final_logit_softcapping" in fused
    parts = {"causal_class": "TinyForConditionalGeneration", "text_model_type": "tiny_text"}
    fused, _ = branches(model_file(profile(by_module, forward=forward, **parts), layout()))
    assert "final_logit_softcapping=self.config.get_text_config().final_logit_softcapping" in fused


def test_a_scale_of_the_logits_is_a_scale_of_the_hidden_states_in_the_fused_loss() -> None:
    fused, plain = branches(model_file(profile(HEAD + SCALE + LOSS + TAIL), layout()))
    assert "(kept_hidden_states / self.config.logits_scaling).contiguous()" in fused
    assert "logits = logits / self.config.logits_scaling" in plain


def test_a_contiguous_copy_of_the_logits_is_nothing_to_follow() -> None:
    head = HEAD.replace("self.lm_head(hidden_states)", "self.lm_head(hidden_states).contiguous()")
    fused, plain = branches(model_file(profile(head + LOSS + TAIL), layout()))
    assert "lce_maybe_trainable_lm_head" in fused
    assert "logits = self.lm_head(kept_hidden_states)" in plain


def test_the_router_loss_stays_and_its_function_is_imported_from_the_modeling_module() -> None:
    text = model_file(profile(HEAD + LOSS + AUX + TAIL), layout())
    assert "from transformers.models.tiny.modeling_tiny import load_balancing_loss_func" in text
    assert "# same device" in text


def test_older_checkouts_have_neither_output_classes_nor_an_unpacker() -> None:
    old = layout(output_classes=(), has_output_classes=False, trainable_head=False, unpacked=())
    text = model_file(profile(), old)
    fused, _ = branches(text)
    assert fused.startswith("loss = LigerForCausalLMLoss(")
    assert "lm_head_weight=self.lm_head.weight" in fused
    assert "token_accuracy" not in text
    assert "from transformers.modeling_outputs import CausalLMOutputWithPast" in text


def test_the_result_is_unpacked_as_the_siblings_of_this_checkout_do() -> None:
    text = model_file(profile(), layout(unpacked=("loss", "_", "token_accuracy")))
    assert "loss, _, token_accuracy = unpack_cross_entropy_result(result)" in text
    assert "predicted_tokens" not in text


def test_a_strict_loss_gets_only_the_arguments_that_it_knows() -> None:
    strict = layout(loss_filters=False, loss_parameters=("hidden_states", "num_items_in_batch", "reduction"))
    text = model_file(profile(), strict)
    assert 'LOSS_ARGUMENTS = {"num_items_in_batch"}' in text
    assert "**loss_kwargs" in branches(text)[0]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (HEAD + Z_LOSS + TAIL, "adds to its loss from the logits"),
        (HEAD + UNSHIFTED + TAIL, "is not self.loss_function"),
        (HEAD + "    logits = logits[..., :7]\n" + LOSS + TAIL, "can't follow `logits = logits[..., :7]`"),
        (HEAD + "    logits = self.cap(logits)\n" + LOSS + TAIL, "can't follow `logits = self.cap(logits)`"),
        (HEAD + TAIL, "no `if labels is not None:` block"),
    ],
)
def test_what_the_fused_loss_cannot_compute_is_refused_with_its_line(source: str, said: str) -> None:
    with pytest.raises(
        Unpatchable,
        match=said.replace("[", r"\[").replace("(", r"\(").replace(")", r"\)").replace(".", r"\."),
    ):
        model_file(profile(source), layout())


def with_head_bias() -> ModelProfile:
    plain = profile()
    return plain.model_copy(update={"forward": plain.forward.model_copy(update={"head_bias": True})})


def test_the_bias_of_a_head_reaches_the_fused_loss() -> None:
    fused, materialized = branches(model_file(with_head_bias(), layout(loss_parameters=("bias",))))
    assert "bias=self.lm_head.bias" in fused
    assert "bias" not in materialized
    assert "bias" not in model_file(profile(), layout(loss_parameters=("bias",)))


def test_a_bias_that_the_checkouts_loss_does_not_take_is_refused() -> None:
    with pytest.raises(Unpatchable, match="its head has a bias"):
        model_file(with_head_bias(), layout(loss_parameters=("softcap",)))


def test_logits_of_another_name_are_found() -> None:
    renamed = (HEAD + LOSS + TAIL).replace("logits = self.lm_head", "lm_logits = self.lm_head")
    renamed = renamed.replace("loss_function(logits", "loss_function(lm_logits").replace(
        "logits=logits", "logits=lm_logits"
    )
    assert "lm_logits" in renamed
    assert ast.dump(function(model_file(profile(renamed), layout()))) == ast.dump(
        function(model_file(profile(), layout()))
    )
