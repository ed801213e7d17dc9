"""The right answers to the twelve decisions for models that Liger-Kernel patches, and for some that it doesn't.

Read in the modeling files of transformers 5.24 and in the merged patches; where merged code and the classes disagree, the
classes' own bits decide, and MERGED_DIFFERS says so.
"""

from __future__ import annotations

from typing import Any

RMS = {"norm_type": "rms_norm", "offset": "0", "casting_mode": "llama", "in_place": "True"}
GEMMA = {"norm_type": "rms_norm", "offset": "1", "casting_mode": "gemma", "in_place": "False"}
OUTPUT = {"output_class": "CausalLMOutputWithPast", "hidden_state": "last_hidden_state"}
TEXT = {"vision": "none", "logit_softcapping": "none"}
SWIGLU = {"mlp": "silu gated -> LigerSwiGLUMLP", "architecture": "dense"}
GEGLU = {"mlp": "gelu_tanh gated -> LigerGEGLUMLP", "architecture": "dense"}
STANDARD = {"rope": "standard, patched"}
NAMES = {"decoder_norms": "input_layernorm, post_attention_layernorm"}
QK = {
    "decoder_norms": "input_layernorm, post_attention_layernorm; inside: self_attn.q_norm, self_attn.k_norm"
}
SANDWICH = "input_layernorm, post_attention_layernorm, pre_feedforward_layernorm, post_feedforward_layernorm"
MOE = {"output_class": "MoeCausalLMOutputWithPast", "hidden_state": "last_hidden_state"}
LLAMA_LIKE = RMS | OUTPUT | TEXT | SWIGLU | STANDARD | NAMES
EXPECTED: dict[str, dict[str, str]] = {
    "llama": LLAMA_LIKE,
    "ministral": LLAMA_LIKE,
    "nemotron": OUTPUT | TEXT | NAMES | {
        "norm_type": "layer_norm_1p", "casting_mode": "not applicable", "offset": "not applicable", "in_place": "not applicable",
        "mlp": "relu2 ungated -> LigerReLUSquared through ACT2FN", "architecture": "dense", "rope": "partial, not patched",
    },
    "mixtral": LLAMA_LIKE | MOE | {"mlp": "-> LigerExperts", "architecture": "moe"},
    "qwen3": LLAMA_LIKE | QK,
    "qwen3_moe": LLAMA_LIKE | MOE | QK | {"mlp": "-> LigerExperts", "architecture": "hybrid"},
    "gemma2": GEMMA | OUTPUT | GEGLU | STANDARD | {"vision": "none", "logit_softcapping": "final_logit_softcapping", "decoder_norms": SANDWICH},
    "gemma3_text": GEMMA | OUTPUT | GEGLU | STANDARD | {
        "vision": "none", "logit_softcapping": "final_logit_softcapping", "decoder_norms": f"{SANDWICH}; inside: self_attn.q_norm, self_attn.k_norm",
    },
    "qwen2_vl": LLAMA_LIKE | {"vision": "Qwen2VisionTransformerPretrainedModel", "rope": "mrope, patched", "output_class": "MultimodalCausalLMOutputWithPast"},
    "arcee": LLAMA_LIKE | {"mlp": "relu2 ungated -> LigerReLUSquared through ACT2FN"},
    # Its feed-forward applies residual_dropout 0.1 in training, which no Liger class does.
    "seed_oss": LLAMA_LIKE | {"mlp": "silu gated, not patched"},
    "ministral3": LLAMA_LIKE,
    "glm": LLAMA_LIKE | {"mlp": "silu packed gated -> LigerPhi3SwiGLUMLP", "rope": "interleaved_partial, not patched"},
    "ernie4_5": LLAMA_LIKE | {"rope": "interleaved, not patched"},
    "olmoe": LLAMA_LIKE | MOE | QK | {"mlp": "-> LigerExperts", "architecture": "moe"},
    "starcoder2": LLAMA_LIKE | {
        "norm_type": "layer_norm", "casting_mode": "not applicable", "offset": "not applicable", "in_place": "not applicable",
        "mlp": "gelu_tanh ungated, not patched",
    },
    "glm4_moe": LLAMA_LIKE | MOE | {"mlp": "-> LigerExperts", "architecture": "hybrid", "rope": "partial, not patched"},
    "olmo3": GEMMA | OUTPUT | TEXT | SWIGLU | STANDARD | {
        "offset": "0", "decoder_norms": "post_attention_layernorm, post_feedforward_layernorm; inside: self_attn.q_norm, self_attn.k_norm",
    },
    "exaone4": LLAMA_LIKE | {
        "in_place": "False", "decoder_norms": "post_attention_layernorm, post_feedforward_layernorm; inside: self_attn.q_norm, self_attn.k_norm",
    },
    "glm4": LLAMA_LIKE | {
        "in_place": "False", "mlp": "silu packed gated -> LigerPhi3SwiGLUMLP", "rope": "interleaved_partial, not patched",
        "decoder_norms": "input_layernorm, post_attention_layernorm, post_self_attn_layernorm, post_mlp_layernorm",
    },
    "smollm3": LLAMA_LIKE,
    "hunyuan_v1_dense": LLAMA_LIKE | {
        "decoder_norms": "input_layernorm, post_attention_layernorm; inside: self_attn.query_layernorm, self_attn.key_layernorm",
    },
    "hunyuan_v1_moe": LLAMA_LIKE | {
        "mlp": "-> LigerExperts", "architecture": "moe",
        "decoder_norms": "input_layernorm, post_attention_layernorm; inside: self_attn.query_layernorm, self_attn.key_layernorm",
    },
    # Its experts clamp and its gate is not a SwiGLU: no Liger class computes them.
    "gpt_oss": LLAMA_LIKE | MOE | {"casting_mode": "gemma", "mlp": "not patched", "architecture": "moe"},
    "gemma4_text": GEMMA | {
        "output_class": "Gemma4CausalLMOutputWithPast", "hidden_state": "last_hidden_state", "offset": "0", "vision": "none",
        "logit_softcapping": "final_logit_softcapping", "mlp": "gelu_tanh gated -> LigerGEGLUMLPForGemma4",
        "architecture": "dense", "rope": "other, not patched", "decoder_norms": SANDWICH,
    },
    "qwen3_vl": LLAMA_LIKE | QK | {
        "vision": "Qwen3VLVision", "rope": "mrope, patched", "output_class": "MultimodalCausalLMOutputWithPast", "hidden_state": "[0]",
    },
}  # fmt: skip

