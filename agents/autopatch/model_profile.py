"""The profile of a model patch: twelve decisions, each read from the source and proven by a probe. Pure.

Words: `norm`, `mlp`, … are classes of the model's modeling module in the installed transformers, named as that module
names them. `patched=False` is a decision as well, and carries its reason.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Literal

from pydantic import Field

from agents.profiles import Decision, PlannedFile, Strict

Activation = Literal["silu", "gelu_tanh", "gelu", "relu2", "other"]


class NormClass(Strict):
    """One norm class of the modeling module, and the Liger class that computes the same."""

    name: str = Field(description='"LlamaRMSNorm"')
    kind: Literal["rms_norm", "layer_norm", "other"]
    patched: bool
    why: str
    liger_class: str | None = Field(
        default=None,
        description='"LigerRMSNorm", "LigerRMSNormForGemma", …; None with patched=True: a class has to be written, see variant_of',
    )
    variant_of: str | None = Field(
        default=None,
        description="no class of the checkout has these parameters and this constructor: the one to derive it from",
    )
    reached_as: str | None = Field(
        default=None, description='how the modeling module names it when that is not `name`: "nn.LayerNorm"'
    )
    constructor: str = Field(
        default="", description='its __init__ parameters, "hidden_size, eps: float = 1e-6"'
    )
    casting_mode: Literal["llama", "gemma", "none"] | None = None
    offset: float = 0.0
    eps_attribute: str = Field(
        default="variance_epsilon", description="attribute of an instance that holds eps"
    )
    init_fn: Literal["ones", "zeros"] = "ones"
    in_place: bool = Field(
        default=True, description="whether the backward may overwrite the incoming gradient"
    )
    row_mode: bool | None = None

    @property
    def parameter_names(self) -> list[str]:
        """The names of its constructor's parameters: `["hidden_size", "eps"]`."""
        parts = [part.split(":")[0].split("=")[0].strip() for part in self.constructor.split(",")]
        return [name for name in parts if name]


class NormUse(Strict):
    """Where an instance of a norm hangs, for patching a model that exists already."""

    owner: Literal["base", "layer", "attention", "other"]
    attribute: str = Field(description='"norm", "input_layernorm", "self_attn.q_norm"')
    norm: str = Field(description="class name, one of `norms`")
    optional: bool = Field(default=False, description="some layers lack it (hybrid models)")
    weightless: bool = Field(
        default=False, description="made without a weight, which Liger's kernel needs: left in a built model"
    )


class MlpClass(Strict):
    """One feed-forward class."""

    name: str = Field(description='"LlamaMLP", "MixtralExperts"')
    role: Literal["dense", "experts", "shared_expert"]
    attribute: str = Field(
        default="mlp", description='attribute of the decoder layer, e.g. "mlp", "mlp.experts"'
    )
    activation: Activation
    gated: bool
    packed: bool = Field(default=False, description="gate and up are one projection")
    patched: bool
    why: str
    liger_class: str | None = Field(
        default=None,
        description='"LigerSwiGLUMLP", "LigerExperts", …; None with patched=True: a class has to be written, see variant_of',
    )
    variant_of: str | None = Field(
        default=None,
        description="its forward is right, its constructor isn't: the class to derive a new one from",
    )
    constructor: str = Field(
        default="", description='its __init__ parameters, "config, intermediate_size=None"'
    )
    activation_attribute: str = Field(
        default="act_fn", description="attribute of an instance that holds the activation"
    )
    through_act2fn: str | None = Field(
        default=None, description='key of ACT2FN that is replaced instead of a class, e.g. "relu2"'
    )


class Rope(Strict):
    """The rotary embedding function."""

    variant: Literal[
        "standard", "interleaved", "partial", "interleaved_partial", "mrope", "llama4", "none", "other"
    ]
    function: str | None = Field(default=None, description='"apply_rotary_pos_emb"')
    patched: bool
    why: str
    liger_function: str | None = Field(default=None, description='"liger_rotary_pos_emb"')
    other_functions: list[str] = Field(
        default_factory=list, description="rotary functions that the text forward doesn't call"
    )


