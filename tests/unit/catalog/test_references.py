"""The catalog's references are well-formed, pass the allow-list, and compute what they say."""

from __future__ import annotations

import ast
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from agents.catalog.known_op import CatalogError, KnownOp, parse_known_op
from agents.catalog.lookup import Catalog, catalog
from agents.dev.expression import parse_expression
from agents.dev.naming import class_stem, is_operation_name
from kernels.op_spec import OpSpec
from runners.static_scan import scan

OPS = catalog().ops
SIZES = {"*": 6, "n_cols": 16, "channels": 8, "head_dim": 16, "vocab_size": 12}
# The file names a PyTorch function as its source: the reference must compute the same.
SAME_AS_TORCH: dict[str, Callable[..., torch.Tensor]] = {
    "elu": F.elu,
    "celu": lambda x: F.celu(x, alpha=1.3),
    "leaky_relu": F.leaky_relu,
    "hardshrink": F.hardshrink,
    "softshrink": F.softshrink,
    "tanhshrink": F.tanhshrink,
    "softsign": F.softsign,
    "softmin": lambda x: F.softmin(x, dim=-1),
    "prelu": F.prelu,
    "rms_norm_none": lambda x, w: F.rms_norm(x, (x.shape[-1],), w, 1e-6),
    "rms_norm": lambda x, w: F.rms_norm(x, (x.shape[-1],), w, 1e-6),
    "l2_norm": lambda x: F.normalize(x, dim=-1),
    "instance_norm": F.instance_norm,
    "instance_norm_affine": lambda x, w, b: F.instance_norm(x, weight=w, bias=b),
    "batch_norm": lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
    "channel_norm": lambda x, w, b: F.layer_norm(x.transpose(1, 2), (8,), w, b, 1e-6).transpose(1, 2),
    "cross_entropy_smoothed": lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1),
    "cross_entropy_weighted": lambda x, t, w: F.cross_entropy(x, t, weight=w),
    "cross_entropy_soft_target": F.cross_entropy,
    "nll_loss": F.nll_loss,
    "distillation_kl": lambda s, t: (
        4 * F.kl_div((s / 2).log_softmax(-1), (t / 2).softmax(-1), reduction="batchmean")
    ),
    "multiclass_focal_loss": lambda x, t: (
        ((1 - x.softmax(-1)) ** 2 * -x.log_softmax(-1)).gather(-1, t[:, None]).mean()
    ),
    "huber_loss": lambda x, t: F.huber_loss(x, t, delta=1.25),
    "smooth_l1_loss": lambda x, t: F.smooth_l1_loss(x, t, beta=0.75),
    "mse_loss": F.mse_loss,
    "l1_loss": F.l1_loss,
    "poisson_nll_loss": F.poisson_nll_loss,
    "gaussian_nll_loss": lambda x, t, v: F.gaussian_nll_loss(x, t, v.clamp(min=1e-6)),
    "cosine_similarity": F.cosine_similarity,
    "triplet_loss": F.triplet_margin_loss,
    "token_log_prob": lambda x, t: -F.cross_entropy(x, t, reduction="none"),
    "exclusive_cumsum": lambda x: x.cumsum(-1).roll(1, -1) * (torch.arange(16) > 0),
    "reverse_cumsum": lambda x: x.flip(-1).cumsum(-1).flip(-1),
    "entropy": lambda x: torch.distributions.Categorical(logits=x).entropy(),
    "softmax_one": lambda x: F.pad(x, (0, 1)).softmax(-1)[..., :-1],
    "masked_fill": lambda x, m: x.masked_fill(m, -10000.0),
    "swiglu_packed": lambda x: F.silu(x[..., :8]) * x[..., 8:],
    "swiglu_sliced": lambda x: F.silu(x[..., :8]) * x[..., 8:],
    "rope_interleaved": lambda x, c, s: torch.view_as_real(
        torch.view_as_complex(x.unflatten(-1, (-1, 2))) * torch.complex(c[..., ::2], s[..., ::2])
    ).flatten(-2),
}


def test_there_are_more_than_a_hundred_ops():
    assert len(OPS) >= 100


@pytest.mark.parametrize(
    "name",
    [
        "relu_squared",
        "silu",
        "gelu_tanh",
        "gelu",
        "quick_gelu",
        "mish",
        "softplus",
        "elu",
        "selu",
        "hardswish",
        "leaky_relu",
        "squareplus",
        "softcap",
        "swiglu",
        "geglu",
        "reglu",
        "clamped_glu",
        "rms_norm",
        "layer_norm",
        "group_norm",
        "instance_norm",
        "adaln",
        "l2_norm",
        "qk_norm",
        "fused_add_rms_norm",
        "fused_add_layer_norm",
        "dyt",
        "poly_norm",
        "softmax",
        "log_softmax",
        "logsumexp",
        "top_k_router",
        "cumsum",
        "rope",
        "rope_interleaved",
        "rope_partial",
        "qk_norm_rope",
        "embedding",
        "cross_entropy",
        "kl_div",
        "jsd",
        "tvd",
        "focal_loss",
        "bce_with_logits",
        "huber_loss",
        "hinge_loss",
        "triplet_loss",
        "cosine_loss",
        "dpo_loss",
        "batch_norm",
        "frobenius_norm",
    ],
)
def test_the_ops_that_maintainers_ask_for_are_known(name):
    assert name in OPS


