import torch
import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)  # 1 / log(2): exp(x) = exp2(x * LOG2_E)


def calculate_settings(n_cols):
    BLOCK_SIZE = triton.next_power_of_2(n_cols)
    if BLOCK_SIZE > 65536:
        raise RuntimeError(f"a row of {n_cols} columns doesn't fit one block of 65536")
    num_warps = 4
    if BLOCK_SIZE >= 32768:
        num_warps = 32 if torch.version.hip is None else 16
    elif BLOCK_SIZE >= 8192:
        num_warps = 16
    elif BLOCK_SIZE >= 2048:
        num_warps = 8
    return BLOCK_SIZE, num_warps


@triton.jit
def _softmax_forward_kernel(
    Y_ptr,
    X_ptr,
    n_cols: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    """
    y = eˣ / Σ eˣ
    """
    row_idx = tl.program_id(0).to(tl.int64)
    col_offsets = tl.arange(0, BLOCK_SIZE)
    mask = col_offsets < n_cols

    x = tl.load(X_ptr + row_idx * n_cols + col_offsets, mask=mask, other=-float("inf")).to(tl.float32)
    max_x = tl.max(x, axis=0)
    exp_difference = tl.exp2((x - max_x) * LOG2_E)
    total = tl.sum(exp_difference, axis=0)
    tl.store(Y_ptr + row_idx * n_cols + col_offsets, exp_difference * (1.0 / total), mask=mask)


@triton.jit
def _softmax_backward_kernel(
    dX_ptr,
    Y_ptr,
    dY_ptr,
    n_cols: tl.constexpr,
    READ_AGAIN: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    """
    dx = exp(x - max(x)) / sum(exp(x - max(x))) * (dy - sum(dy * exp(x - max(x)) / sum(exp(x - max(x)))))
    """
    row_idx = tl.program_id(0).to(tl.int64)
    col_offsets = tl.arange(0, BLOCK_SIZE)
    mask = col_offsets < n_cols
    first_read: tl.constexpr = "evict_last" if READ_AGAIN else ""

    dy = tl.load(
        dY_ptr + row_idx * n_cols + col_offsets, mask=mask, other=0.0, eviction_policy=first_read
    ).to(tl.float32)
    y = tl.load(Y_ptr + row_idx * n_cols + col_offsets, mask=mask, other=0.0, eviction_policy=first_read).to(tl.float32)
    dot = tl.sum(dy * y, axis=0)
    if READ_AGAIN:
        # Read again, from the cache: kept across the sum, they take more registers than there are
        dy = tl.load(
            dY_ptr + row_idx * n_cols + col_offsets, mask=mask, other=0.0, eviction_policy="evict_first"
        ).to(tl.float32)
        y = tl.load(
            Y_ptr + row_idx * n_cols + col_offsets, mask=mask, other=0.0, eviction_policy="evict_first"
        ).to(tl.float32)
    tl.store(dX_ptr + row_idx * n_cols + col_offsets, y * (dy - dot), mask=mask)


def softmax_forward(X):
    X = X.contiguous()
    Y = torch.empty_like(X)
    n_cols = X.shape[-1]
    n_rows = X.shape[:-1].numel()
    if n_rows * n_cols == 0:
        return Y
    BLOCK_SIZE, num_warps = calculate_settings(n_cols)
    if BLOCK_SIZE <= 16384:
        num_warps = min(num_warps, 8)  # each reduction of a row waits for all of them
    _softmax_forward_kernel[(n_rows,)](
        Y,
        X,
        n_cols=n_cols,
        BLOCK_SIZE=BLOCK_SIZE,
        num_warps=num_warps,
    )
    return Y


def softmax_backward(dY, Y):
    dY = dY.contiguous()
    Y = Y.contiguous()
    dX = torch.empty_like(dY)
    n_cols = Y.shape[-1]
    n_rows = Y.shape[:-1].numel()
    if n_rows * n_cols == 0:
        return dX
    BLOCK_SIZE, num_warps = calculate_settings(n_cols)
    _softmax_backward_kernel[(n_rows,)](
        dX,
        Y,
        dY,
        n_cols=n_cols,
        READ_AGAIN=BLOCK_SIZE >= 16384,
        BLOCK_SIZE=BLOCK_SIZE,
        num_warps=num_warps,
    )
    return dX


class SoftmaxFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, X):
        Y = softmax_forward(X)
        ctx.save_for_backward(Y)
        return Y

    @staticmethod
    def backward(ctx, dY):
        (Y,) = ctx.saved_tensors
        dX = softmax_backward(dY, Y)
        return dX
