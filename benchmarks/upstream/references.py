"""The mathematics of the target's options that the catalog has no op for, as references to derive from. Pure.

Liger's Functions take options (a casting mode, a reduction, labels to ignore, …); the catalog has the plain op. Each
variant here is one combination, written as plain PyTorch like a catalog entry. Source: the docstrings of Liger's
Functions and the PyTorch references in its tests.
"""

from __future__ import annotations

from dataclasses import dataclass

from agents.catalog.lookup import catalog
from kernels.op_spec import OpSpec, ScalarSpec, TensorSpec

FULL, ROW, COLUMN = ("*", "n_cols"), ("*",), ("n_cols",)

CATALOG_OPS = (
    "relu_squared", "swiglu", "geglu", "softmax", "layer_norm", "group_norm", "poly_norm", "dyt", "rope",
    "rms_norm", "rms_norm_gemma", "rms_norm_none", "rms_norm_no_weight", "fused_add_rms_norm",
    "cross_entropy", "kl_div", "kl_div_log_target", "jsd", "tvd",
)  # fmt: skip


@dataclass(frozen=True)
class Reference:
    """What to derive. wide_rows: as for kernels.derive.derive, rows may not fit one block."""

    op: OpSpec
    wide_rows: bool = False


def variants() -> dict[str, Reference]:
    """Every reference that an adapter may choose, by name: the catalog's and the ones written here."""
    ours = [
        *_swiglu(), *_geglu(), *_norms(), *_dyt(), *_rope(), *_cross_entropy(), *_kl_div(), *_jsd(), *_tvd(),
    ]  # fmt: skip
    ops = [catalog().ops[name].op for name in CATALOG_OPS] + ours
    wide = catalog().ops["group_norm"].op.model_copy(update={"name": "group_norm_wide"})
    return {op.name: Reference(op) for op in ops} | {wide.name: Reference(wide, wide_rows=True)}


def _op(
    name: str, parameters: str, body: str, tensors: tuple[TensorSpec, ...], **scalars: float | int
) -> OpSpec:
    """One reference. `parameters` is the signature without annotations, `body` the indented lines."""
    source = f"import torch\nimport torch.nn.functional as F\n\n\ndef {name}({parameters}):\n{body}"
    return OpSpec(
        name=name,
        entry=name,
        source=source,
        tensors=tensors,
        scalars=tuple(ScalarSpec(name=key, default=value) for key, value in scalars.items()),
    )


def _x(name: str = "x", *, grad: bool = True) -> TensorSpec:
    return TensorSpec(name=name, shape=FULL, needs_grad=grad)


def _column(name: str, *, learnable: bool = True) -> TensorSpec:
    return TensorSpec(
        name=name, shape=COLUMN, needs_grad=learnable, learnable=learnable, init="ones" if learnable else None
    )


def _labels(name: str = "label") -> TensorSpec:
    return TensorSpec(name=name, shape=ROW, dtype="int64", needs_grad=False)


def _swiglu() -> list[OpSpec]:
    body = "    return F.silu(a * gate_multiplier) * b * down_multiplier\n"
    return [
        _op("swiglu_scaled", "a, b, gate_multiplier=1.0, down_multiplier=1.0", body, (_x("a"), _x("b")),
            gate_multiplier=1.0, down_multiplier=1.0),
    ]  # fmt: skip


def _geglu() -> list[OpSpec]:
    """As PyTorch's eager mode computes it: the activation is rounded to its dtype before the product."""
    body = '    return F.gelu(a.float(), approximate="tanh").to(a.dtype) * b\n'
    return [_op("geglu_rounded", "a, b", body, (_x("a"), _x("b")))]