@pytest.mark.parametrize("known", OPS.values(), ids=OPS)
def test_a_reference_is_well_formed(known: KnownOp):
    op = known.op
    tree = ast.parse(op.source)
    function = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == op.entry)
    defaults = [ast.literal_eval(default) for default in function.args.defaults]

    assert is_operation_name(op.name)
    assert [argument.arg for argument in function.args.args] == [t.name for t in op.tensors] + [
        s.name for s in op.scalars
    ]
    assert defaults == [scalar.default for scalar in op.scalars]
    assert scan(op.source) == []
    assert op.summary
    assert known.source
    assert (known.class_name or class_stem(op.name)).isidentifier()
    assert any(tensor.needs_grad for tensor in op.tensors)


@pytest.mark.parametrize("known", OPS.values(), ids=OPS)
def test_a_reference_runs_and_every_gradient_reaches_its_tensor(known: KnownOp):
    inputs = values(known.op)
    outputs = run(known.op)(*inputs)

    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    torch.stack([out.sum() for out in outputs if out.dtype.is_floating_point]).sum().backward()

    assert all(torch.isfinite(out).all() for out in outputs)
    missing = [
        t.name
        for t, value in zip(known.op.tensors, inputs, strict=True)
        if t.needs_grad and value.grad is None
    ]
    assert missing == []


@pytest.mark.parametrize("name", SAME_AS_TORCH)
def test_a_reference_computes_what_its_source_does(name):
    inputs = values(OPS[name].op)

    torch.testing.assert_close(run(OPS[name].op)(*inputs), SAME_AS_TORCH[name](*inputs), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", [name for name, known in OPS.items() if known.expression])
def test_an_op_and_its_expression_are_the_same_function(name):
    known = OPS[name]
    parsed = parse_expression(known.expression or "", name)
    inputs = values(known.op)

    torch.testing.assert_close(run(parsed.op)(*inputs), run(known.op)(*inputs), atol=1e-6, rtol=1e-5)
    assert [(s.name, s.default) for s in parsed.op.scalars] == [(s.name, s.default) for s in known.op.scalars]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import torch\n", "expected YAML between"),
        ("---\nmathematics: y\n---\n```python\nx = 1\n```\n", "source"),
        ("---\nmathematics: y\nsource: s\ntensors: {x: plank}\n---\n```python\nx = 1\n```\n", "plank"),
        (
            "---\nmathematics: y\nsource: s\ntensors: {x: full}\ncolour: red\n---\n```python\nx = 1\n```\n",
            "colour",
        ),
        ("---\n[\n---\n```python\nx = 1\n```\n", "activation/bad.md"),
    ],
)
def test_a_malformed_file_is_named_with_what_is_wrong(text, words):
    with pytest.raises(CatalogError, match=words):
        parse_known_op("bad", "activation", text)


def test_two_ops_of_one_name_are_refused():
    silu = OPS["silu"]
    other = silu.model_copy(update={"op": silu.op.model_copy(update={"name": "swish"}), "aliases": ()})

    with pytest.raises(CatalogError, match='"swish" names both silu and swish'):
        Catalog([silu, other])


def run(op: OpSpec) -> Callable[..., torch.Tensor | tuple[torch.Tensor, ...]]:
    """The reference as a function; the catalog is ours, so it may be executed here."""
    namespace: dict = {}
    exec(op.source, namespace)  # noqa: S102
    return namespace[op.entry]


def values(op: OpSpec) -> list[torch.Tensor]:
    """Random values of an op's tensors, the same every time."""
    generator = torch.Generator().manual_seed(7)
    found = []
    for tensor in op.tensors:
        shape = [SIZES.get(axis, 4) for axis in tensor.shape]
        if tensor.dtype == "int64":
            value = torch.randint(0, 12, shape, generator=generator)
        elif tensor.dtype == "bool":
            value = torch.rand(shape, generator=generator) > 0.3
        elif not tensor.needs_grad or tensor.name in {"var", "p"}:
            value = torch.softmax(torch.randn([*shape, 1], generator=generator), dim=-2)[..., 0] + 0.01
        else:
            value = torch.randn(shape, generator=generator)
        found.append(value.requires_grad_(tensor.needs_grad))
    return found
