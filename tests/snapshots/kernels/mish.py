import torch
import triton
import triton.language as tl


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
    exp_x = tl.exp(x)
    scaled = exp_x * (exp_x + 2)
    tl.store(Y_ptr + offsets, x * tl.where(x > 20, 1.0, scaled / (scaled + 2)), mask=mask)


@triton.jit
def _mish_backward_kernel(
    dX_ptr,
    X_ptr,
    dY_ptr,
    n_elements,
    BLOCK_SIZE: tl.constexpr,
):
    """
    dx = dy * ((1 if x > 20 else exp(x) * (exp(x) + 2) / (exp(x) * (exp(x) + 2) + 2)) + x * sigmoid(x) * (1 - (1
        if x > 20 else exp(x) * (exp(x) + 2) / (exp(x) * (exp(x) + 2) + 2))²))
    """
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements

    x = tl.load(X_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    dy = tl.load(dY_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    exp_x = tl.exp(x)
    scaled = exp_x * (exp_x + 2)
    selected = tl.where(x > 20, 1.0, scaled / (scaled + 2))
    tl.store(dX_ptr + offsets, dy * (selected + x * tl.sigmoid(x) * (1 - selected * selected)), mask=mask)


def mish_forward(X):
    X = X.contiguous()
    Y = torch.empty_like(X)
    n_elements = X.numel()
    if n_elements == 0:
        return Y
    BLOCK_SIZE, num_warps = 1024, 2
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
