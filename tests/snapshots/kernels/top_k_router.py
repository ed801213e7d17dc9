import torch
import triton
import triton.language as tl


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
def larger(a, b):
    # tl.max drops NaN; torch.amax keeps it
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _top_k_router_forward_kernel(
    y0_ptr,
    y1_ptr,
    row_index_ptr,
    row_index_2_ptr,
    stat_2_ptr,
    stat_3_ptr,
    X_ptr,
    n_cols: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    """
    y = softmax(the k largest of x), with their columns
    """
    row_idx = tl.program_id(0).to(tl.int64)
    col_offsets = tl.arange(0, BLOCK_SIZE)
    mask = col_offsets < n_cols

    x = tl.load(X_ptr + row_idx * n_cols + col_offsets, mask=mask, other=-float("inf")).to(tl.float32)
    max_x = tl.reduce(x, 0, larger)
    argmax_x = tl.argmax(tl.where(x == x, x, float("inf")), axis=0)
    selected = tl.where(col_offsets == argmax_x, float("-inf"), x)
    max_selected = tl.reduce(selected, 0, larger)
    argmax_selected = tl.argmax(tl.where(selected == selected, selected, float("inf")), axis=0)
    upper = tl.maximum(max_x, max_selected, propagate_nan=tl.PropagateNan.ALL)
    exp_difference = tl.exp(max_x - upper)
    exp_difference_2 = tl.exp(max_selected - upper)
    shifted = exp_difference + exp_difference_2
    quotient = exp_difference / shifted
    quotient_2 = exp_difference_2 / shifted
    tl.store(y0_ptr + row_idx * 2, quotient)
    tl.store(y0_ptr + row_idx * 2 + 1, quotient_2)
    tl.store(y1_ptr + row_idx * 2, argmax_x)
    tl.store(y1_ptr + row_idx * 2 + 1, argmax_selected)
    tl.store(row_index_ptr + row_idx, argmax_x)
    tl.store(row_index_2_ptr + row_idx, argmax_selected)
    tl.store(stat_2_ptr + row_idx, quotient)
    tl.store(stat_3_ptr + row_idx, quotient_2)


@triton.jit
def _top_k_router_backward_kernel(
    dX_ptr,
    row_index_ptr,
    row_index_2_ptr,
    stat_2_ptr,
    stat_3_ptr,
    dy0_ptr,
    n_rows,
    n_cols: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    """
    row_index = argmax(x)
    row_index_2 = argmax((-inf if column == row_index else x))
    stat_2 = exp(max(x) - max(max(x), max((-inf if column == row_index else x)))) / (exp(max(x) - max(max(x),
        max((-inf if column == row_index else x)))) + exp(max((-inf if column == row_index else x)) - max(max(x),
        max((-inf if column == row_index else x)))))
    stat_3 = exp(max((-inf if column == row_index else x)) - max(max(x), max((-inf if column == row_index else
        x)))) / (exp(max(x) - max(max(x), max((-inf if column == row_index else x)))) + exp(max((-inf if column ==
        row_index else x)) - max(max(x), max((-inf if column == row_index else x)))))
    dx = (stat_3 * (dy0[1] - (dy0[0] * stat_2 + dy0[1] * stat_3)) if column == row_index_2 else (stat_2 * (dy0[0]
        - (dy0[0] * stat_2 + dy0[1] * stat_3)) if column == row_index else 0))
    """
    row_idx = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]
    col_offsets = tl.program_id(1) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)[None, :]
    row_mask = row_idx < n_rows
    col_mask = col_offsets < n_cols
    mask = row_mask & col_mask

    dy0_first = tl.load(dy0_ptr + row_idx * 2, mask=row_mask, other=0.0).to(tl.float32)
    stat_2 = tl.load(stat_2_ptr + row_idx, mask=row_mask, other=0.0).to(tl.float32)
    dy0_second = tl.load(dy0_ptr + row_idx * 2 + 1, mask=row_mask, other=0.0).to(tl.float32)
    stat_3 = tl.load(stat_3_ptr + row_idx, mask=row_mask, other=0.0).to(tl.float32)
    row_index = tl.load(row_index_ptr + row_idx, mask=row_mask, other=0)
    row_index_2 = tl.load(row_index_2_ptr + row_idx, mask=row_mask, other=0)
    shifted = dy0_first * stat_2 + dy0_second * stat_3
    selected = tl.where(col_offsets == row_index, stat_2 * (dy0_first - shifted), 0.0)
    selected_2 = tl.where(col_offsets == row_index_2, stat_3 * (dy0_second - shifted), selected)
    tl.store(dX_ptr + row_idx * n_cols + col_offsets, selected_2, mask=mask)


