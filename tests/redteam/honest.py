"""Two right kernels, as text: the honest candidates that every cheat and every bug is a small change of."""

from __future__ import annotations

from kernels.op_spec import OpSpec, ScalarSpec, TensorSpec
from runners.protocol import KernelTarget
from tests.redteam.linear import LINEAR_LOSS, LINEAR_LOSS_OP

FULL, COLUMN = ("*", "n_cols"), ("n_cols",)

RELU_SQUARED = """import torch
import triton
import triton.language as tl


@triton.jit
def _forward_kernel(Y_ptr, X_ptr, X_row_stride, n_cols, BLOCK_SIZE: tl.constexpr):
    row_idx = tl.program_id(0).to(tl.int64)
    col_offsets = tl.arange(0, BLOCK_SIZE)
    mask = col_offsets < n_cols
    x = tl.load(X_ptr + row_idx * X_row_stride + col_offsets, mask=mask, other=0.0).to(tl.float32)
    relu_x = tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(Y_ptr + row_idx * n_cols + col_offsets, relu_x * relu_x, mask=mask)


@triton.jit
def _backward_kernel(dX_ptr, dY_ptr, X_ptr, n_cols, BLOCK_SIZE: tl.constexpr):
    row_idx = tl.program_id(0).to(tl.int64)
    col_offsets = tl.arange(0, BLOCK_SIZE)
    mask = col_offsets < n_cols
    x = tl.load(X_ptr + row_idx * n_cols + col_offsets, mask=mask, other=0.0).to(tl.float32)
    dy = tl.load(dY_ptr + row_idx * n_cols + col_offsets, mask=mask, other=0.0).to(tl.float32)
    relu_x = tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(dX_ptr + row_idx * n_cols + col_offsets, dy * 2 * relu_x, mask=mask)


def relu_squared_forward(X):
    X = X.contiguous()
    n_cols = X.shape[-1]
    Y = torch.empty_like(X)
    if X.numel() == 0:
        return Y
    BLOCK_SIZE = triton.next_power_of_2(n_cols)
    _forward_kernel[(X.numel() // n_cols,)](Y, X, n_cols, n_cols, BLOCK_SIZE=BLOCK_SIZE)
    return Y


def relu_squared_backward(dY, X):
    dY, X = dY.contiguous(), X.contiguous()
    n_cols = X.shape[-1]
    dX = torch.empty_like(X)
    if X.numel() == 0:
        return dX
    BLOCK_SIZE = triton.next_power_of_2(n_cols)
    _backward_kernel[(X.numel() // n_cols,)](dX, dY, X, n_cols, BLOCK_SIZE=BLOCK_SIZE)
    return dX


class ReLUSquaredFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, X):
        ctx.save_for_backward(X)
        return relu_squared_forward(X)

    @staticmethod
    def backward(ctx, dY):
        (X,) = ctx.saved_tensors
        return relu_squared_backward(dY, X)
"""

