"""Model profiles for the act half, made of small forwards written as transformers writes them."""

from __future__ import annotations

from typing import Any

from agents.autopatch.model_profile import (
    DECISIONS,
    Forward,
    MlpClass,
    ModelProfile,
    NormClass,
    NormUse,
    Rope,
)
from agents.profiles import Decision, Evidence

HEAD = '''\
@can_return_tuple
@auto_docstring
@deprecate_kwarg("past_key_values", "5.40.0", new_name="cache")
def forward(
    self,
    input_ids: torch.LongTensor | None = None,
    cache: Cache | None = None,
    labels: torch.LongTensor | None = None,
    logits_to_keep: int | torch.Tensor = 0,
    **kwargs: Unpack[TransformersKwargs],
) -> CausalLMOutputWithPast:
    r"""
    Example:

    ```python
    >>> model = TinyForCausalLM.from_pretrained("tiny")
    ```"""
    outputs: BaseModelOutputWithPast = self.model(input_ids=input_ids, cache=cache, **kwargs)

    hidden_states = outputs.last_hidden_state
    hidden_states = slice_logits_to_keep(hidden_states, logits_to_keep)
    logits = self.lm_head(hidden_states)
'''
LOSS = """\

    loss = None
    if labels is not None:
        loss = self.loss_function(logits, labels, self.vocab_size, **kwargs)
"""
TAIL = """\

    return CausalLMOutputWithPast(
        loss=loss,
        logits=logits,
        cache=outputs.cache,
    )
"""
SOFTCAP = """\
    if self.config.final_logit_softcapping is not None:
        logits = logits / self.config.final_logit_softcapping
        logits = torch.tanh(logits)
        logits = logits * self.config.final_logit_softcapping
"""
SCALE = "    logits = logits / self.config.logits_scaling  # main diff with Llama\n"
AUX = """\

    aux_loss = None
    if output_router_logits:
        aux_loss = load_balancing_loss_func(outputs.router_logits, self.num_experts)
        if labels is not None:
            loss += self.router_aux_loss_coef * aux_loss.to(loss.device)  # same device
"""
Z_LOSS = """\

    loss = None
    if labels is not None:
        loss = self.loss_function(logits, labels, self.vocab_size, **kwargs)
        loss = loss + self.z_loss_coefficient * logits.logsumexp(dim=-1).pow(2).mean()
"""
UNSHIFTED = """\

    loss = None
    if labels is not None:
        loss_fct = CrossEntropyLoss()
        loss = loss_fct(logits.view(-1, self.config.vocab_size), labels.view(-1))
"""
IMPORTS = [
    "import torch",
    "from transformers.cache_utils import Cache",
    "from transformers.modeling_outputs import BaseModelOutputWithPast",
    "from transformers.modeling_outputs import CausalLMOutputWithPast",
    "from transformers.modeling_utils import slice_logits_to_keep",
    "from transformers.processing_utils import Unpack",
    "from transformers.utils import TransformersKwargs",
    "from transformers.utils import auto_docstring",
    "from transformers.utils import can_return_tuple",
    "from transformers.utils.deprecation import deprecate_kwarg",
]


def norm(**changes: Any) -> NormClass:
    values = {
        "name": "TinyRMSNorm",
        "kind": "rms_norm",
        "patched": True,
        "why": "bit for bit the same",
        "liger_class": "LigerRMSNorm",
        "casting_mode": "llama",
        "constructor": "hidden_size, eps: float=1e-06",
    }
    return NormClass(**{**values, **changes})


def mlp(**changes: Any) -> MlpClass:
    values = {
        "name": "TinyMLP",
        "role": "dense",
        "activation": "silu",
        "gated": True,
        "patched": True,
        "why": "the same",
        "liger_class": "LigerSwiGLUMLP",
    }
    return MlpClass(**{**values, **changes})


def standard_rope(**changes: Any) -> Rope:
    values = {
        "variant": "standard",
        "function": "apply_rotary_pos_emb",
        "patched": True,
        "why": "the same",
        "liger_function": "liger_rotary_pos_emb",
    }
    return Rope(**{**values, **changes})


def profile(source: str = HEAD + LOSS + TAIL, **changes: Any) -> ModelProfile:
    """A Llama-like model called tiny; `forward` changes fields of the forward."""
    forward = {
        "signature": [],
        "source": source,
        "imports": IMPORTS,
        "file": "transformers/models/tiny/modeling_tiny.py",
        "line": 7,
        "base_attribute": "model",
        "hidden_states": "last_hidden_state",
        "output_class": "CausalLMOutputWithPast",
        "output_module": "transformers.modeling_outputs",
        "loss_keyword_arguments": True,
        **changes.pop("forward", {}),
    }
    uses = [
        NormUse(owner="base", attribute="norm", norm="TinyRMSNorm"),
        NormUse(owner="layer", attribute="input_layernorm", norm="TinyRMSNorm"),
        NormUse(owner="attention", attribute="self_attn.q_norm", norm="TinyRMSNorm"),
    ]
    values: dict[str, Any] = {
        "model_type": "tiny",
        "causal_class": "TinyForCausalLM",
        "base_class": "TinyModel",
        "layer_class": "TinyDecoderLayer",
        "config_class": "TinyConfig",
        "modeling_module": "transformers.models.tiny.modeling_tiny",
        "transformers_version": "5.24.0",
        "decisions": [
            Decision(name=name, value="v", why="w", evidence=[Evidence(kind="probe", text="0 apart")])
            for name in DECISIONS
        ],
        "norms": [norm()],
        "norm_uses": uses,
        "mlps": [mlp()],
        "architecture": "dense",
        "rope": standard_rope(),
        "forward": Forward(**forward),
        "tiny_config": {"hidden_size": 64, "hidden_act": "silu"},
        "mini_config": {"vocab_size": 32000, "hidden_size": 1024},
        "causal_class_module": "transformers",
    }
    return ModelProfile(**{**values, **changes})
