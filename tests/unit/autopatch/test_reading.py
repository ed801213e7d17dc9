"""What the readers make of sources as transformers writes them."""

from __future__ import annotations

import pytest

from agents.autopatch.read_model import read_architecture, read_feed_forward, read_forward, read_rope
from agents.autopatch.read_norm import read_norm, shared_gradients

LLAMA = """
class Norm(nn.Module):
    def forward(self, hidden_states):
        input_dtype = hidden_states.dtype
        hidden_states = hidden_states.to(torch.float32)
        variance = hidden_states.pow(2).mean(-1, keepdim=True)
        hidden_states = hidden_states * torch.rsqrt(variance + self.variance_epsilon)
        return {result}
"""
GEMMA = """
class Norm(nn.Module):
    def _norm(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)

    def forward(self, x):
        output = self._norm(x.float())
        output = output * {weight}
        return output.type_as(x)
"""


@pytest.mark.parametrize(
    ("source", "kind", "mode", "offset"),
    [
        (LLAMA.format(result="self.weight * hidden_states.to(input_dtype)"), "rms_norm", "llama", 0.0),
        (LLAMA.format(result="(self.weight * hidden_states).to(input_dtype)"), "rms_norm", "gemma", 0.0),
        (LLAMA.format(result="(self.weight + 1) * hidden_states.to(input_dtype)"), "rms_norm", "llama", 1.0),
        (GEMMA.format(weight="(1.0 + self.weight.float())"), "rms_norm", "gemma", 1.0),
        (GEMMA.format(weight="self.weight.float()"), "rms_norm", "gemma", 0.0),
        (LLAMA.replace(".to(torch.float32)", "").format(result="self.weight * hidden_states"), "rms_norm", "none", 0.0),
        ("class Norm(nn.Module):\n    def forward(self, x):\n        return F.layer_norm(x, self.shape, self.weight, None, 1e-5)\n", "layer_norm", None, 0.0),
        ("class Norm(nn.Module):\n    def forward(self, x):\n        return F.layer_norm(x, self.shape, self.weight + 1, self.bias, 1e-5)\n", "layer_norm_1p", None, 1.0),
        ("class Norm(nn.Module):\n    def forward(self, x):\n        return x\n", None, None, None),
    ],
)  # fmt: skip
def test_a_norm_is_read(source: str, kind: str | None, mode: str | None, offset: float | None):
    found = read_norm(source)

    assert (found.kind, found.casting_mode, found.offset) == (kind, mode, offset)


@pytest.mark.parametrize(
    ("lines", "shared"),
    [
        # before the block: its output goes into a matrix product
        (["h = self.norm(x)", "h = self.attn(h)", "return x + h"], set()),
        # after it: the residual addition takes it as it is
        (["h = self.attn(x)", "h = self.norm(h)", "h = x + h", "return h"], {"norm"}),
        (["return x + self.norm(self.attn(x))"], {"norm"}),
        (["h = self.norm(self.attn(x))", "h = self.dropout(h)", "x = x + h", "return x"], {"norm"}),
        (["h = self.norm(self.attn(x))", "x += h", "return x"], {"norm"}),
        # scaled first: a new tensor
        (["h = self.norm(self.attn(x))", "return x + h * self.scale"], set()),
        (["if self.post:", "    h = self.norm(self.attn(x))", "    x = x + h", "return x"], {"norm"}),
    ],
)
def test_a_gradient_is_shared_only_where_an_addition_takes_the_norms_own_output(
    lines: list[str], shared: set[str]
):
    body = "\n".join(f"        {line}" for line in lines)

    assert (
        shared_gradients(f"class Layer(nn.Module):\n    def forward(self, x):\n{body}\n", {"norm"}) == shared
    )


def test_a_familys_name_does_not_make_its_mlp_a_mixture():
    layer = (
        "class FooMoeDecoderLayer(Base):\n    def __init__(self, config, i):\n        if i in config.sparse:\n"
        "            self.mlp = FooMoeSparseMoeBlock(config)\n        else:\n            self.mlp = FooMoeMLP(config)\n"
        "        self.post_mlp_norm = FooMoeRMSNorm(config.hidden_size)\n"
    )

    assert read_architecture(layer, {}) == {"moe", "dense"}
    assert read_architecture(layer.replace("FooMoeSparseMoeBlock", "FooMoeMLP"), {}) == {"dense"}
    assert read_architecture(
        "class ALayer(B):\n    def __init__(self):\n        self.mlp = AMLP(1)\n",
        {"AMLP": "self.experts = AExperts()"},
    ) == {"moe"}


@pytest.mark.parametrize(
    ("forward", "key", "activation", "gated", "packed"),
    [
        ("return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))", "silu", "silu", True, False),
        ("return self.down_proj(self.act_fn(self.up_proj(x)))", "relu2", "relu2", False, False),
        ("gate, up = self.gate_up_proj(x).chunk(2, dim=-1)\n        return self.down_proj(up * self.act_fn(gate))", "gelu_new", "gelu_tanh", True, True),
        ("return self.down_proj(self.act_fn(self.up_proj(x)))", "made_up", "other", False, False),
    ],
)  # fmt: skip
def test_a_feed_forward_is_read(forward: str, key: str, activation: str, gated: bool, packed: bool):
    source = f"class M(nn.Module):\n    def __init__(self, config):\n        self.act_fn = ACT2FN[config.hidden_act]\n\n    def forward(self, x):\n        {forward}\n"

    found = read_feed_forward(source, {"hidden_act": key})

    assert (found.activation, found.gated, found.packed) == (activation, gated, packed)


def test_the_rotary_variant_is_read_from_the_function_and_the_config():
    halves = "def rotate_half(x):\n    x1 = x[..., : x.shape[-1] // 2]\n"
    pairs = "def rotate_half(x):\n    x1 = x[..., 0::2]\n"
    plain = "def apply(q, k, cos, sin):\n    return q * cos + rotate_half(q) * sin\n"
    part = "def apply(q, k, cos, sin):\n    rotary_dim = cos.shape[-1]\n    q_rot, q_pass = q[..., :rotary_dim], q[..., rotary_dim:]\n"

    assert read_rope(plain, halves, None) == "standard"
    assert read_rope(plain, pairs, None) == "interleaved"
    assert read_rope(part, halves, {"partial_rotary_factor": 0.5}) == "partial"
    assert read_rope(part, halves, {}) == "standard"  # able to, but not asked to
    assert read_rope(part, pairs, {"partial_rotary_factor": 0.5}) == "interleaved_partial"
    assert read_rope(plain, halves, {"mrope_section": [2, 3, 3]}) == "mrope"
    assert read_rope("", "", None) is None


def test_the_causal_forward_is_read():
    source = (
        "@can_return_tuple\ndef forward(self, input_ids=None, labels=None, **kwargs):\n    '''logits = logits * self.docstring'''\n"
        "    outputs = self.model(input_ids=input_ids, **kwargs)\n    hidden_states = outputs[0]\n    logits = self.lm_head(hidden_states)\n"
        "    logits = logits / self.config.logits_scaling\n    loss = None\n    if labels is not None:\n"
        "        loss = self.loss_function(logits, labels, self.vocab_size, **kwargs)\n    return CausalLMOutputWithPast(loss=loss, logits=logits)\n"
    )

    found = read_forward(source)

    assert (found.output_class, found.hidden_states, found.softcap) == ("CausalLMOutputWithPast", "[0]", None)
    assert found.logit_scale == "/ self.config.logits_scaling"
    assert found.loss_keyword_arguments
    assert not found.aux_loss
    assert found.lines["hidden_state"] == 4
