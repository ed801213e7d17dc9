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
def _cross_entropy_none_forward_kernel(
    Y_ptr,
    row_max_ptr,
    stat_1_ptr,
    X_ptr,
    target_ptr,
    n_cols: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    """
    Lᵢ = logsumexp(xᵢ) - xᵢ_t, one per token
    """
    row_idx = tl.program_id(0).to(tl.int64)
    col_offsets = tl.arange(0, BLOCK_SIZE)
    mask = col_offsets < n_cols

    x = tl.load(X_ptr + row_idx * n_cols + col_offsets, mask=mask, other=-float("inf")).to(tl.float32)
    target = tl.load(target_ptr + row_idx)
    max_x = tl.max(x, axis=0)
    total = tl.sum(tl.exp(x - max_x), axis=0)
    log_total = tl.log(total)
    x_target = tl.load(X_ptr + row_idx * n_cols + target, mask=(target >= 0) & (target < n_cols), other=0.0).to(tl.float32)
    tl.store(Y_ptr + row_idx, tl.where(target == -100, 0.0, -(x_target - max_x - log_total)))
    tl.store(row_max_ptr + row_idx, max_x)
    tl.store(stat_1_ptr + row_idx, log_total)


@triton.jit
def _cross_entropy_none_backward_kernel(
    dX_ptr,
    X_ptr,
    target_ptr,
    row_max_ptr,
    stat_1_ptr,
    dY_ptr,
    n_cols: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    """
    dx = (-dy if (column == target) & (target != -100) else 0) - sum((-dy if (column == target) & (target != -100)
        else 0)) * exp(x - max(x) - log(sum(exp(x - max(x)))))
    """
    row_idx = tl.program_id(0).to(tl.int64)
    col_offsets = tl.arange(0, BLOCK_SIZE)
    mask = col_offsets < n_cols

    x = tl.load(X_ptr + row_idx * n_cols + col_offsets, mask=mask, other=0.0).to(tl.float32)
    target = tl.load(target_ptr + row_idx)
    row_max = tl.load(row_max_ptr + row_idx).to(tl.float32)
    stat_1 = tl.load(stat_1_ptr + row_idx).to(tl.float32)
    dy = tl.load(dY_ptr + row_idx).to(tl.float32)
    selected = tl.where((col_offsets == target) & (target != -100), -dy, 0.0)
    total_selected = tl.sum(tl.where(mask, selected, 0.0), axis=0)
    tl.store(dX_ptr + row_idx * n_cols + col_offsets, selected - total_selected * tl.exp(x - row_max - stat_1), mask=mask)


def cross_entropy_none_forward(X, target):
    X = X.contiguous()
    target = target.contiguous()
    n_cols = X.shape[-1]
    n_rows = X.shape[:-1].numel()
    Y = torch.empty((n_rows,), dtype=X.dtype, device=X.device)
    row_max = torch.empty((n_rows,), dtype=torch.float32, device=X.device)
    stat_1 = torch.empty((n_rows,), dtype=torch.float32, device=X.device)
    if n_rows * n_cols == 0:
        return Y, row_max, stat_1
    BLOCK_SIZE, num_warps = calculate_settings(n_cols)
    _cross_entropy_none_forward_kernel[(n_rows,)](
        Y,
        row_max,
        stat_1,
        X,
        target,
        n_cols=n_cols,
        BLOCK_SIZE=BLOCK_SIZE,
        num_warps=num_warps,
    )
    return Y, row_max, stat_1


def cross_entropy_none_backward(dY, X, target, row_max, stat_1):
    dY = dY.contiguous()
    X = X.contiguous()
    target = target.contiguous()
    row_max = row_max.contiguous()
    stat_1 = stat_1.contiguous()
    dX = torch.empty_like(X)
    n_cols = X.shape[-1]
    n_rows = X.shape[:-1].numel()
    if n_rows * n_cols == 0:
        return dX
    BLOCK_SIZE, num_warps = calculate_settings(n_cols)
    _cross_entropy_none_backward_kernel[(n_rows,)](
        dX,
        X,
        target,
        row_max,
        stat_1,
        dY,
        n_cols=n_cols,
        BLOCK_SIZE=BLOCK_SIZE,
        num_warps=num_warps,
    )
    return dX


class CrossEntropyNoneFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, X, target):
        Y, row_max, stat_1 = cross_entropy_none_forward(X, target)
        ctx.save_for_backward(X, target, row_max, stat_1)
        return Y

    @staticmethod
    def backward(ctx, dY):
        X, target, row_max, stat_1 = ctx.saved_tensors
        dX = cross_entropy_none_backward(dY, X, target, row_max, stat_1)
        return dX, None
