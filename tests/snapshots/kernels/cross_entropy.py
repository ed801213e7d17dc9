import torch
import triton
import triton.language as tl

LOWEST = tl.constexpr(-3.4028234663852886e+38)  # the lowest fp32: like -inf, but LOWEST - LOWEST is 0


@triton.jit
def _cross_entropy_forward_kernel(
    row_max_ptr,
    log_sum_ptr,
    total_ptr,
    X_ptr,
    target_ptr,
    n_cols: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    """
    L = mean over tokens ≠ ignore_index of (logsumexp(x) - x_t)
    """
    row_idx = tl.program_id(0).to(tl.int64)

    target = tl.load(target_ptr + row_idx)
    x_target = tl.load(
        X_ptr + row_idx * n_cols + target, mask=(target >= 0) & (target < n_cols), other=0.0
    ).to(tl.float32)
    max_x_acc = tl.full((BLOCK_SIZE,), LOWEST, dtype=tl.float32)
    total_acc = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK_SIZE):
        col_offsets = start + tl.arange(0, BLOCK_SIZE)
        mask = col_offsets < n_cols
        x = tl.load(X_ptr + row_idx * n_cols + col_offsets, mask=mask, other=-float("inf")).to(tl.float32)
        max_x_new = tl.maximum(max_x_acc, x)
        total_acc = total_acc * tl.exp(max_x_acc - max_x_new) + tl.exp(x - max_x_new)
        max_x_acc = max_x_new
    max_x = tl.max(max_x_acc, axis=0)
    total = tl.sum(total_acc * tl.exp(max_x_acc - max_x), axis=0)

    log_total = tl.log(total)
    tl.store(row_max_ptr + row_idx, max_x)
    tl.store(log_sum_ptr + row_idx, log_total)
    tl.store(total_ptr + tl.program_id(0), tl.where(target == -100, 0.0, -(x_target - max_x - log_total)))


@triton.jit
def _cross_entropy_backward_kernel(
    dX_ptr,
    X_ptr,
    target_ptr,
    row_max_ptr,
    log_sum_ptr,
    count_ptr,
    dY_ptr,
    n_rows,
    n_cols: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    """
    row_max = max(x)
    log_sum = log(sum(exp(x - row_max)))
    count = sum((target != -100))
    dx = (-(dy / count) if (column == target) & (target != -100) else 0) - (-(dy / count) if target != -100 else
        0) * exp(x - row_max - log_sum)
    """
    row_idx = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]
    col_offsets = tl.program_id(1) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)[None, :]
    row_mask = row_idx < n_rows
    col_mask = col_offsets < n_cols
    mask = row_mask & col_mask

    target = tl.load(target_ptr + row_idx, mask=row_mask, other=0)
    dy = tl.load(dY_ptr).to(tl.float32)
    count = tl.load(count_ptr).to(tl.float32)
    row_max = tl.load(row_max_ptr + row_idx, mask=row_mask, other=0.0).to(tl.float32)
    log_sum = tl.load(log_sum_ptr + row_idx, mask=row_mask, other=0.0).to(tl.float32)
    x = tl.load(X_ptr + row_idx * n_cols + col_offsets, mask=mask, other=0.0).to(tl.float32)
    inside = target != -100
    negated = -(dy / count)
    difference = tl.where(
        (col_offsets == target) & inside, negated, 0.0
    ) - tl.where(inside, negated, 0.0) * tl.exp(x - row_max - log_sum)
    tl.store(dX_ptr + row_idx * n_cols + col_offsets, difference, mask=mask)


def cross_entropy_forward(X, target):
    X = X.contiguous()
    target = target.contiguous()
    n_cols = X.shape[-1]
    n_rows = X.shape[:-1].numel()
    row_max = torch.empty((n_rows,), dtype=torch.float32, device=X.device)
    log_sum = torch.empty((n_rows,), dtype=torch.float32, device=X.device)
    _total = torch.empty((n_rows,), dtype=torch.float32, device=X.device)
    if n_rows * n_cols > 0:
        BLOCK_SIZE, num_warps = min(triton.next_power_of_2(n_cols), 2048), 4
        _cross_entropy_forward_kernel[(n_rows,)](
            row_max,
            log_sum,
            _total,
            X,
            target,
            n_cols=n_cols,
            BLOCK_SIZE=BLOCK_SIZE,
            num_warps=num_warps,
        )
    total = _total.sum()
    count = (target != -100).float().sum()
    Y = (total / count).to(X.dtype)
    return Y, row_max, log_sum, count


def cross_entropy_backward(dY, X, target, row_max, log_sum, count):
    dY = dY.contiguous()
    X = X.contiguous()
    target = target.contiguous()
    row_max = row_max.contiguous()
    log_sum = log_sum.contiguous()
    count = count.contiguous()
    dX = torch.empty_like(X)
    n_cols = X.shape[-1]
    n_rows = X.shape[:-1].numel()
    if n_rows * n_cols == 0:
        return dX
    BLOCK_SIZE = min(triton.next_power_of_2(n_cols), 1024)
    BLOCK_ROWS = min(2048 // BLOCK_SIZE, triton.next_power_of_2(n_rows))
    num_warps = 4
    _cross_entropy_backward_kernel[(triton.cdiv(n_rows, BLOCK_ROWS), triton.cdiv(n_cols, BLOCK_SIZE))](
        dX,
        X,
        target,
        row_max,
        log_sum,
        count,
        dY,
        n_rows,
        n_cols=n_cols,
        BLOCK_ROWS=BLOCK_ROWS,
        BLOCK_SIZE=BLOCK_SIZE,
        num_warps=num_warps,
    )
    return dX


class CrossEntropyFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, X, target):
        Y, row_max, log_sum, count = cross_entropy_forward(X, target)
        ctx.save_for_backward(X, target, row_max, log_sum, count)
        return Y

    @staticmethod
    def backward(ctx, dY):
        X, target, row_max, log_sum, count = ctx.saved_tensors
        dX = cross_entropy_backward(dY, X, target, row_max, log_sum, count)
        return dX, None
