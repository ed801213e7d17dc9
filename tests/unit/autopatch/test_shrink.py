"""What a config becomes when it is shrunk."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from runners.model_probe.shrink import MINI, TINY, made_small, shrunk


def config(**values: Any) -> SimpleNamespace:
    return SimpleNamespace(**values)


def test_sizes_keep_what_divides_what():
    small = shrunk(
        config(hidden_size=4096, num_attention_heads=32, num_key_value_heads=8, head_dim=128, intermediate_size=11008,
               vocab_size=32000, num_hidden_layers=32, rms_norm_eps=1e-6, bos_token_id=1, eos_token_id=50256)
    )  # fmt: skip

    assert small["hidden_size"] == small["num_attention_heads"] * small["head_dim"] == 64
    assert (small["num_key_value_heads"], small["num_hidden_layers"], small["vocab_size"]) == (2, 2, 128)
    assert small["intermediate_size"] != small["hidden_size"]  # a transposed projection would not be noticed
    assert "rms_norm_eps" not in small
    assert small["eos_token_id"] < small["vocab_size"]
    assert "bos_token_id" not in small


def test_multi_head_and_multi_query_attention_stay_what_they_are():
    assert shrunk(config(num_attention_heads=32, num_key_value_heads=32))["num_key_value_heads"] == TINY.heads
    assert "num_key_value_heads" not in shrunk(config(num_attention_heads=32, num_key_value_heads=1))


def test_the_first_layer_of_each_kind_is_kept_in_order():
    kinds = ["sliding", "sliding", "full", "sliding", "linear", "full"]

    small = shrunk(config(num_hidden_layers=6, layer_types=kinds, mlp_layer_types=["dense", *["sparse"] * 5]))

    assert small["layer_types"] == ["sliding", "sliding", "full", "linear"]
    assert small["mlp_layer_types"] == ["dense", "sparse", "sparse", "sparse"]
    assert small["num_hidden_layers"] == 4


def test_layers_of_one_kind_become_two():
    small = shrunk(config(num_hidden_layers=24, layer_types=["full"] * 24))

    assert (small["num_hidden_layers"], small["layer_types"]) == (2, ["full", "full"])
    assert shrunk(config(num_hidden_layers=24), MINI)["num_hidden_layers"] == 4


def test_a_mixture_also_shows_its_dense_layer():
    small = shrunk(config(num_hidden_layers=24, num_experts=128, num_experts_per_tok=8, mlp_only_layers=[]))

    assert small["mlp_only_layers"] == [0]
    assert (small["num_experts"], small["num_experts_per_tok"]) == (4, 2)


@pytest.mark.parametrize("section", [[16, 24, 24], [24, 20, 20]])
def test_sections_of_a_multimodal_rope_add_up_to_half_a_head(section: list[int]):
    small = shrunk(config(head_dim=128, rope_parameters={"mrope_section": section, "rope_type": "default"}))

    assert sum(small["rope_parameters"]["mrope_section"]) == small["head_dim"] // 2


def test_what_is_none_but_needed_gets_a_number():
    assert shrunk(config(head_dim=None, num_key_value_heads=None)) == {
        "head_dim": 16,
        "num_key_value_heads": 2,
    }


def test_the_original_is_not_changed():
    kinds = ["a", "b"] * 4
    original = config(num_hidden_layers=8, layer_types=kinds, rope_parameters={"mrope_section": [16, 24, 24]})

    shrunk(original)

    assert original.layer_types == ["a", "b"] * 4
    assert original.rope_parameters == {"mrope_section": [16, 24, 24]}


def test_the_model_of_the_convergence_tests_has_nothing_random_and_the_probed_one_keeps_it():
    values = {
        "resid_pdrop": 0.1,
        "attention_dropout": 0.0,
        "router_jitter_noise": 0.01,
        "initializer_range": 0.02,
    }

    assert shrunk(config(**values), MINI) == {"resid_pdrop": 0.0, "router_jitter_noise": 0.0}
    assert (
        shrunk(config(**values), TINY) == {}
    )  # a dropout in the feed-forward decides that it is not patched


def test_two_layers_are_kept_of_a_kind_that_shares_its_weights():
    """Zamba: with one hybrid layer there is nothing to tie, and the model can't be built."""
    kinds = ["linear_attention", "linear_attention", "hybrid", "linear_attention", "hybrid"]

    small = shrunk(config(num_hidden_layers=5, layers_block_type=kinds))
    counted = shrunk(config(num_hidden_layers=5, layers_block_type=kinds, hybrid_layer_ids=[2, 4]))

    assert small["layers_block_type"] == ["linear_attention", "hybrid", "hybrid"]
    assert counted["layers_block_type"] == ["linear_attention", "hybrid"]


def test_a_rope_that_is_left_out_has_a_set_for_each_kind_of_layer():
    values = {"layer_types": ["full_attention"] * 4, "num_hidden_layers": 4, "rope_parameters": {}}

    small = shrunk(config(**values))

    assert small["rope_parameters"] == {"full_attention": {"rope_type": "default", "rope_theta": 10000.0}}


def test_a_nested_config_keeps_what_the_config_json_says_of_it():
    given = {"vocab_size": 50000, "text_config": {"hidden_size": 4096, "final_logit_softcapping": 30.0}}

    small = made_small(
        given, {"text_config": {"model_type": "some_text", "hidden_size": 64}, "rope": {"a": 1}}
    )

    assert small == {
        "vocab_size": 50000,
        "text_config": {"model_type": "some_text", "hidden_size": 64, "final_logit_softcapping": 30.0},
        "rope": {"a": 1},
    }
