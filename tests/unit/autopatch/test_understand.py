"""From recorded facts to decisions: what is decided, what is asked, what is refused."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from agents.autopatch.compose import compose
from agents.autopatch.facts import InspectionRefusal, ModelFacts
from agents.autopatch.model_profile import DECISIONS, ModelProfile
from agents.autopatch.refusals import refused
from agents.autopatch.understand import AnalysisFault, Asked, ask, old_transformers, profile_of
from agents.dev.refused import Refused
from runners.protocol import ModelRequest

DATA = Path(__file__).resolve().parents[2] / "data" / "autopatch"


def facts(model: str) -> dict[str, Any]:
    """Facts as a runner recorded them with transformers 5.24."""
    return json.loads((DATA / f"{model}.json").read_text())


def profile(found: dict[str, Any]) -> ModelProfile:
    return compose(ModelFacts.model_validate(found))


def values(made: ModelProfile) -> dict[str, str]:
    return {decision.name: decision.value for decision in made.decisions}


def asked(name: str = "nemotron", *requested: str) -> Asked:
    return Asked(name, ModelRequest(model=name), requested)


def test_nemotron_is_patched_only_where_a_liger_class_computes_the_same():
    made = profile(facts("nemotron"))

    assert values(made) == {
        "norm_type": "layer_norm_1p",
        "casting_mode": "not applicable",
        "offset": "not applicable",
        "in_place": "not applicable",
        "mlp": "NemotronMLP: relu2 ungated -> LigerReLUSquared through ACT2FN",
        "architecture": "dense",
        "vision": "none",
        "rope": "partial, not patched",
        "output_class": "CausalLMOutputWithPast",
        "hidden_state": "last_hidden_state",
        "logit_softcapping": "none",
        "decoder_norms": "input_layernorm, post_attention_layernorm; final: norm",
    }
    norm, mlp = made.norms[0], made.mlps[0]
    assert (norm.patched, norm.why) == (
        False,
        "it is LayerNorm with weight + 1 (layer_norm_1p), which no Liger kernel computes",
    )
    assert (mlp.patched, mlp.through_act2fn, mlp.liger_class) == (True, "relu2", "LigerReLUSquared")
    assert (made.rope.patched, made.rope.liger_function) == (False, None)
    assert "1.3 away" in made.rope.why
    assert made.questions == []


def test_gemma2_norms_run_out_of_place_because_a_residual_shares_their_gradient():
    made = profile(facts("gemma2"))

    norm = made.norms[0]
    assert (norm.liger_class, norm.casting_mode, norm.offset, norm.in_place, norm.init_fn) == (
        "LigerRMSNormForGemma2", "gemma", 1.0, False, "zeros",
    )  # fmt: skip
    evidence = next(d for d in made.decisions if d.name == "in_place").evidence
    read = [item for item in evidence if item.kind == "read"]
    assert ["post_attention_layernorm" in item.text for item in read] == [True, False]
    assert (read[0].where or "").startswith("transformers/models/gemma2/modeling_gemma2.py:")
    assert "in place 3.9 (model.embed_tokens.weight), not in place 7e-07" in evidence[-1].text
    assert values(made)["logit_softcapping"] == made.forward.softcap == "final_logit_softcapping"


@pytest.mark.parametrize("model", ["nemotron", "gemma2", "seed_oss", "qwen3_moe"])
def test_every_decision_was_read_and_probed(model: str):
    made = profile(facts(model))

    assert tuple(decision.name for decision in made.decisions) == DECISIONS
    for decision in made.decisions:
        assert {item.kind for item in decision.evidence} == {"read", "probe"}, decision.name
        assert all(item.where for item in decision.evidence if item.kind == "read"), decision.name


def test_both_kinds_of_layer_are_found_and_the_class_with_the_right_constructor_is_taken():
    made = profile(facts("qwen3_moe"))

    assert made.architecture == "hybrid"
    assert {(m.name, m.role, m.attribute): m.liger_class for m in made.mlps} == {
        (
            "Qwen3MoeMLP",
            "dense",
            "mlp",
        ): "LigerQwen3MoeSwiGLUMLP",  # LigerSwiGLUMLP takes no intermediate_size
        ("Qwen3MoeExperts", "experts", "mlp.experts"): "LigerExperts",
    }
    assert made.forward.aux_loss


def test_dropout_that_the_liger_class_would_leave_out_is_a_question():
    made = profile(facts("seed_oss"))

    assert not made.mlps[0].patched
    assert "residual_dropout 0.1" in made.mlps[0].why
    assert "Should it be patched nevertheless?" in made.questions[0]


def test_bits_that_contradict_the_source_become_a_question_and_nothing_is_patched():
    found = facts("gemma2")
    norm = found["norms"][0]
    norm["equal_bits"] |= {"gemma/1": 0.66, "llama/1": 1.0}
    norm |= {"casting_mode": "llama", "matches": ["llama/1"]}

    made = profile(found)

    assert not made.norms[0].patched
    assert "the source reads as gemma with offset 1, the bits say llama with offset 1" in made.questions[0]
    assert "modeling_gemma2.py:" in made.questions[0]


def test_a_norm_whose_bits_fit_no_mode_is_not_guessed():
    found = facts("gemma2")
    found["norms"][0] |= {"casting_mode": None, "offset": None, "matches": []}

    made = profile(found)

    assert not made.norms[0].patched
    assert "no single casting mode gives its bits" in made.questions[0]


def test_a_gradient_that_the_probe_says_is_overwritten_wins_over_a_source_that_looks_safe():
    found = facts("gemma2")
    layer = found["sources"]["Gemma2DecoderLayer"]
    layer["text"] = layer["text"].replace("residual + hidden_states", "combine(residual, hidden_states)")

    made = profile(found)

    assert made.norms[0].in_place is False
    assert "Not in place is right either way" in made.questions[0]


def test_an_activation_that_the_numbers_deny_is_a_question():
    found = facts("gemma2")
    found["feed_forwards"][0]["activation"]["name"] = "silu"

    made = profile(found)

    assert not made.mlps[0].patched
    assert "the source reads as gelu_tanh gated, the numbers say silu gated" in made.questions[0]


def test_a_rotary_function_that_is_not_what_its_source_says_is_a_question():
    found = facts("gemma2")
    found["rope"]["statements"] |= {"standard": 1.2, "interleaved": 0.0}

    made = profile(found)

    assert not made.rope.patched
    assert "the source reads as standard, the numbers say interleaved" in made.questions[0]


def test_a_rotary_call_that_makes_the_kernel_leave_its_tensors_is_not_patched():
    found = facts("gemma2")
    found["rope"] |= {
        "unsqueeze_dim": 2,
        "liger": {"liger_rotary_pos_emb": {"error": "it reads or writes outside its tensors (SIGABRT)"}},
    }

    made = profile(found)

    assert not made.rope.patched
    assert "unsqueeze_dim=2" in made.rope.why
    assert "outside its tensors" in made.rope.why


def test_a_partial_rope_is_patched_when_the_checkouts_kernel_computes_it():
    found = facts("nemotron")
    found["rope"]["liger"]["liger_rotary_pos_emb"] |= {"fp32": 1e-7, "bf16": 0.004}

    made = profile(found)

    assert (made.rope.variant, made.rope.patched) == ("partial", True)


def test_a_kernel_of_the_checkout_that_is_off_is_not_used():
    found = facts("gemma2")
    found["norms"][0]["liger"]["gemma/1"]["fp32"] = 0.01

    assert not profile(found).norms[0].patched


def test_parameters_that_no_class_of_the_checkout_has_need_a_new_one():
    found = facts("gemma2")
    for built in found["norms"][0]["constructors"].values():
        built["in_place"] = True

    norm = profile(found).norms[0]

    assert (norm.patched, norm.liger_class, norm.variant_of) == (True, None, "LigerRMSNorm")


def test_logits_that_something_unread_changes_are_a_question():
    found = facts("nemotron")
    found["head"]["logit_distances"]["none"] = 0.3

    made = profile(found)

    assert values(made)["logit_softcapping"] == "unknown"
    assert "What changes them?" in made.questions[0]


def test_the_profile_hash_covers_the_decisions():
    found = facts("nemotron")
    other = copy.deepcopy(found)
    other["norms"][0]["eps_attribute"] = "variance_epsilon"

    assert profile(found).sha256() == profile(found).sha256() != profile(other).sha256()


def test_a_model_that_is_there_already_is_refused_unless_something_is_to_be_added():
    entry = {"facts": facts("nemotron")}

    present = profile_of(entry, asked(), "5.24.0")
    added = profile_of(entry, asked("nemotron", "relu_squared"), "5.24.0")

    assert isinstance(present, Refused)
    assert present.suggestions[0] == "/liger autopatch nemotron --add relu_squared"
    assert isinstance(added, ModelProfile)
    assert (added.mode, added.requested) == ("modify", ["relu_squared"])
    assert isinstance(profile_of(entry, asked(), "5.24.0", replay=True), ModelProfile)


def test_facts_with_an_unknown_key_are_our_fault_not_a_profile():
    with pytest.raises(AnalysisFault, match="malformed facts"):
        profile_of({"facts": facts("nemotron") | {"surprise": 1}}, asked(), "5.24.0")


@pytest.mark.parametrize(
    ("code", "detail", "sentence"),
    [
        ("remote_code", "exotic", "remote code is never run"),
        ("encoder_only", "bert", "an encoder"),
        ("encoder_decoder", "bart", "an encoder-decoder"),
        ("another_models_class", "exaone LlamaForCausalLM llama", "patched under that name"),
        ("import_failed", "needs timm", "can't be imported: needs timm"),
        ("not_tiny", "it can't be built: ValueError: x", "No small model"),
        ("checkout_import_failed", "ImportError: x", "The checkout can't be imported"),
        ("timeout", "signal 14", "did not end well"),
        ("something_new", "x", "failed: x"),
    ],
)
def test_each_refusal_is_one_sentence_with_what_is_needed(code: str, detail: str, sentence: str):
    found = refused(InspectionRefusal(code=code, detail=detail), "model", "5.24.0")

    assert sentence in found.reason
    assert found.reason.endswith(".")
    assert found.needed


def test_an_unknown_name_offers_the_nearest():
    known = ["llama", "llama4_text", "nemotron", "LlamaForCausalLM"]

    found = refused(InspectionRefusal(code="unknown_model", detail="lama", known=known), "lama", "5.24.0")

    assert found.reason == "transformers 5.24.0 has no model called `lama`."
    assert found.suggestions[0] == "/liger autopatch llama"
    assert refused(InspectionRefusal(code="unknown_model", known=known), "qqqq").suggestions == ()


@pytest.mark.parametrize(
    ("text", "block", "expected"),
    [
        ("nemotron", None, Asked("nemotron", ModelRequest(model="nemotron"))),
        (
            "NemotronForCausalLM",
            None,
            Asked("NemotronForCausalLM", ModelRequest(model="NemotronForCausalLM")),
        ),
        (
            "nemotron --add relu_squared",
            None,
            Asked("nemotron", ModelRequest(model="nemotron"), ("relu_squared",)),
        ),
        ("org/name", '{"model_type": "glm"}', Asked("org/name", ModelRequest(config={"model_type": "glm"}))),
    ],
)
def test_what_is_asked_for(text: str, block: str | None, expected: Asked):
    assert ask(text, block) == expected


@pytest.mark.parametrize(
    ("text", "block", "reason"),
    [
        ("org/name", None, "nothing is fetched from the Hub"),
        ("", None, "No model is named"),
        ("rm -rf /", None, "is not the name of a model"),
        ("x", "{", "is not JSON"),
        ("x", "[1]", "is not a JSON object"),
    ],
)
def test_what_can_not_be_asked_for(text: str, block: str | None, reason: str):
    found = ask(text, block)

    assert isinstance(found, Refused)
    assert reason in found.reason


def test_a_transformers_older_than_the_checkouts_pin_is_refused():
    found = old_transformers("4.57.1", '"transformers>=5.0.0",')

    assert found is not None
    assert found.reason == "The runner has transformers 4.57.1, and this repository needs >= 5.0.0."
    assert old_transformers("5.24.0", '"transformers>=4.52.0",') is None


def test_a_decoder_from_another_models_file_is_refused_with_that_models_name():
    found = facts("seed_oss")
    found["sources"][found["layer_class"]]["file"] = "transformers/models/qwen2/modeling_qwen2.py"

    answer = profile_of({"facts": found}, asked("seed_oss"), "5.24.0", replay=True)

    assert isinstance(answer, Refused)
    assert "which is patched as `qwen2`" in answer.reason


def test_a_head_that_does_more_than_multiply_is_refused_and_a_linear_one_is_not():
    found = facts("seed_oss")
    assert isinstance(profile_of({"facts": found}, asked("seed_oss"), "5.24.0", replay=True), ModelProfile)
    found["head"] |= {"head_class": "ScaledHead", "liger_loss": {"model": 5.0, "plain": 0.05}}

    answer = profile_of({"facts": found}, asked("seed_oss"), "5.24.0", replay=True)

    assert isinstance(answer, Refused)
    assert "ScaledHead, not a linear layer" in answer.reason
