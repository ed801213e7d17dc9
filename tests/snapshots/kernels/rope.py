import torch
import triton
import triton.language as tl


@triton.jit
def _rope_forward_kernel(
    Y_ptr,
    X_ptr,
    cos_ptr,
    sin_ptr,
    n_rows,
    n_seq_len,
    n_cols: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    """
    y = x · cos + rotate_half(x) · sin
    """
    row_idx = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]
    col_offsets = tl.program_id(1) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)[None, :]
    row_mask = row_idx < n_rows
    col_mask = col_offsets < n_cols
    mask = row_mask & col_mask

    x_first = tl.load(X_ptr + row_idx * (2 * n_cols) + col_offsets, mask=mask, other=0.0).to(tl.float32)
    x_second = tl.load(X_ptr + row_idx * (2 * n_cols) + n_cols + col_offsets, mask=mask, other=0.0).to(tl.float32)
    cos_first = tl.load(
        cos_ptr + (row_idx % n_seq_len) * (2 * n_cols) + col_offsets, mask=mask, other=0.0
    ).to(tl.float32)
    cos_second = tl.load(
        cos_ptr + (row_idx % n_seq_len) * (2 * n_cols) + n_cols + col_offsets, mask=mask, other=0.0
    ).to(tl.float32)
    sin_first = tl.load(
        sin_ptr + (row_idx % n_seq_len) * (2 * n_cols) + col_offsets, mask=mask, other=0.0
    ).to(tl.float32)
    sin_second = tl.load(
        sin_ptr + (row_idx % n_seq_len) * (2 * n_cols) + n_cols + col_offsets, mask=mask, other=0.0
    ).to(tl.float32)
    tl.store(Y_ptr + row_idx * (2 * n_cols) + col_offsets, x_first * cos_first - x_second * sin_first, mask=mask)
    tl.store(
        Y_ptr + row_idx * (2 * n_cols) + n_cols + col_offsets, x_second * cos_second + x_first * sin_second, mask=mask
    )


@triton.jit
def _rope_backward_kernel(
    dX_ptr,
    cos_ptr,
    sin_ptr,
    dY_ptr,
    n_rows,
    n_seq_len,
    n_cols: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    """
    dx = dy[0] * cos[0] + dy[1] * sin[1], dy[1] * cos[1] - dy[0] * sin[0]
    """
    row_idx = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]
    col_offsets = tl.program_id(1) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)[None, :]
    row_mask = row_idx < n_rows
    col_mask = col_offsets < n_cols
    mask = row_mask & col_mask

    cos_first = tl.load(
        cos_ptr + (row_idx % n_seq_len) * (2 * n_cols) + col_offsets, mask=mask, other=0.0
    ).to(tl.float32)
    cos_second = tl.load(
        cos_ptr + (row_idx % n_seq_len) * (2 * n_cols) + n_cols + col_offsets, mask=mask, other=0.0
    ).to(tl.float32)
    sin_first = tl.load(
        sin_ptr + (row_idx % n_seq_len) * (2 * n_cols) + col_offsets, mask=mask, other=0.0
    ).to(tl.float32)
    sin_second = tl.load(
        sin_ptr + (row_idx % n_seq_len) * (2 * n_cols) + n_cols + col_offsets, mask=mask, other=0.0
    ).to(tl.float32)
    dy_first = tl.load(dY_ptr + row_idx * (2 * n_cols) + col_offsets, mask=mask, other=0.0).to(tl.float32)
    dy_second = tl.load(dY_ptr + row_idx * (2 * n_cols) + n_cols + col_offsets, mask=mask, other=0.0).to(tl.float32)
    tl.store(dX_ptr + row_idx * (2 * n_cols) + col_offsets, dy_first * cos_first + dy_second * sin_second, mask=mask)
    tl.store(
        dX_ptr + row_idx * (2 * n_cols) + n_cols + col_offsets, dy_second * cos_second - dy_first * sin_first, mask=mask
    )


def rope_forward(X, cos, sin):
    X = X.contiguous()
    cos = cos.contiguous()
    sin = sin.contiguous()
    if X.shape[-1] % 2:
        raise ValueError(f"head_dim must be a multiple of 2, and is {X.shape[-1]}")
    Y = torch.empty_like(X)
    n_cols = X.shape[-1] // 2
    n_rows = X.shape[:-1].numel()
    if n_rows * n_cols == 0:
        return Y
    n_seq_len = X.shape[-2]
    BLOCK_SIZE = min(triton.next_power_of_2(n_cols), 1024)
    BLOCK_ROWS = min(2048 // BLOCK_SIZE, triton.next_power_of_2(n_rows))
    num_warps = 4
    _rope_forward_kernel[(triton.cdiv(n_rows, BLOCK_ROWS), triton.cdiv(n_cols, BLOCK_SIZE))](
        Y,
        X,
        cos,
        sin,
        n_rows,
        n_seq_len,
        n_cols=n_cols,
        BLOCK_ROWS=BLOCK_ROWS,
        BLOCK_SIZE=BLOCK_SIZE,
        num_warps=num_warps,
    )
    return Y


def rope_backward(dY, cos, sin):
    dY = dY.contiguous()
    cos = cos.contiguous()
    sin = sin.contiguous()
    dX = torch.empty_like(dY)
    n_cols = cos.shape[-1] // 2
    n_rows = dY.shape[:-1].numel()
    if n_rows * n_cols == 0:
        return dX
    n_seq_len = cos.shape[-2]
    BLOCK_SIZE = min(triton.next_power_of_2(n_cols), 1024)
    BLOCK_ROWS = min(2048 // BLOCK_SIZE, triton.next_power_of_2(n_rows))
    num_warps = 4
    _rope_backward_kernel[(triton.cdiv(n_rows, BLOCK_ROWS), triton.cdiv(n_cols, BLOCK_SIZE))](
        dX,
        cos,
        sin,
        dY,
        n_rows,
        n_seq_len,
        n_cols=n_cols,
        BLOCK_ROWS=BLOCK_ROWS,
        BLOCK_SIZE=BLOCK_SIZE,
        num_warps=num_warps,
    )
    return dX


class RopeFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, X, cos, sin):
        Y = rope_forward(X, cos, sin)
        ctx.save_for_backward(cos, sin)
        return Y

    @staticmethod
    def backward(ctx, dY):
        cos, sin = ctx.saved_tensors
        dX = rope_backward(dY, cos, sin)
        return dX, None, None