class Forward(Strict):
    """The causal LM's own forward, from which lce_forward is made."""

    signature: list[str] = Field(
        description='parameters as written, e.g. "labels: torch.LongTensor | None = None"'
    )
    source: str = Field(description="text of the method with its decorators, dedented")
    imports: list[str] = Field(description="import lines that the names in it need, absolute")
    file: str = Field(description="path inside transformers")
    line: int
    base_attribute: str = Field(description='attribute that holds the decoder, e.g. "model"')
    head_attribute: str = Field(default="lm_head")
    hidden_states: str = Field(description='how the last hidden state is read: "last_hidden_state" or "[0]"')
    output_class: str = Field(description='"CausalLMOutputWithPast"')
    output_module: str = Field(description="module that defines it")
    loss_keyword_arguments: bool = Field(description="whether **kwargs reach the loss")
    softcap: str | None = Field(default=None, description='config attribute, e.g. "final_logit_softcapping"')
    logit_scale: str | None = Field(
        default=None, description='expression applied to the logits, e.g. "/ self.config.logits_scaling"'
    )
    aux_loss: bool = Field(default=False, description="a router loss is added")
    head_bias: bool = Field(default=False, description="the head has a bias, which the fused loss has to add")
    config_has_hidden_size: bool = Field(
        default=True,
        description="False: of several transformers in one model, say; the states themselves are asked",
    )


class ModelProfile(Strict):
    """Everything that the act stage needs, and that a maintainer approves."""

    kind: Literal["model"] = "model"
    mode: Literal["add", "modify"] = "add"
    # identity
    model_type: str = Field(description='the registry key: "nemotron"')
    text_model_type: str | None = Field(default=None, description="another config.model_type to register")
    causal_class: str = Field(description='"NemotronForCausalLM"')
    base_class: str = Field(description='"NemotronModel"')
    layer_class: str
    config_class: str
    modeling_module: str = Field(description='"transformers.models.nemotron.modeling_nemotron"')
    transformers_version: str
    # the twelve
    decisions: list[Decision] = Field(description="twelve, named as in `DECISIONS`, in that order")
    norms: list[NormClass]
    norm_uses: list[NormUse]
    mlps: list[MlpClass]
    architecture: Literal["dense", "moe", "hybrid"]
    decoder_path: str = Field(
        default="model",
        description='where the text decoder hangs in the causal model: "model", "model.language_model"',
    )
    layers_attribute: str = Field(
        default="layers", description="attribute of the decoder that holds its layers"
    )
    decoder_twins: list[str] = Field(
        default_factory=list, description="where further decoders of the same class hang"
    )
    by_auto_class: bool = Field(
        default=True, description="AutoModelForCausalLM builds the class from its config"
    )
    bf16_error: str | None = Field(
        default=None, description="why the model doesn't run once it is cast to bfloat16 as a whole"
    )
    vision: list[str] = Field(default_factory=list, description="vision classes of the model, if any")
    vision_norms: list[NormClass] = Field(
        default_factory=list,
        description="norms outside the text decoder; in_place is False, no gradient was probed",
    )
    vision_norm_uses: dict[str, list[str]] = Field(
        default_factory=dict,
        description='class -> its places in the causal model, "model.visual.blocks.*.norm1"',
    )
    rope: Rope
    forward: Forward
    # the tests
    tiny_config: dict[str, object] = Field(
        description="config arguments that make a model of a few thousand parameters"
    )
    mini_config: dict[str, object] = Field(description="config arguments of the convergence tests' model")
    causal_class_module: str = Field(description='public module that exports it, usually "transformers"')
    # the plan
    requested: list[str] = Field(default_factory=list, description='modify mode: "--add relu_squared", …')
    files: list[PlannedFile] = Field(default_factory=list)
    questions: list[str] = Field(default_factory=list, description="where reading and probe disagree")
    risks: list[str] = Field(default_factory=list)
    conventions: dict[str, str] = Field(default_factory=dict)
    base_sha: str = ""

    @property
    def identifier(self) -> str:
        """The model type as Python can name it, in functions and files: "openai_gpt" for "openai-gpt"."""
        return re.sub(r"\W", "_", self.model_type)

    def sha256(self) -> str:
        """Hash of the whole profile; an approval binds to it."""
        text = json.dumps(
            self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"), ensure_ascii=False
        )
        return hashlib.sha256(text.encode()).hexdigest()


DECISIONS = (
    "norm_type",
    "casting_mode",
    "offset",
    "in_place",
    "mlp",
    "architecture",
    "vision",
    "rope",
    "output_class",
    "hidden_state",
    "logit_softcapping",
    "decoder_norms",
)
