"""Reads what the other decisions are from: feed-forward, rotary function, layers, causal forward. Pure; parses, never runs."""

from __future__ import annotations

import ast
import re
import textwrap
from dataclasses import dataclass

from kernels.syntax import syntax_tree

# Keys of transformers' ACT2FN, by the function that they name.
ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "relu2": "relu2",
}


@dataclass(frozen=True)
class FeedForwardReading:
    """What a feed-forward class's source says. None: not written in a form that these rules know."""

    activation: str | None = None
    activation_key: str | None = None
    gated: bool | None = None
    packed: bool = False
    line: str = ""


def read_feed_forward(source: str, config: dict[str, object]) -> FeedForwardReading:
    """config: the model's config attributes, from which the activation's key is taken."""
    text = textwrap.dedent(source)
    named = re.search(
        r"ACT2FN\[\s*(?:\w+\.)*config\.(\w+)\s*\]|ACT2FN\[\s*(?:self\.)?(\w+)\s*\]|ACT2FN\[\s*[\"'](\w+)[\"']\s*\]",
        text,
    )
    key = None
    if named and named.group(1):
        value = config.get(named.group(1))
        key = value if isinstance(value, str) else None
    elif named and named.group(3):
        key = named.group(3)
    elif named is None and re.search(r"F\.silu\(|functional\.silu\(|nn\.SiLU\(", text):
        key = "silu"
    body = _method_text(text, "forward") + _method_text(text, "_apply_gate")
    packed = "chunk(2" in body or re.search(r"\[\.\.\., ::2\]", body) is not None
    line = next(
        (line.strip() for line in text.splitlines() if re.search(r"act\w*\(.*\*|\* *self\.act", line)), ""
    )
    gated = (
        packed
        or re.search(r"act\w*\([^\n]*\)\)? *\*|\* *self\.act|\* *\w*act\w*\(|silu\([^\n]*\) *\*", body)
        is not None
    )
    return FeedForwardReading(ACTIVATIONS.get(key or "", "other" if key else None), key, gated, packed, line)


def read_rope(function: str, rotate_half: str, parameters: dict[str, object] | None) -> str | None:
    """The variant that the source states, as in the profile; `parameters` is the config's rope_parameters."""
    if not function:
        return None
    if "view_as_complex" in function or "freqs_cis" in function:
        return "llama4"
    if "view_as_real" in function:
        return "other"
    code = function + rotate_half
    interleaved = (
        "repeat_interleave" in function
        or bool(re.search(r"\[\.\.\., *0?::2\]|\[\.\.\., *1::2\]", code))
        or bool(re.search(r"view\(b, h, s, d // 2, 2\)\.transpose|reshape\(.*// *2, *2\)", function))
    )
    capable = bool(
        re.search(r"rot\w*_?dim\w* *= *cos\.shape\[-1\]|\[\.\.\., *:rot\w*\]|q_pass|_pass\b", function)
    )
    factor = (parameters or {}).get("partial_rotary_factor")
    partial = capable and isinstance(factor, int | float) and 0 < factor < 1
    if (parameters or {}).get("mrope_section"):
        return "mrope"
    return (
        ("interleaved_partial" if partial else "interleaved")
        if interleaved
        else "partial"
        if partial
        else "standard"
    )


def read_architecture(layer: str, sources: dict[str, str]) -> set[str]:
    """Kinds of feed-forward that a layer's __init__ may construct: {"dense", "moe"}.

    sources: class name -> source, of the classes that it may construct, as far as they are known.
    """
    text = textwrap.dedent(layer)
    own = re.search(r"class (\w+)", text)
    body = _method_text(text, "__init__")
    kinds = set()
    for attribute, cls in re.findall(r"self\.(\w+)\s*=[^\n]*?\b([A-Z]\w+)\(", body) + [
        (found, cls) for found, cls in re.findall(r"self\.(\w+)\s*=[^\n]*\belse\s+([A-Z]\w+)\(", body)
    ]:
        # Names of a family begin alike: "Qwen3Moe" says nothing about Qwen3MoeMLP.
        rest = cls[_common_prefix(cls, own.group(1) if own else "") :]
        if "norm" in (rest + attribute).lower():
            continue
        if (
            re.search(r"moe|sparse|expert", rest + attribute, re.IGNORECASE)
            or "experts" in sources.get(cls, "").lower()
        ):
            kinds.add("moe")
        elif re.search(r"mlp|feed_?forward|ffn", rest + attribute, re.IGNORECASE):
            kinds.add("dense")
    return kinds


