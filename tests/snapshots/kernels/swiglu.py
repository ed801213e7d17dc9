import torch
import triton
import triton.language as tl


@triton.jit
def _swiglu_forward_kernel(
    Y_ptr,
    A_ptr,
    B_ptr,
    n_elements,
    BLOCK_SIZE: tl.constexpr,
):
    """
    y = a · σ(a) · b
    """
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements

    a = tl.load(A_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    b = tl.load(B_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    tl.store(Y_ptr + offsets, a * tl.sigmoid(a) * b, mask=mask)


@triton.jit
def _swiglu_backward_kernel(
    dA_ptr,
    dB_ptr,
    A_ptr,
    B_ptr,
    dY_ptr,
    n_elements,
    BLOCK_SIZE: tl.constexpr,
):
    """
    da = dy * b * sigmoid(a) * (a * (1 - sigmoid(a)) + 1)
    db = dy * a * sigmoid(a)
    """
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements

    a = tl.load(A_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    b = tl.load(B_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    dy = tl.load(dY_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    sig_a = tl.sigmoid(a)
    tl.store(dA_ptr + offsets, dy * b * sig_a * (a * (1 - sig_a) + 1), mask=mask)
    tl.store(dB_ptr + offsets, dy * (a * sig_a), mask=mask)


def swiglu_forward(A, B):
    A = A.contiguous()
    B = B.contiguous()
    Y = torch.empty_like(A)
    n_elements = A.numel()
    if n_elements == 0:
        return Y
    BLOCK_SIZE, num_warps = 1024, 4
    _swiglu_forward_kernel[(triton.cdiv(n_elements, BLOCK_SIZE),)](
        Y,
        A,
        B,
        n_elements,
        BLOCK_SIZE=BLOCK_SIZE,
        num_warps=num_warps,
    )
    return Y


def swiglu_backward(dY, A, B):
    dY = dY.contiguous()
    A = A.contiguous()
    B = B.contiguous()
    dA = torch.empty_like(A)
    dB = torch.empty_like(A, dtype=B.dtype)
    n_elements = A.numel()
    if n_elements == 0:
        return dA, dB
    BLOCK_SIZE, num_warps = 1024, 4
    _swiglu_backward_kernel[(triton.cdiv(n_elements, BLOCK_SIZE),)](
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


class SwigluFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, A, B):
        Y = swiglu_forward(A, B)
        ctx.save_for_backward(A, B)
        return Y

    @staticmethod
    def backward(ctx, dY):
        A, B = ctx.saved_tensors
        dA, dB = swiglu_backward(dY, A, B)
        return dA, dB