def top_k_router_forward(X):
    X = X.contiguous()
    y0 = torch.empty((*X.shape[:-1], 2), dtype=X.dtype, device=X.device)
    y1 = torch.empty((*X.shape[:-1], 2), dtype=torch.int64, device=X.device)
    row_index = torch.empty(X.shape[:-1], dtype=torch.int64, device=X.device)
    row_index_2 = torch.empty(X.shape[:-1], dtype=torch.int64, device=X.device)
    stat_2 = torch.empty(X.shape[:-1], dtype=torch.float32, device=X.device)
    stat_3 = torch.empty(X.shape[:-1], dtype=torch.float32, device=X.device)
    n_cols = X.shape[-1]
    n_rows = X.shape[:-1].numel()
    if n_rows * n_cols == 0:
        return y0, y1, row_index, row_index_2, stat_2, stat_3
    BLOCK_SIZE, num_warps = calculate_settings(n_cols)
    if BLOCK_SIZE <= 16384:
        num_warps = min(num_warps, 4 if BLOCK_SIZE <= 4096 else 8)  # each reduction of a row waits for all of them
    _top_k_router_forward_kernel[(n_rows,)](
        y0,
        y1,
        row_index,
        row_index_2,
        stat_2,
        stat_3,
        X,
        n_cols=n_cols,
        BLOCK_SIZE=BLOCK_SIZE,
        num_warps=num_warps,
    )
    return y0, y1, row_index, row_index_2, stat_2, stat_3


def top_k_router_backward(dy0, X, row_index, row_index_2, stat_2, stat_3):
    dy0 = dy0.contiguous()
    X = X.contiguous()
    row_index = row_index.contiguous()
    row_index_2 = row_index_2.contiguous()
    stat_2 = stat_2.contiguous()
    stat_3 = stat_3.contiguous()
    dX = torch.empty_like(X)
    n_cols = X.shape[-1]
    n_rows = row_index.numel()
    if n_rows * n_cols == 0:
        return dX
    BLOCK_SIZE = min(triton.next_power_of_2(n_cols), 1024)
    BLOCK_ROWS = min(4096 // BLOCK_SIZE, triton.next_power_of_2(n_rows))
    num_warps = 4
    _top_k_router_backward_kernel[(triton.cdiv(n_rows, BLOCK_ROWS), triton.cdiv(n_cols, BLOCK_SIZE))](
        dX,
        row_index,
        row_index_2,
        stat_2,
        stat_3,
        dy0,
        n_rows,
        n_cols=n_cols,
        BLOCK_ROWS=BLOCK_ROWS,
        BLOCK_SIZE=BLOCK_SIZE,
        num_warps=num_warps,
    )
    return dX


class TopKRouterFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, X):
        y0, y1, row_index, row_index_2, stat_2, stat_3 = top_k_router_forward(X)
        ctx.save_for_backward(X, row_index, row_index_2, stat_2, stat_3)
        ctx.mark_non_differentiable(y1)
        return y0, y1

    @staticmethod
    def backward(ctx, dy0, _dy1):
        X, row_index, row_index_2, stat_2, stat_3 = ctx.saved_tensors
        dX = top_k_router_backward(dy0, X, row_index, row_index_2, stat_2, stat_3)
        return dX
