import torch
import triton
import triton.language as tl


@triton.jit
def relu(x):
    # max(x, 0) that keeps NaN, as torch does
    return tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _relu_squared_forward_kernel(
    Y_ptr,
    X_ptr,
    n_elements,
    BLOCK_SIZE: tl.constexpr,
):
    """
    y = max(x, 0)²
    """
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements

    x = tl.load(X_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    relu_x = relu(x)
    tl.store(Y_ptr + offsets, relu_x * relu_x, mask=mask)


@triton.jit
def _relu_squared_backward_kernel(
    dX_ptr,
    X_ptr,
    dY_ptr,
    n_elements,
    BLOCK_SIZE: tl.constexpr,
):
    """
    dx = (0 if x <= 0 else 2 * dy * x)
    """
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements

    x = tl.load(X_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    dy = tl.load(dY_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    tl.store(dX_ptr + offsets, tl.where(x <= 0, 0.0, 2 * dy * x), mask=mask)


def relu_squared_forward(X):
    X = X.contiguous()
    Y = torch.empty_like(X)
    n_elements = X.numel()
    if n_elements == 0:
        return Y
    BLOCK_SIZE, num_warps = 1024, 2
    _relu_squared_forward_kernel[(triton.cdiv(n_elements, BLOCK_SIZE),)](
        Y,
        X,
        n_elements,
        BLOCK_SIZE=BLOCK_SIZE,
        num_warps=num_warps,
    )
    return Y


def relu_squared_backward(dY, X):
    dY = dY.contiguous()
    X = X.contiguous()
    dX = torch.empty_like(X)
    n_elements = X.numel()
    if n_elements == 0:
        return dX
    BLOCK_SIZE, num_warps = 1024, 2
    _relu_squared_backward_kernel[(triton.cdiv(n_elements, BLOCK_SIZE),)](
        dX,
        X,
        dY,
        n_elements,
        BLOCK_SIZE=BLOCK_SIZE,
        num_warps=num_warps,
    )
    return dX


class ReluSquaredFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, X):
        Y = relu_squared_forward(X)
        ctx.save_for_backward(X)
        return Y

    @staticmethod
    def backward(ctx, dY):
        (X,) = ctx.saved_tensors
        dX = relu_squared_backward(dY, X)
        return dX
