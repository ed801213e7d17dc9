"""A right linear layer with a loss, by chunks of rows, as text: torch multiplies the matrices, a kernel does the rest."""

from __future__ import annotations

from kernels.op_spec import OpSpec, TensorSpec

LINEAR_LOSS = """import torch
import triton
import triton.language as tl


@triton.jit
def _forward_kernel(dlogits_ptr, loss_ptr, logits_ptr, target_ptr, n_rows, n_cols, BLOCK_SIZE: tl.constexpr):
    row_idx = tl.program_id(0).to(tl.int64)
    col_offsets = tl.arange(0, BLOCK_SIZE)
    mask = col_offsets < n_cols
    logits = tl.load(logits_ptr + row_idx * n_cols + col_offsets, mask=mask, other=-float("inf")).to(tl.float32)
    target = tl.load(target_ptr + row_idx)
    max_logits = tl.max(logits, axis=0)
    lse = max_logits + tl.log(tl.sum(tl.exp(logits - max_logits), axis=0))
    label = tl.sum(tl.where(col_offsets == target, logits, 0.0), axis=0)
    dlogits = (tl.exp(logits - lse) - tl.where(col_offsets == target, 1.0, 0.0)) / n_rows
    tl.store(dlogits_ptr + row_idx * n_cols + col_offsets, dlogits, mask=mask)
    tl.store(loss_ptr + row_idx, (lse - label) / n_rows)


def linear_loss_forward(X, weight, target):
    X, weight, target = X.contiguous(), weight.contiguous(), target.contiguous()
    n_rows, n_cols = X.shape[0], weight.shape[0]
    Y = torch.zeros((), dtype=torch.float32, device=X.device)
    dX = torch.empty_like(X)
    dW = torch.zeros_like(weight, dtype=torch.float32)
    chunk_rows = max(X.shape[1] // 8, 1)
    for start in range(0, n_rows, chunk_rows):
        rows = slice(start, start + chunk_rows)
        logits = X[rows] @ weight.t()
        dlogits = torch.empty_like(logits)
        loss = torch.empty(logits.shape[0], dtype=torch.float32, device=X.device)
        BLOCK_SIZE = triton.next_power_of_2(n_cols)
        _forward_kernel[(logits.shape[0],)](
            dlogits, loss, logits, target[rows], n_rows, n_cols, BLOCK_SIZE=BLOCK_SIZE
        )
        Y += loss.sum()
        dX[rows] = dlogits @ weight
        dW += dlogits.t() @ X[rows]
    if n_rows == 0:
        Y = torch.full_like(Y, float("nan"))
    # a copy: torch 2.11's compiler loses the gradient of a result that is an intermediate too
    return Y.clone(), dX, dW.to(weight.dtype)


class LinearLossFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, X, weight, target):
        Y, dX, dW = linear_loss_forward(X, weight, target)
        ctx.save_for_backward(dX, dW)
        return Y

    @staticmethod
    def backward(ctx, dY):
        dX, dW = ctx.saved_tensors
        return dX * dY, dW * dY, None
"""

LINEAR_LOSS_OP = OpSpec(
    name="linear_loss",
    entry="linear_loss",
    source=(
        "import torch\n\n\ndef linear_loss(X, weight, target):\n    logits = (X @ weight.t()).float()\n"
        "    label = torch.gather(logits, -1, target.unsqueeze(-1)).squeeze(-1)\n"
        "    return torch.mean(torch.logsumexp(logits, dim=-1) - label)\n"
    ),
    tensors=(
        TensorSpec(name="X", shape=("n_rows", "hidden_size")),
        TensorSpec(name="weight", shape=("vocab_size", "hidden_size"), learnable=True, init="randn"),
        TensorSpec(name="target", shape=("n_rows",), dtype="int64", needs_grad=False),
    ),
)