# model -> decisions that the merged patch takes otherwise, with why ours stand
MERGED_DIFFERS: dict[str, str] = {
    "olmo3": "casting: merged as llama; Olmo3RMSNorm multiplies its weight in fp32 (gemma)",
    "gpt_oss": "casting: merged as llama; GptOssRMSNorm multiplies its weight in fp32 (gemma)",
    "gemma4_text": "output class: merged as CausalLMOutputWithPast, which the installed class no longer returns; its layers may hold experts, which "
    "the merged patch leaves",
    "qwen3_vl": "output class renamed in the installed transformers; feed-forward: merged without; Qwen3VLTextMLP is a SwiGLU",
}

# model -> why upstream's tests can't be run on, or fail on, our patch
UPSTREAM_TESTS: dict[str, str] = {
    "exaone4": "the commit brought no instance test, only convergence tests",
    "gpt_oss": "the commit brought no instance test, only convergence tests",
    "qwen3_vl": "the test's config asks for the rope type mrope, which the installed transformers no longer has",
    "qwen3_moe": "the test imports LigerQwen3MoeSwiGLUMLP, which the merged patch wrote for the list of experts of transformers 4",
    "gemma4_text": "the merged patch wrote a norm class that takes with_scale; ours leaves the norm unpatched in a checkout without one",
}


def decisions_right(model: str, decisions: list[dict[str, Any]]) -> tuple[int, list[str]]:
    """(right out of twelve, what differs) against EXPECTED. A value is right when it begins with or contains what is expected."""
    wrong = []
    for decision in decisions:
        wanted = EXPECTED[model][decision["name"]]
        value = decision["value"]
        right = wanted in value if decision["name"] in ("mlp", "vision") else value.startswith(wanted)
        if not right:
            wrong.append(f"{decision['name']}: {value} instead of {wanted}")
    return 12 - len(wrong), wrong
