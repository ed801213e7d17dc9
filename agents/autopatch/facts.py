"""What a runner found out about one model, as records. Pure.

Written by a process that ran transformers' and the target's code, so everything is checked before it is believed. The sources are
text: they are parsed here, never run.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Found(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Source(Found):
    """Text of a class or function of the installed transformers."""

    file: str
    line: int
    text: str
    module: str = ""


class GradientDistance(Found):
    """The gradient of the whole model that moved most, when one norm class was replaced."""

    worst: str
    distance: float | None
    error: str | None = None


class NormFacts(Found):
    """One norm class of the text decoder, run on rows of random numbers with random weights."""

    name: str
    kind: str = Field(description='"rms_norm", "layer_norm" or "other": by value in float32')
    class_module: str = ""
    imported: bool = Field(default=True, description="the modeling module has it by its own name")
    weight_dim: int | None = None
    bias: bool = False
    eps_attribute: str | None = None
    eps: float | None = None
    init: str = "ones"
    error: str | None = None
    formula_distance: dict[str, float | None] = Field(default_factory=dict)
    equal_bits: dict[str, float | None] = Field(
        default_factory=dict,
        description='"gemma/1" -> share of elements equal to that statement, in bfloat16',
    )
    casting_mode: str | None = None
    offset: float | None = None
    matches: list[str] = Field(default_factory=list)
    liger: dict[str, dict[str, float | None]] = Field(
        default_factory=dict, description="the checkout's own kernel against the model's norm"
    )
    constructors: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="Liger class -> what it is when constructed as the model constructs its own",
    )
    in_place_gradients: dict[str, GradientDistance] = Field(default_factory=dict)
    used_at: list[str] = Field(default_factory=list)
    keywords: list[str] = Field(default_factory=list, description="what the model names when it makes one")


class NormUseFacts(Found):
    owner: str
    attribute: str
    norm: str
    optional: bool
    weightless: bool = False


class ActivationFacts(Found):
    name: str
    cls: str = Field(alias="class")
    distances: dict[str, float | None] = Field(default_factory=dict)


class CandidateFacts(Found):
    """One Liger class in the place of the model's feed-forward class."""

    fp32: float | None = None
    bf16: float | None = None
    error: str | None = None
    constructed: bool = False
    constructor: str | None = Field(default=None, description="why it can't be constructed in its place")


class FeedForwardFacts(Found):
    """One feed-forward class at one place of the layers."""

    cls: str = Field(alias="class")
    attribute: str
    role: str
    projections: list[str]
    form: str = Field(description='"gated", "packed" or "ungated"')
    bias: bool
    stacked: bool
    error: str | None = None
    dropout: dict[str, float] = Field(
        default_factory=dict, description="rates that the class applies in training"
    )
    width: int | None = None
    activation_attribute: str | None = None
    activation: ActivationFacts | None = None
    activation_key: str | None = None
    rounding: dict[str, float] = Field(default_factory=dict)
    candidates: dict[str, CandidateFacts] = Field(default_factory=dict)


class RopeCandidate(Found):
    fp32: float | None = None
    bf16: float | None = None
    error: str | None = None
    rounding: dict[str, float] = Field(default_factory=dict)


class RopeFacts(Found):
    """The rotary function on the arguments that the model calls it with."""

    functions: list[str]
    called: str | None
    calls: dict[str, int] = Field(default_factory=dict)
    parameters: dict[str, Any] | None = None
    signature: str = ""
    forms: int = Field(default=1, description="forms of call; the one that Liger does worst is told")
    keywords: list[str] = Field(default_factory=list)
    unsqueeze_dim: int = 1
    shapes: dict[str, list[int]] = Field(default_factory=dict)
    head_dim: int | None = None
    rotary_dim: int | None = None
    partial: bool = False
    takes_partial: bool | None = None
    liger_partial: RopeCandidate | None = Field(
        default=None, description="Liger's function at half of the rotary size"
    )
    statements: dict[str, float | None] = Field(default_factory=dict)
    statement_errors: dict[str, str] = Field(default_factory=dict)
    liger: dict[str, RopeCandidate] = Field(default_factory=dict)
    error: str | None = None


class HeadFacts(Found):
    """One forward pass with labels."""

    head_attribute: str
    head_class: str | None
    head_bias: bool
    base_attribute: str
    loss_function: str | None
    loss_type: str | None
    softcap_switched_on: str | None = None
    output_class: str
    output_module: str
    output_fields: list[str]
    router_losses: list[str]
    base_output_class: str | None = None
    hidden_distances: dict[str, float | None] = Field(default_factory=dict)
    hidden_size: int | None = None
    config_has_hidden_size: bool = True
    logit_distances: dict[str, float | None] = Field(default_factory=dict)
    logit_factor: float | None = None
    liger_loss: dict[str, Any] = Field(default_factory=dict)


class ForwardFacts(Found):
    signature: list[str]
    source: str
    imports: list[str]
    file: str
    line: int
    owner: str
    module: str


class LayerFacts(Found):
    cls: str = Field(alias="class")
    children: dict[str, str]
    experts: bool
    dense: bool


class ModelFacts(Found):
    """Everything about one model."""

    model_type: str
    text_model_type: str | None
    causal_class: str
    causal_class_module: str
    base_class: str
    layer_class: str
    config_class: str
    modeling_module: str
    decoder_module: str
    decoder_path: str
    layers_attribute: str
    decoder_twins: list[str] = Field(default_factory=list)
    by_auto_class: bool = True
    bf16_error: str | None = None
    transformers: str
    parameters: int
    tiny_config: dict[str, Any]
    mini_config: dict[str, Any]
    config: dict[str, Any]
    registered: list[str]
    norms: list[NormFacts]
    norm_uses: list[NormUseFacts]
    vision_norms: list[NormFacts] = Field(default_factory=list)
    vision_norm_uses: dict[str, list[str]] = Field(
        default_factory=dict, description="class -> places in the model, with * for an index"
    )
    feed_forwards: list[FeedForwardFacts]
    rope: RopeFacts
    head: HeadFacts
    forward: ForwardFacts
    layers: list[LayerFacts]
    vision: list[str]
    vision_towers: list[str] = Field(
        default_factory=list, description='parts that are another model\'s: "SiglipVisionModel of siglip"'
    )
    sources: dict[str, Source]
    seconds: dict[str, float] = Field(default_factory=dict)

    def where(self, name: str, pattern: str = "") -> str | None:
        """ "file:line" of a class or function, or of the first of its lines that contains `pattern`."""
        source = self.sources.get(name)
        if source is None:
            return None
        for number, line in enumerate(source.text.splitlines()):
            if pattern and pattern in line:
                return f"{source.file}:{source.line + number}"
        return f"{source.file}:{source.line}"


class InspectionRefusal(Found):
    """Why a model could not be inspected."""

    code: str
    detail: str = ""
    known: list[str] = Field(default_factory=list)