RMS_NORM = """import torch
import triton
import triton.language as tl


@triton.jit
def _forward_kernel(Y_ptr, rstd_ptr, X_ptr, weight_ptr, eps, n_cols, BLOCK_SIZE: tl.constexpr):
    eps = eps.to(tl.float32)
    row_idx = tl.program_id(0).to(tl.int64)
    col_offsets = tl.arange(0, BLOCK_SIZE)
    mask = col_offsets < n_cols
    x = tl.load(X_ptr + row_idx * n_cols + col_offsets, mask=mask, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + col_offsets, mask=mask, other=0.0).to(tl.float32)
    rstd = tl.rsqrt(tl.sum(x * x, axis=0) / n_cols + eps)
    tl.store(rstd_ptr + row_idx, rstd)
    x_hat = (x * rstd).to(X_ptr.dtype.element_ty).to(tl.float32)
    tl.store(Y_ptr + row_idx * n_cols + col_offsets, weight * x_hat, mask=mask)


@triton.jit
def _backward_kernel(
    dX_ptr, dW_ptr, dY_ptr, X_ptr, weight_ptr, rstd_ptr, n_rows, rows_per_program, n_cols, BLOCK_SIZE: tl.constexpr
):
    row_start = tl.program_id(0).to(tl.int64) * rows_per_program
    row_end = tl.minimum(row_start + rows_per_program, n_rows)
    col_offsets = tl.arange(0, BLOCK_SIZE)
    mask = col_offsets < n_cols
    weight = tl.load(weight_ptr + col_offsets, mask=mask, other=0.0).to(tl.float32)
    dW_acc = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
    for row_idx in range(row_start, row_end):
        x = tl.load(X_ptr + row_idx * n_cols + col_offsets, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dY_ptr + row_idx * n_cols + col_offsets, mask=mask, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + row_idx)
        t = weight * dy
        dot = tl.sum(t * x, axis=0)
        dx = rstd * t - rstd * rstd * rstd * dot / n_cols * x
        tl.store(dX_ptr + row_idx * n_cols + col_offsets, dx, mask=mask)
        dW_acc += dy * (x * rstd).to(X_ptr.dtype.element_ty).to(tl.float32)
    tl.store(dW_ptr + tl.program_id(0).to(tl.int64) * n_cols + col_offsets, dW_acc, mask=mask)


class RMSNormFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, X, weight, eps=1e-6):
        X, weight = X.contiguous(), weight.contiguous()
        n_cols = X.shape[-1]
        Y = torch.empty_like(X)
        rstd = torch.empty(X.shape[:-1], dtype=torch.float32, device=X.device)
        if X.numel():
            BLOCK_SIZE = triton.next_power_of_2(n_cols)
            _forward_kernel[(X.numel() // n_cols,)](Y, rstd, X, weight, float(eps), n_cols, BLOCK_SIZE=BLOCK_SIZE)
        ctx.save_for_backward(X, weight, rstd)
        return Y

    @staticmethod
    def backward(ctx, dY):
        X, weight, rstd = ctx.saved_tensors
        dY = dY.contiguous()
        n_cols = X.shape[-1]
        dX = torch.empty_like(X)
        if not X.numel():
            return dX, torch.zeros_like(weight), None
        n_rows = X.numel() // n_cols
        n_programs = min(n_rows, 4)
        dW = torch.empty((n_programs, n_cols), dtype=torch.float32, device=X.device)
        BLOCK_SIZE = triton.next_power_of_2(n_cols)
        _backward_kernel[(n_programs,)](
            dX, dW, dY, X, weight, rstd, n_rows, triton.cdiv(n_rows, n_programs), n_cols, BLOCK_SIZE=BLOCK_SIZE
        )
        return dX, dW.sum(dim=0).to(weight.dtype), None
"""

RELU_SQUARED_OP = OpSpec(
    name="relu_squared",
    entry="relu_squared",
    source="import torch\n\n\ndef relu_squared(X):\n    return torch.relu(X) ** 2\n",
    tensors=(TensorSpec(name="X", shape=FULL),),
)
RMS_NORM_OP = OpSpec(
    name="rms_norm",
    entry="rms_norm",
    source=(
        "import torch\n\n\ndef rms_norm(X, weight, eps=1e-6):\n    x = X.to(torch.float32)\n"
        "    x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)\n    return weight * x.to(X.dtype)\n"
    ),
    tensors=(
        TensorSpec(name="X", shape=FULL),
        TensorSpec(name="weight", shape=COLUMN, learnable=True, init="ones"),
    ),
    scalars=(ScalarSpec(name="eps", default=1e-6),),
)

HONEST = {
    "relu_squared": (RELU_SQUARED, RELU_SQUARED_OP, "ReLUSquaredFunction"),
    "rms_norm": (RMS_NORM, RMS_NORM_OP, "RMSNormFunction"),
    "linear_loss": (LINEAR_LOSS, LINEAR_LOSS_OP, "LinearLossFunction"),
}


def target(name: str) -> KernelTarget:
    """How a runner reaches the candidate for this op in the small repository that the tests make."""
    text, op, function_class = HONEST[name]
    return KernelTarget(
        op=op,
        module=f"kit.ops.{name}",
        function_class=function_class,
        kernels=[kernel for kernel in ("_forward_kernel", "_backward_kernel") if f"def {kernel}(" in text],
        call_order=[*(tensor.name for tensor in op.tensors), *(scalar.name for scalar in op.scalars)],
        path=f"src/kit/ops/{name}.py",
    )