def _norms() -> list[OpSpec]:
    none_no_weight = "    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)\n"
    gemma = (
        "    s = x + residual\n"
        "    h = s.float()\n"
        "    h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + eps)\n"
        "    return (h * (1.0 + weight.float())).to(x.dtype), s\n"
    )
    none = (
        "    s = x + residual\n"
        "    return weight * (s * torch.rsqrt(s.pow(2).mean(-1, keepdim=True) + eps)), s\n"
    )
    added = (_x(), _x("residual"), _column("weight"))
    return [
        _op("rms_norm_none_no_weight", "x, eps=1e-6", none_no_weight, (_x(),), eps=1e-6),
        _op("fused_add_rms_norm_gemma", "x, residual, weight, eps=1e-6", gemma, added, eps=1e-6),
        _op("fused_add_rms_norm_none", "x, residual, weight, eps=1e-6", none, added, eps=1e-6),
    ]


def _dyt() -> list[OpSpec]:
    alpha = TensorSpec(name="alpha", shape=(), learnable=True, init="half")
    body = "    return gamma * torch.tanh(alpha * x)\n"
    return [_op("dyt_no_beta", "x, alpha, gamma", body, (_x(), alpha, _column("gamma")))]


def _rope() -> list[OpSpec]:
    body = (
        "    half = x.shape[-1] // 2\n"
        "    rotated = torch.cat((-x[..., half:], x[..., :half]), dim=-1)\n"
        "    return x * cos[:, None] + rotated * sin[:, None]\n"
    )
    table = ("batch", "seq_len", "head_dim")
    tensors = (
        TensorSpec(name="x", shape=("batch", "n_heads", "seq_len", "head_dim")),
        TensorSpec(name="cos", shape=table, needs_grad=False),
        TensorSpec(name="sin", shape=table, needs_grad=False),
    )
    return [_op("rope_batched", "x, cos, sin", body, tensors)]


def cross_entropy_name(*, softcap: bool, weight: bool, reduction: str) -> str:
    """The variant's name for these options; smoothing, z-loss and the ignored label are its arguments."""
    return "cross_entropy_general" + "_softcap" * softcap + "_weighted" * weight + f"_{reduction}"


def _cross_entropy() -> list[OpSpec]:
    return [
        _cross_entropy_variant(softcap=softcap, weight=weight, reduction=reduction)
        for softcap in (False, True)
        for weight in (False, True)
        for reduction in ("mean", "sum", "none")
    ]


def _cross_entropy_variant(*, softcap: bool, weight: bool, reduction: str) -> OpSpec:
    """Returns (loss, z_loss): the loss includes the z-loss, which is reported too. Smoothing spreads over the columns."""
    lines = ["h = x.float()"]
    if softcap:
        lines.append("h = softcap * torch.tanh(h / softcap)")
    lines += [
        "lse = torch.logsumexp(h, dim=-1)",
        "valid = target != ignore_index",
        "index = torch.where(valid, target, 0)",
        "nll = lse - torch.gather(h, -1, index[:, None])[:, 0]",
    ]
    if weight:
        lines += [
            "w = class_weight.float()",
            "row_weight = w[index]",
            "smooth = torch.sum(w * (lse[:, None] - h), dim=-1) / x.shape[-1]",
            "ce = (1 - label_smoothing) * row_weight * nll + label_smoothing * smooth",
            "ce_count = torch.sum(torch.where(valid, row_weight, 0.0))",
        ]
    else:
        lines += [
            "smooth = lse - torch.mean(h, dim=-1)",
            "ce = (1 - label_smoothing) * nll + label_smoothing * smooth",
            "ce_count = torch.sum(valid)",
        ]
    lines += [
        "ce = torch.where(valid, ce, 0.0)",
        "z = torch.where(valid, lse_square_scale * torch.square(lse), 0.0)",
    ]
    lines += {
        "mean": [
            "z_mean = torch.sum(z) / torch.sum(valid)",
            "return (torch.sum(ce) / ce_count + z_mean).to(x.dtype), z_mean.to(x.dtype)",
        ],
        "sum": ["return torch.sum(ce + z).to(x.dtype), torch.sum(z).to(x.dtype)"],
        "none": ["return (ce + z).to(x.dtype), z.to(x.dtype)"],
    }[reduction]
    if reduction != "mean":
        lines = [line for line in lines if not line.startswith("ce_count")]
    tensors = [_x(), _labels("target")]
    parameters = "x, target"
    if weight:
        tensors.append(_column("class_weight", learnable=False))
        parameters += ", class_weight"
    scalars: dict[str, float | int] = {"ignore_index": -100, "lse_square_scale": 0.0, "label_smoothing": 0.0}
    if softcap:
        scalars["softcap"] = 30.0
    parameters += "".join(f", {key}={value}" for key, value in scalars.items())
    name = cross_entropy_name(softcap=softcap, weight=weight, reduction=reduction)
    body = "".join(f"    {line}\n" for line in lines)
    return _op(name, parameters, body, tuple(tensors), **scalars)


