"""Shrinks the config of any model to one that computes in milliseconds on a CPU, keeping what divides what.

Rules by the name of an attribute, because transformers names sizes alike across models; what has no rule keeps its value. The
layers that remain are the first of each kind, so that a hybrid model still shows every layer type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Sizes:
    """The sizes of a shrunk model. `hidden` = `heads` x `head_dim`, because many models assume it.

    still: nothing random in the forward, for a test that compares two trainings.
    """

    hidden: int = 64
    heads: int = 4
    kv_heads: int = 2
    intermediate: int = 96
    expert_intermediate: int = 48
    experts: int = 4
    layers: int = 2
    most_layers: int = 6
    vocabulary: int = 128
    positions: int = 128
    still: bool = False

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads


TINY = Sizes()
# As the merged convergence tests have it: hidden 1024, vocabulary 32000.
MINI = Sizes(
    hidden=1024,
    heads=16,
    kv_heads=4,
    intermediate=2048,
    expert_intermediate=512,
    layers=4,
    vocabulary=32000,
    positions=4096,
    still=True,
)
RANDOM = ("dropout", "pdrop", "drop_path", "layerdrop", "jitter")

LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_blocks", "decoder_layers", "encoder_layers",
          "num_encoder_layers", "num_decoder_layers", "depth")  # fmt: skip
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "decoder_attention_heads", "encoder_attention_heads",
         "num_encoder_attention_heads", "num_decoder_attention_heads", "attention_heads", "swa_num_attention_heads",
         "index_n_heads", "linear_num_heads")  # fmt: skip
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "swa_num_key_value_heads", "num_query_groups",
            "num_global_key_value_heads", "kv_n_heads")  # fmt: skip
HIDDEN = ("hidden_size", "d_model", "n_embd", "embed_dim", "embedding_size", "embedding_dim", "word_embed_proj_dim",
          "emb_dim", "lru_width", "attention_hidden_size", "backbone_hidden_size", "input_embedding_size",
          "output_embedding_size", "out_hidden_size", "ple_embed_dim", "hidden_size_global")  # fmt: skip
HEAD_DIM = ("head_dim", "v_head_dim", "qk_nope_head_dim", "attention_head_dim", "attention_head_size", "d_head", "dim_head",
            "kv_channels", "swa_head_dim", "linear_key_head_dim", "linear_value_head_dim", "linear_head_dim", "index_head_dim",
            "global_head_dim", "query_pre_attn_scalar")  # fmt: skip
INTERMEDIATE = ("intermediate_size", "ffn_hidden_size", "n_inner", "d_inner", "d_ff", "dff", "dim_ff", "ffn_dim",
                "decoder_ffn_dim", "encoder_ffn_dim", "intermediate_size_mlp", "dense_intermediate_size",
                "feed_forward_size")  # fmt: skip
EXPERT_INTERMEDIATE = ("moe_intermediate_size", "shared_expert_intermediate_size", "shared_intermediate_size",
                       "moe_shared_expert_intermediate_size", "expert_ffn_hidden_size",
                       "shared_experts_intermediate_size")  # fmt: skip
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "zero_expert_num")
EXPERTS_PER_TOKEN = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "moe_topk",
    "moe_k",
    "moe_top_k",
    "top_k_experts",
)
EXPERT_GROUPS = ("n_group", "topk_group", "num_expert_group", "moe_k_group")
POSITIONS = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "model_max_length", "context_length",
             "max_target_positions", "max_source_positions", "original_max_position_embeddings")  # fmt: skip
VOCABULARY = ("vocab_size", "decoder_vocab_size", "unpadded_vocab_size", "vocab_size_per_layer_input")
WINDOWS = ("sliding_window", "window_size", "sliding_window_size", "attention_window_size", "local_attention",
           "attention_chunk_size", "keep_window_size", "local_attention_window_len")  # fmt: skip
FIXED = {
    "q_lora_rank": 32, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "o_lora_rank": 16, "o_groups": 2,
    "mamba_d_state": 16, "state_size": 16, "ssm_state_size": 16, "mamba_n_groups": 1, "n_groups": 1, "mamba_ngroups": 1,
    "time_step_rank": 8, "mamba_dt_rank": 8, "mamba_chunk_size": 8, "chunk_size": 8, "index_topk": 8, "rotary_dim": 8,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "hidden_size_per_layer_input": 16, "laurel_rank": 8,
    "moe_layer_start_index": 1, "first_k_dense_replace": 1, "num_dense_layers": 1, "num_kv_shared_layers": 0,
    "attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1,
    "sliding_window_pattern": 2, "global_attn_every_n_layers": 2, "layer_group_size": 2, "no_rope_layer_interval": 2,
    "num_nextn_predict_layers": 0, "max_window_layers": 1, "d_rel": 8, "rel_extent": 32, "mm_tokens_per_image": 4,
    "image_size": 32, "patch_size": 8, "prompt_length": 4, "block_multiple_of": 16, "loop_gate_rank": 8, "adapter_rank": 8,
    "dim_model_base": 16, "gated_norm_rank": 8, "hc_lowrank": 16, "ngram_vocab_size_base": 64, "split_ngram_parts": 2,
    "heads_per_ngram": 2, "num_centroids": 16, "centroid_intermediate_top_k": 4, "encoder_hash_byte_group_vocab": 64,
    "index_block_size": 8, "index_topk_blocks": 2, "n_layers_per_attn_res_block": 1, "log_scaling_n_floor": 32, "floor_scale": 32,
}  # fmt: skip
# What some default configs leave None although the model can't be built so; a released checkpoint's config has a number.
MEANT: dict[str, Callable[[Sizes], Any]] = {
    "num_attention_heads": lambda sizes: sizes.heads,
    "num_key_value_heads": lambda sizes: sizes.kv_heads,
    "head_dim": lambda sizes: sizes.head_dim,
    "n_routed_experts": lambda sizes: sizes.experts,
    "n_shared_experts": lambda _sizes: 1,
    "num_experts_per_tok": lambda _sizes: 2,
    "hidden_size": lambda sizes: sizes.hidden,
    "attn_layer_indices": lambda sizes: [sizes.layers - 1],
    "n_group": lambda _sizes: 1,
    "topk_group": lambda _sizes: 1,
    "indexer_n_heads": lambda sizes: sizes.heads,
    "indexer_kv_heads": lambda _sizes: 1,
    "indexer_head_dim": lambda sizes: sizes.head_dim,
    "indexer_budget": lambda _sizes: 8,
    "indexer_compress_ratio": lambda _sizes: 4,
}
TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "forced_eos_token_id", "sep_token_id",
          "cls_token_id", "mask_token_id", "eod_token_id", "unk_index", "mask_index")  # fmt: skip


def shrunk(config: Any, sizes: Sizes = TINY) -> dict[str, Any]:
    """Arguments of `type(config)` that make a small model of the same structure.

    config: an instance, of which the attributes are read. Nested configs (text, vision, …) become nested dictionaries.
    """
    values = {name: value for name, value in vars(config).items() if not name.startswith("_")}
    arguments: dict[str, Any] = {}
    heads = _first(values, HEADS)
    for name, value in values.items():
        if hasattr(value, "to_dict") and hasattr(value, "model_type"):
            arguments[name] = {"model_type": value.model_type, **shrunk(value, sizes)}
        elif isinstance(value, int) and not isinstance(value, bool):
            small = _small(name, value, heads, sizes)
            if small is not None and small != value:
                arguments[name] = small
        elif sizes.still and isinstance(value, float) and value > 0 and any(word in name for word in RANDOM):
            arguments[name] = 0.0
        elif value is None and name in MEANT:
            arguments[name] = MEANT[name](sizes)
    arguments.update(_tokens(values, arguments.get("vocab_size", values.get("vocab_size"))))
    arguments.update(_layers(values, sizes))
    arguments.update(_rope(values, arguments, sizes, mrope=_takes_mrope(config)))
    arguments.update(_mamba(values, sizes))
    arguments.update(_wide_attention(values, sizes))
    if values.get("head_dim") and values["head_dim"] == values.get(
        "qk_rope_head_dim"
    ):  # latent attention: what rope turns
        arguments["head_dim"] = arguments.get("qk_rope_head_dim", values["qk_rope_head_dim"])
    return arguments


def made_small(given: Mapping[str, Any], small: Mapping[str, Any]) -> dict[str, Any]:
    """What a config.json says with the small values in their places, in nested configs too, which keep all else they say."""
    return {
        **given,
        **{
            name: made_small(given[name], value)
            if isinstance(value, Mapping) and isinstance(given.get(name), Mapping) and "model_type" in value
            else value
            for name, value in small.items()
        },
    }


def _small(name: str, value: int, heads: int | None, sizes: Sizes) -> int | None:
    """The small value of one integer attribute, or None when it has no rule. Zero and below keep their meaning."""
    if value <= 0:
        return None
    rules: tuple[tuple[Iterable[str], int], ...] = (
        (HEADS, sizes.heads),
        (HIDDEN, sizes.hidden),
        (HEAD_DIM, sizes.head_dim),
        (INTERMEDIATE, sizes.intermediate),
        (EXPERT_INTERMEDIATE, sizes.expert_intermediate),
        (EXPERTS, sizes.experts),
        (EXPERTS_PER_TOKEN, min(value, 2)),
        (EXPERT_GROUPS, 1),
        (POSITIONS, sizes.positions),
        (VOCABULARY, sizes.vocabulary),
        (WINDOWS, min(value, 32)),
    )
    if name in KV_HEADS:
        return 1 if value == 1 else sizes.heads if value == heads else sizes.kv_heads
    for names, small in rules:
        if name in names:
            return small
    return FIXED.get(name)


def _tokens(values: Mapping[str, Any], vocabulary: int | None) -> dict[str, Any]:
    """Special tokens that lie in the small vocabulary: padding 0, beginning 1, end 2."""
    wanted = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    arguments = {}
    for name in TOKENS:
        value = values.get(name)
        if isinstance(value, list) or (
            isinstance(value, int) and vocabulary is not None and value >= vocabulary
        ):
            arguments[name] = wanted.get(name, 3)
    # Image and other placeholder tokens: apart from each other, at the end of the vocabulary.
    others = [n for n in values if n.endswith(("_token_id", "_token_index")) and n not in TOKENS]
    if vocabulary is None:
        text = values.get("text_config")
        vocabulary = TINY.vocabulary if text is not None else None
    if vocabulary is not None:
        for position, name in enumerate(others):
            if isinstance(values[name], int) and values[name] >= min(vocabulary, TINY.vocabulary):
                arguments[name] = min(vocabulary, TINY.vocabulary) - 1 - position
    return arguments


def _layers(values: Mapping[str, Any], sizes: Sizes) -> dict[str, Any]:
    """The number of layers, and the lists that say something about each: the first layer of every kind is kept."""
    names = [name for name in LAYERS if isinstance(values.get(name), int) and values[name] > 0]
    if not names:
        return {}
    count = values[names[0]]
    lists = {
        name: list(value)
        for name, value in values.items()
        if isinstance(value, list | tuple) and len(value) == count and count > 2 and name != "architectures"
    }
    # Zamba's hybrid layers share their weights, which takes two of them; Zamba 2 counts them in a list of its own.
    twice = "'hybrid'" if "hybrid_layer_ids" not in values else ""
    kept = _kept_layers(lists, count, sizes, twice)
    arguments: dict[str, Any] = {name: len(kept) for name in names}
    arguments |= {name: [value[index] for index in kept] for name, value in lists.items()}
    kinds = values.get("layer_types")
    if isinstance(kinds, list) and set(kinds) in ({"mamba"}, {"linear_attention"}):
        # all of one kind by default; released checkpoints mix them
        other = "attention" if "mamba" in kinds else "full_attention"
        arguments["layer_types"] = [*kinds[: len(kept) - 1], other]
    elif kinds is None and "layer_types" in values:
        mixed = "conv_L_cache" in values  # LFM2
        arguments["layer_types"] = ["conv" if mixed else "full_attention"] * (len(kept) - 1) + [
            "full_attention"
        ]
    if isinstance(values.get("block_types"), list):  # a repeated pattern
        arguments |= dict.fromkeys(names, len(values["block_types"]))
    if "mlp_only_layers" in values:
        arguments["mlp_only_layers"] = [0]
    for name in ("moe_layers", "full_attn_idxs", "hybrid_layer_ids", "ple_layer_ids"):
        if isinstance(values.get(name), list) and values[name]:
            arguments[name] = [len(kept) - 1]
    if "moe_layer_end_index" in values:
        arguments["moe_layer_end_index"] = len(kept) - 1
    if values.get("attention_types"):  # gpt_neo: [[["global", "local"], 12]]
        arguments["attention_types"] = [[["global", "local"], 1]]
    if {"attn_layer_period", "expert_layer_period"} & set(values):
        arguments |= dict.fromkeys(names, max(2, len(kept)))
    return arguments


def _kept_layers(lists: Mapping[str, list[Any]], count: int, sizes: Sizes, twice: str) -> list[int]:
    """Indices of the first layer of each kind, in order; repeated until there are enough. `twice`: a kind to keep two of."""
    seen: dict[str, int] = {}
    for index in range(count):
        kind = repr([value[index] for value in lists.values()])
        seen.setdefault(kind, index)
        if twice and twice in kind and seen[kind] < index:
            seen.setdefault(f"{kind} again", index)
    firsts = sorted(seen.values())
    if len(firsts) > sizes.most_layers:  # a list of numbers that differ everywhere says little about kinds
        firsts = firsts[:2]
    while len(firsts) < min(sizes.layers, count):
        firsts.append(firsts[-1])
    return firsts


def _takes_mrope(config: Any) -> bool:
    """Whether its rope takes sections, which the default config may leave out."""
    return "mrope_section" in (getattr(type(config), "ignore_keys_at_rope_validation", None) or ())


def _rope(
    values: Mapping[str, Any], arguments: Mapping[str, Any], sizes: Sizes, *, mrope: bool
) -> dict[str, Any]:
    """Rope parameters at the small head: sections of a multimodal rope scaled, scaling factors of single frequencies dropped."""
    rope = values.get("rope_parameters")
    if not isinstance(rope, dict):
        return {}
    head_dim = arguments.get("head_dim", values.get("head_dim")) or sizes.head_dim
    sections = {"mrope_section": [16, 24, 24]} if mrope else {}
    if not rope and values.get("layer_types"):  # one set a kind of layer, left out by default
        one = {"rope_type": "default", "rope_theta": 10000.0, **sections}
        rope = dict.fromkeys(sorted(set(values["layer_types"])), one)
    else:
        rope = {**sections, **rope}
    nested = [value for value in rope.values() if isinstance(value, dict)]
    if nested:
        return {
            "rope_parameters": {
                k: _one_rope(v, head_dim) if isinstance(v, dict) else v for k, v in rope.items()
            }
        }
    small = _one_rope(rope, head_dim)
    return {"rope_parameters": small} if small != rope else {}


def _one_rope(rope: Mapping[str, Any], head_dim: int) -> dict[str, Any]:
    small = dict(rope)
    section = small.get("mrope_section")
    if isinstance(section, list | tuple) and sum(section) > 0:
        half = int(head_dim * (small.get("partial_rotary_factor") or 1.0)) // 2
        scaled = [max(1, part * half // sum(section)) for part in section]
        scaled[0] += half - sum(scaled)
        small["mrope_section"] = scaled
    for name in ("short_factor", "long_factor"):  # one number for each frequency
        if isinstance(small.get(name), list):
            small[name] = [1.0] * (head_dim // 2)
    if "original_max_position_embeddings" in small:
        small["original_max_position_embeddings"] = min(int(small["original_max_position_embeddings"]), 64)
    return small


def _mamba(values: Mapping[str, Any], sizes: Sizes) -> dict[str, Any]:
    """State-space sizes: heads x head size = expand x hidden size."""
    inner = None
    for expand in ("mamba_expand", "expand"):
        if isinstance(values.get(expand), int | float):
            inner = int(values[expand] * sizes.hidden)
    arguments: dict[str, Any] = {}
    if inner is None:
        return arguments
    heads = 4
    for name in ("mamba_n_heads", "mamba_num_heads", "n_mamba_heads", "num_heads"):
        if isinstance(values.get(name), int) and (name != "num_heads" or "state_size" in values):
            arguments[name] = heads
    for name in ("mamba_d_head", "mamba_head_dim", "mamba_headdim"):
        if name in values and isinstance(values[name], int):
            arguments[name] = inner // heads
    if "state_size" in values and "head_dim" in values and "num_heads" in values:  # mamba2
        arguments["head_dim"] = inner // heads
    if values.get("mamba_d_ssm"):
        arguments["mamba_d_ssm"] = inner
    return arguments


def _wide_attention(values: Mapping[str, Any], sizes: Sizes) -> dict[str, Any]:
    """Attention over a multiple of the hidden size (Zamba joins the embeddings to it)."""
    wide, hidden = values.get("attention_hidden_size"), values.get("hidden_size")
    if not isinstance(wide, int) or not isinstance(hidden, int) or wide <= hidden:
        return {}
    times = wide // hidden
    return {"attention_hidden_size": times * sizes.hidden, "attention_head_dim": times * sizes.head_dim}


def _first(values: Mapping[str, Any], names: Iterable[str]) -> int | None:
    return next((values[name] for name in names if isinstance(values.get(name), int)), None)
