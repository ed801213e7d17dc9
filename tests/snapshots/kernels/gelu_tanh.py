import torch
import triton
import triton.language as tl

SQRT_8_OVER_PI = tl.constexpr(1.5957691216057308)  # 2 * sqrt(2 / pi)
GELU_CUBIC = tl.constexpr(0.044715)  # cubic coefficient of the tanh approximation of GELU
GELU_CUBIC_SLOPE = tl.constexpr(0.134145)  # 3 * GELU_CUBIC


@triton.jit
def _gelu_tanh_forward_kernel(
    Y_ptr,
    X_ptr,
    n_elements,
    BLOCK_SIZE: tl.constexpr,
):
    """
    y = ½ x (1 + tanh(√(2/π) (x + 0.044715 x³)))
    """
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements

    x = tl.load(X_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    tl.store(Y_ptr + offsets, x * tl.sigmoid((x + x * x * GELU_CUBIC * x) * SQRT_8_OVER_PI), mask=mask)


@triton.jit
def _gelu_tanh_backward_kernel(
    dX_ptr,
    X_ptr,
    dY_ptr,
    n_elements,
    BLOCK_SIZE: tl.constexpr,
):
    """
    dx = dy * (sigmoid(1.5957691216057308 * (x + 0.044715 * x² * x)) + 1.5957691216057308 * x *
        sigmoid(1.5957691216057308 * (x + 0.044715 * x² * x)) * (1 - sigmoid(1.5957691216057308 * (x + 0.044715 *
        x² * x))) * (1 + 0.134145 * x²))
    """
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements

    x = tl.load(X_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    dy = tl.load(dY_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    x_sq = x * x
    sig_scaled = tl.sigmoid((x + x_sq * GELU_CUBIC * x) * SQRT_8_OVER_PI)
    scaled_x = x * SQRT_8_OVER_PI * sig_scaled * (1 - sig_scaled) * (1 + x_sq * GELU_CUBIC_SLOPE)
    tl.store(dX_ptr + offsets, dy * (sig_scaled + scaled_x), mask=mask)


def gelu_tanh_forward(X):
    X = X.contiguous()
    Y = torch.empty_like(X)
    n_elements = X.numel()
    if n_elements == 0:
        return Y
    BLOCK_SIZE, num_warps = 1024, 2
    _gelu_tanh_forward_kernel[(triton.cdiv(n_elements, BLOCK_SIZE),)](
        Y,
        X,
        n_elements,
        BLOCK_SIZE=BLOCK_SIZE,
        num_warps=num_warps,
    )
    return Y


def gelu_tanh_backward(dY, X):
    dY = dY.contiguous()
    X = X.contiguous()
    dX = torch.empty_like(X)
    n_elements = X.numel()
    if n_elements == 0:
        return dX
    BLOCK_SIZE, num_warps = 1024, 4
    _gelu_tanh_backward_kernel[(triton.cdiv(n_elements, BLOCK_SIZE),)](
        dX,
        X,
        dY,
        n_elements,
        BLOCK_SIZE=BLOCK_SIZE,
        num_warps=num_warps,
    )
    return dX


class GeluTanhFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, X):
        Y = gelu_tanh_forward(X)
        ctx.save_for_backward(X)
        return Y

    @staticmethod
    def backward(ctx, dY):
        (X,) = ctx.saved_tensors
        dX = gelu_tanh_backward(dY, X)
        return dX