def _common_prefix(one: str, other: str) -> int:
    """How many first characters two names share."""
    return next(
        (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


@dataclass(frozen=True)
class ForwardReading:
    """What the causal forward's source says."""

    output_class: str | None
    hidden_states: str | None
    softcap: str | None
    capped_by_module: bool
    logit_scale: str | None
    aux_loss: bool
    loss_keyword_arguments: bool
    lines: dict[str, int]


def read_forward(source: str) -> ForwardReading:
    """`lines`: decision -> offset of the line that it was read from, 0 for the first."""
    text = _without_docstring(source)
    tree = syntax_tree(textwrap.dedent(source)).body[0]
    returned = [
        node.value.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Return)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Name)
    ]
    hidden = re.search(r"=\s*(\w*outputs?\w*)(\.last_hidden_state|\[0\])", text)
    softcap = re.search(r"\.(\w*soft_?cap\w*)(?!\w|\()", text)
    cap_module = re.search(r"self\.\w*soft_?cap\w*\(", text)
    scale = _logit_scale(text)
    loss = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("self.loss_function", "loss_function")
    ]
    lines = {}
    for name, pattern in (
        ("output_class", f"return {returned[-1]}(" if returned else "return"),
        ("hidden_state", hidden.group(0) if hidden else ""),
        (
            "logit_softcapping",
            softcap.group(0) if softcap else cap_module.group(0) if cap_module else "lm_head(",
        ),
    ):
        lines[name] = next(
            (i for i, line in enumerate(source.splitlines()) if pattern and pattern in line), 0
        )
    return ForwardReading(
        output_class=returned[-1] if returned else None,
        hidden_states={".last_hidden_state": "last_hidden_state", "[0]": "[0]"}[hidden.group(2)]
        if hidden
        else None,
        softcap=softcap.group(1) if softcap else None,
        capped_by_module=cap_module is not None,
        logit_scale=scale,
        aux_loss="aux_loss" in text,
        loss_keyword_arguments=any(keyword.arg is None for node in loss for keyword in node.keywords),
        lines=lines,
    )


def _logit_scale(text: str) -> str | None:
    """ "/ self.config.logits_scaling": the factor on the logits, apart from a soft cap."""
    for pattern in (
        r"logits\s*=\s*logits\s*([*/])\s*\(?(self\.[\w.]+)",
        r"logits\s*([*/])=\s*(self\.[\w.]+)",
        r"logits\s*=\s*self\.\w+\([^\n]*\)\s*([*/])\s*(self\.[\w.]+)",
    ):
        for operator, name in re.findall(pattern, text):
            if "cap" not in name:
                return f"{operator} {name}"
    before = re.search(
        r"self\.\w*head\(\s*hidden_states\w*\s*([*/])\s*\(?(self\.[\w.]+(?:\s*/\s*self\.[\w.]+)?)", text
    )
    return f"{before.group(1)} {before.group(2)}" if before else None


def _without_docstring(source: str) -> str:
    try:
        tree = syntax_tree(textwrap.dedent(source)).body[0]
    except SyntaxError:
        return source
    assert isinstance(tree, ast.FunctionDef)  # noqa: S101 - the runner sends one method
    body = tree.body
    if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        tree.body = body[1:] or [ast.Pass()]
    return ast.unparse(tree)


def _method_text(text: str, name: str) -> str:
    try:
        tree = syntax_tree(text)
    except SyntaxError:
        return ""
    return "\n".join(
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == name
    )
