import torch
import triton
import triton.language as tl


@triton.jit
def _swiglu_packed_forward_kernel(
    Y_ptr,
    X_ptr,
    n_rows,
    n_cols: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    """
    y = silu(a) · b, (a, b) the halves of x
    """
    row_idx = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]
    col_offsets = tl.program_id(1) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)[None, :]
    row_mask = row_idx < n_rows
    col_mask = col_offsets < n_cols
    mask = row_mask & col_mask

    x_first = tl.load(X_ptr + row_idx * (2 * n_cols) + col_offsets, mask=mask, other=0.0).to(tl.float32)
    x_second = tl.load(X_ptr + row_idx * (2 * n_cols) + n_cols + col_offsets, mask=mask, other=0.0).to(tl.float32)
    tl.store(Y_ptr + row_idx * n_cols + col_offsets, x_first * tl.sigmoid(x_first) * x_second, mask=mask)


@triton.jit
def _swiglu_packed_backward_kernel(
    dX_ptr,
    X_ptr,
    dY_ptr,
    n_rows,
    n_cols: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    """
    dx = dy * x[1] * sigmoid(x[0]) * (x[0] * (1 - sigmoid(x[0])) + 1), dy * x[0] * sigmoid(x[0])
    """
    row_idx = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]
    col_offsets = tl.program_id(1) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)[None, :]
    row_mask = row_idx < n_rows
    col_mask = col_offsets < n_cols
    mask = row_mask & col_mask

    x_first = tl.load(X_ptr + row_idx * (2 * n_cols) + col_offsets, mask=mask, other=0.0).to(tl.float32)
    x_second = tl.load(X_ptr + row_idx * (2 * n_cols) + n_cols + col_offsets, mask=mask, other=0.0).to(tl.float32)
    dy = tl.load(dY_ptr + row_idx * n_cols + col_offsets, mask=mask, other=0.0).to(tl.float32)
    sig_x_first = tl.sigmoid(x_first)
    tl.store(
        dX_ptr + row_idx * (2 * n_cols) + col_offsets,
        dy * x_second * sig_x_first * (x_first * (1 - sig_x_first) + 1),
        mask=mask,
    )
    tl.store(dX_ptr + row_idx * (2 * n_cols) + n_cols + col_offsets, dy * (x_first * sig_x_first), mask=mask)


def swiglu_packed_forward(X):
    X = X.contiguous()
    if X.shape[-1] % 2:
        raise ValueError(f"n_cols must be a multiple of 2, and is {X.shape[-1]}")
    n_cols = X.shape[-1] // 2
    n_rows = X.shape[:-1].numel()
    Y = torch.empty((*X.shape[:-1], n_cols), dtype=X.dtype, device=X.device)
    if n_rows * n_cols == 0:
        return Y
    BLOCK_SIZE = min(triton.next_power_of_2(n_cols), 1024)
    BLOCK_ROWS = min(4096 // BLOCK_SIZE, triton.next_power_of_2(n_rows))
    num_warps = 4
    _swiglu_packed_forward_kernel[(triton.cdiv(n_rows, BLOCK_ROWS), triton.cdiv(n_cols, BLOCK_SIZE))](
        Y,
        X,
        n_rows,
        n_cols=n_cols,
        BLOCK_ROWS=BLOCK_ROWS,
        BLOCK_SIZE=BLOCK_SIZE,
        num_warps=num_warps,
    )
    return Y


def swiglu_packed_backward(dY, X):
    dY = dY.contiguous()
    X = X.contiguous()
    dX = torch.empty_like(X)
    n_cols = dY.shape[-1]
    n_rows = X.shape[:-1].numel()
    if n_rows * n_cols == 0:
        return dX
    BLOCK_SIZE = min(triton.next_power_of_2(n_cols), 1024)
    BLOCK_ROWS = min(2048 // BLOCK_SIZE, triton.next_power_of_2(n_rows))
    num_warps = 4
    _swiglu_packed_backward_kernel[(triton.cdiv(n_rows, BLOCK_ROWS), triton.cdiv(n_cols, BLOCK_SIZE))](
        dX,
        X,
        dY,
        n_rows,
        n_cols=n_cols,
        BLOCK_ROWS=BLOCK_ROWS,
        BLOCK_SIZE=BLOCK_SIZE,
        num_warps=num_warps,
    )
    return dX


class SwigluPackedFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, X):
        Y = swiglu_packed_forward(X)
        ctx.save_for_backward(X)
        return Y

    @staticmethod
    def backward(ctx, dY):
        (X,) = ctx.saved_tensors
        dX = swiglu_packed_backward(dY, X)
        return dX
