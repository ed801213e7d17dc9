import torch
import triton
import triton.language as tl


@triton.jit
def tanh(x):
    # 2 * sigmoid(2x) - 1 cancels near zero: a series there
    x_sq = x * x
    series = x * (1 + x_sq * (-0.33333333 + x_sq * 0.13333333))
    return tl.where(x_sq < 0.01, series, 2 * tl.sigmoid(2 * x) - 1)


@triton.jit
def log1p(x):
    # Kahan: the rounding error of 1 + x is divided out again
    u = 1 + x
    corrected = tl.log(u) * (x / (u - 1))
    return tl.where(u == 1, x, tl.where(u == x, tl.log(u), corrected))


@triton.jit
def _mish_forward_kernel(
    Y_ptr,
    X_ptr,
    n_elements,
    BLOCK_SIZE: tl.constexpr,
):
    """
    y = x · tanh(log(1 + eˣ))
    """
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements

    x = tl.load(X_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    tl.store(Y_ptr + offsets, x * tanh(tl.where(x > 20, x, log1p(tl.exp(x)))), mask=mask)


@triton.jit
def _mish_backward_kernel(
    dX_ptr,
    X_ptr,
    dY_ptr,
    n_elements,
    BLOCK_SIZE: tl.constexpr,
):
    """
    dx = dy * (tanh((x if x > 20 else log1p(exp(x)))) + x * sigmoid(x) * (1 - tanh((x if x > 20 else
        log1p(exp(x))))²))
    """
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements

    x = tl.load(X_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    dy = tl.load(dY_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    tanh_selected = tanh(tl.where(x > 20, x, log1p(tl.exp(x))))
    shifted = tanh_selected + x * tl.sigmoid(x) * (1 - tanh_selected * tanh_selected)
    tl.store(dX_ptr + offsets, dy * shifted, mask=mask)


def mish_forward(X):
    X = X.contiguous()
    Y = torch.empty_like(X)
    n_elements = X.numel()
    if n_elements == 0:
        return Y
    BLOCK_SIZE, num_warps = 1024, 4
    _mish_forward_kernel[(triton.cdiv(n_elements, BLOCK_SIZE),)](
        Y,
        X,
        n_elements,
        BLOCK_SIZE=BLOCK_SIZE,
        num_warps=num_warps,
    )
    return Y


def mish_backward(dY, X):
    dY = dY.contiguous()
    X = X.contiguous()
    dX = torch.empty_like(X)
    n_elements = X.numel()
    if n_elements == 0:
        return dX
    BLOCK_SIZE, num_warps = 1024, 4
    _mish_backward_kernel[(triton.cdiv(n_elements, BLOCK_SIZE),)](
        dX,
        X,
        dY,
        n_elements,
        BLOCK_SIZE=BLOCK_SIZE,
        num_warps=num_warps,
    )
    return dX


class MishFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, X):
        Y = mish_forward(X)
        ctx.save_for_backward(X)
        return Y

    @staticmethod
    def backward(ctx, dY):
        (X,) = ctx.saved_tensors
        dX = mish_backward(dY, X)
        return dX