def _kl_div() -> list[OpSpec]:
    """The loss is float32 whatever the dtypes are, as Liger's; the catalog's has the input's."""
    found = []
    tensors = (_x(), _x("target", grad=False))
    for reduction in ("batchmean", "sum", "mean", "none"):
        for log_target in (False, True):
            name = f"kl_div_{reduction}" + "_log_target" * log_target
            call = f'F.kl_div(x.float(), target.float(), reduction="{reduction}", log_target={log_target})'
            body = f"    return {call}\n"
            found.append(_op(name, "x, target", body, tensors))
    return found


_DIVERGENCES = {
    "between": (
        "    m = beta * p + (1 - beta) * q\n"
        "    log_m = torch.log(m)\n"
        "    loss = beta * p * (target - log_m) + (1 - beta) * q * (x - log_m)\n"
    ),
    "forward": "    loss = p * (target - x)\n",
    "reverse": "    loss = q * (x - target)\n",
}


def _jsd() -> list[OpSpec]:
    """The catalog has beta strictly between 0 and 1 without labels; 0 and 1 are forward and reverse KL."""
    found = []
    for kind, loss in _DIVERGENCES.items():
        for labelled in (False, True):
            if kind == "between" and not labelled:
                continue
            name = f"jsd_{kind}" + "_labelled" * labelled
            body = "    q, p = torch.exp(x.float()), torch.exp(target.float())\n" + loss
            if labelled:
                body += (
                    "    valid = label != ignore_index\n"
                    "    rows = torch.where(valid, torch.sum(loss, dim=-1), 0.0)\n"
                    "    return (torch.sum(rows) / torch.clamp(torch.sum(valid), min=1)).to(x.dtype)\n"
                )
            else:
                body += "    return torch.mean(torch.sum(loss, dim=-1)).to(x.dtype)\n"
            parameters = "x, target" + ", label" * labelled
            scalars: dict[str, float | int] = {"beta": 0.5} if kind == "between" else {}
            if labelled:
                scalars["ignore_index"] = -100
            parameters += "".join(f", {key}={value}" for key, value in scalars.items())
            tensors = (_x(), _x("target", grad=False), *([_labels()] if labelled else []))
            found.append(_op(name, parameters, body, tensors, **scalars))
    return found


def _tvd() -> list[OpSpec]:
    """The loss is float32 whatever the dtypes are, as Liger's; the catalog's has the input's."""
    found = []
    for reduction in ("batchmean", "sum", "mean", "none"):
        for labelled in (False, True):
            name = f"tvd_{reduction}" + "_labelled" * labelled
            body = "    loss = 0.5 * torch.abs(p.float() - q.float())\n"
            rows = "p.shape[0]"
            if labelled:
                body += (
                    "    valid = label != ignore_index\n    loss = torch.where(valid[:, None], loss, 0.0)\n"
                )
                rows = "torch.clamp(torch.sum(valid), min=1)"
            body += {
                "batchmean": f"    return torch.sum(loss) / {rows}\n",
                "mean": f"    return torch.sum(loss) / ({rows} * p.shape[1])\n",
                "sum": "    return torch.sum(loss)\n",
                "none": "    return loss\n",
            }[reduction]
            parameters = "p, q" + ", label, ignore_index=-100" * labelled
            tensors = (_x("p"), _x("q", grad=False), *([_labels()] if labelled else []))
            found.append(_op(name, parameters, body, tensors, **({"ignore_index": -100} if labelled else {})))
    return found
