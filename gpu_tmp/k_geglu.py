import torch
import triton
import triton.language as tl

SQRT_2_OVER_PI = tl.constexpr(0.7978845608028654)  # sqrt(2 / pi)
GELU_CUBIC = tl.constexpr(0.044715)  # cubic coefficient of the tanh approximation of GELU
GELU_CUBIC_SLOPE = tl.constexpr(0.134145)  # 3 * GELU_CUBIC


@triton.jit
def tanh(x):
    # 2 * sigmoid(2x) - 1 cancels near zero: a series there
    x_sq = x * x
    series = x * (1 + x_sq * (-0.33333333 + x_sq * 0.13333333))
    return tl.where(x_sq < 0.01, series, 2 * tl.sigmoid(2 * x) - 1)


@triton.jit
def _geglu_forward_kernel(
    Y_ptr,
    A_ptr,
    B_ptr,
    n_elements,
    BLOCK_SIZE: tl.constexpr,
):
    """
    y = gelu_tanh(a) · b
    """
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements

    a = tl.load(A_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    b = tl.load(B_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    scaled_a = 0.5 * a * (1 + tanh((a + a * a * GELU_CUBIC * a) * SQRT_2_OVER_PI))
    tl.store(Y_ptr + offsets, scaled_a * b, mask=mask)


@triton.jit
def _geglu_backward_kernel(
    dA_ptr,
    dB_ptr,
    A_ptr,
    B_ptr,
    dY_ptr,
    n_elements,
    BLOCK_SIZE: tl.constexpr,
):
    """
    da = dy * b * (0.5 * (1 + tanh(√(2/π) * (a + 0.044715 * a² * a))) + √(2/π) * 0.5 * a * (1 - tanh(√(2/π) * (a +
        0.044715 * a² * a))²) * (1 + 0.134145 * a²))
    db = dy * 0.5 * a * (1 + tanh(√(2/π) * (a + 0.044715 * a² * a)))
    """
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements

    a = tl.load(A_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    b = tl.load(B_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    dy = tl.load(dY_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    a_sq = a * a
    tanh_scaled = tanh((a + a_sq * GELU_CUBIC * a) * SQRT_2_OVER_PI)
    scaled_a = 0.5 * a
    shifted = 1 + tanh_scaled
    scaled_a_2 = scaled_a * SQRT_2_OVER_PI * (1 - tanh_scaled * tanh_scaled) * (1 + a_sq * GELU_CUBIC_SLOPE)
    tl.store(dA_ptr + offsets, dy * b * (0.5 * shifted + scaled_a_2), mask=mask)
    tl.store(dB_ptr + offsets, dy * (scaled_a * shifted), mask=mask)


def geglu_forward(A, B):
    A = A.contiguous()
    B = B.contiguous()
    Y = torch.empty_like(A)
    n_elements = A.numel()
    if n_elements == 0:
        return Y
    BLOCK_SIZE, num_warps = 1024, 4
    _geglu_forward_kernel[(triton.cdiv(n_elements, BLOCK_SIZE),)](
        Y,
        A,
        B,
        n_elements,
        BLOCK_SIZE=BLOCK_SIZE,
        num_warps=num_warps,
    )
    return Y


def geglu_backward(dY, A, B):
    dY = dY.contiguous()
    A = A.contiguous()
    B = B.contiguous()
    dA = torch.empty_like(A)
    dB = torch.empty_like(A, dtype=B.dtype)
    n_elements = A.numel()
    if n_elements == 0:
        return dA, dB
    BLOCK_SIZE, num_warps = 1024, 4
    _geglu_backward_kernel[(triton.cdiv(n_elements, BLOCK_SIZE),)](
        dA,
        dB,
        A,
        B,
        dY,
        n_elements,
        BLOCK_SIZE=BLOCK_SIZE,
        num_warps=num_warps,
    )
    return dA, dB


class GegluFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, A, B):
        Y = geglu_forward(A, B)
        ctx.save_for_backward(A, B)
        return Y

    @staticmethod
    def backward(ctx, dY):
        A, B = ctx.saved_tensors
        dA, dB = geglu_backward(dY, A, B)
        return dA, dB
