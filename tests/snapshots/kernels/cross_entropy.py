import torch
import triton
import triton.language as tl

LOWEST = tl.constexpr(-3.4028234663852886e+38)  # the lowest fp32: like -inf, but LOWEST - LOWEST is 0
LOG2_E = tl.constexpr(1.4426950408889634)  # 1 / log(2): exp(x) = exp2(x * LOG2_E)


def pipeline_stages(n_cols, *element_sizes):
    # Two rows, or blocks of one, wait in shared memory while one is computed: NVIDIA GPUs have 96 KiB of it
    row_bytes = n_cols * sum(element_sizes)
    return 3 if torch.version.hip is None and 2 * row_bytes <= 98304 else 1


@triton.jit
def _cross_entropy_forward_kernel(
    row_max_ptr,
    log_sum_ptr,
    dX_ptr,
    total_ptr,
    X_ptr,
    target_ptr,
    count_ptr,
    n_cols: tl.constexpr,
    HAS_GRADIENTS: tl.constexpr,
    NUM_STAGES: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    """
    L = mean over tokens ≠ ignore_index of (logsumexp(x) - x_t)
    """
    row_idx = tl.program_id(0).to(tl.int64)

    target = tl.load(target_ptr + row_idx)
    count = tl.load(count_ptr).to(tl.float32)
    x_target = tl.load(
        X_ptr + row_idx * n_cols + target, mask=(target >= 0) & (target < n_cols), other=0.0
    ).to(tl.float32)
    inside = target != -100
    negated = -(1.0 / count)
    # The row is read again below, from its end, which is still in the L2 cache then.
    max_x = tl.full((), LOWEST, dtype=tl.float32)
    total_acc = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
    for start in tl.range(0, n_cols, BLOCK_SIZE, num_stages=NUM_STAGES):
        col_offsets = start + tl.arange(0, BLOCK_SIZE)
        mask = col_offsets < n_cols
        x = tl.load(
            X_ptr + row_idx * n_cols + col_offsets, mask=mask, other=-float("inf"), eviction_policy="evict_last"
        ).to(tl.float32)
        max_x_new = tl.maximum(max_x, tl.max(x, axis=0))
        total_acc = total_acc * tl.exp2((max_x - max_x_new) * LOG2_E) + tl.exp2((x - max_x_new) * LOG2_E)
        max_x = max_x_new
    total = tl.sum(total_acc, axis=0)

    log_total = tl.log(total)
    if HAS_GRADIENTS:
        for done in range(0, n_cols, BLOCK_SIZE):
            start = (n_cols - 1) // BLOCK_SIZE * BLOCK_SIZE - done
            col_offsets = start + tl.arange(0, BLOCK_SIZE)
            mask = col_offsets < n_cols
            x = tl.load(
                X_ptr + row_idx * n_cols + col_offsets, mask=mask, other=-float("inf"), eviction_policy="evict_first"
            ).to(tl.float32)
            difference = x - max_x
            scaled = tl.where(inside, negated, 0.0) * tl.exp2((difference - log_total) * LOG2_E)
            difference_2 = tl.where((col_offsets == target) & inside, negated, 0.0) - scaled
            tl.store(dX_ptr + row_idx * n_cols + col_offsets, difference_2, mask=mask, eviction_policy="evict_first")

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
    n_cols: tl.constexpr,
    HAS_GRADIENTS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    """
    row_max = max(x)
    log_sum = log(sum(exp(x - row_max)))
    count = sum((target != -100))
    dx = (-(dy / count) if (column == target) & (target != -100) else 0) - (-(dy / count) if target != -100 else
        0) * exp(x - row_max - log_sum)
    """
    # The forward has written the gradient for an incoming gradient of 1.
    if HAS_GRADIENTS:
        if tl.load(dY_ptr).to(tl.float32) == 1.0:
            return

    row_idx = tl.program_id(0).to(tl.int64)

    target = tl.load(target_ptr + row_idx)
    dy = tl.load(dY_ptr).to(tl.float32)
    count = tl.load(count_ptr).to(tl.float32)
    row_max = tl.load(row_max_ptr + row_idx).to(tl.float32)
    log_sum = tl.load(log_sum_ptr + row_idx).to(tl.float32)
    inside = target != -100
    negated = -(dy / count)
    for start in range(0, n_cols, BLOCK_SIZE):
        col_offsets = start + tl.arange(0, BLOCK_SIZE)
        mask = col_offsets < n_cols
        x = tl.load(X_ptr + row_idx * n_cols + col_offsets, mask=mask, other=0.0).to(tl.float32)
        scaled = tl.where(inside, negated, 0.0) * tl.exp2((x - row_max - log_sum) * LOG2_E)
        difference = tl.where((col_offsets == target) & inside, negated, 0.0) - scaled
        tl.store(dX_ptr + row_idx * n_cols + col_offsets, difference, mask=mask)


@triton.jit
def _sum_parts_kernel(
    total_ptr,
    part_ptr,
    n_parts,
    n_cols,
    BLOCK_PARTS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    """
    total = sum of the parts, for each of several sums
    """
    sum_idx = tl.program_id(1).to(tl.int64)
    part_ptr += sum_idx * n_parts * n_cols
    total_ptr += sum_idx * n_cols
    col_offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)[None, :]
    acc = tl.zeros((BLOCK_PARTS, BLOCK_SIZE), dtype=tl.float32)
    for start in range(0, n_parts, BLOCK_PARTS):
        part_idx = start + tl.arange(0, BLOCK_PARTS).to(tl.int64)[:, None]
        mask = (part_idx < n_parts) & (col_offsets < n_cols)
        acc += tl.load(part_ptr + part_idx * n_cols + col_offsets, mask=mask, other=0.0)
    total = tl.sum(acc, axis=0, keep_dims=True)
    tl.store(total_ptr + col_offsets, total, mask=col_offsets < n_cols)


def sum_parts(parts, dtype, dim=0):
    # Sums over dim and a cast in one launch, always in the same order
    total = torch.empty(parts.shape[:dim] + parts.shape[dim + 1 :], dtype=dtype, device=parts.device)
    n_sums, n_cols = parts.shape[:dim].numel(), parts.shape[dim + 1 :].numel()
    BLOCK_PARTS = 8192 if n_cols == 1 else min(128, triton.next_power_of_2(max(parts.shape[dim], 1)))
    BLOCK_SIZE, num_warps = (1, 16) if n_cols == 1 else (2048 // BLOCK_PARTS, 8)
    if n_cols > 0:
        _sum_parts_kernel[(triton.cdiv(n_cols, BLOCK_SIZE), n_sums)](
            total,
            parts,
            parts.shape[dim],
            n_cols,
            BLOCK_PARTS=BLOCK_PARTS,
            BLOCK_SIZE=BLOCK_SIZE,
            num_warps=num_warps,
        )
    return total


def cross_entropy_forward(X, target, has_gradients):
    X = X.contiguous()
    target = target.contiguous()
    count = (target != -100).float().sum()
    n_cols = X.shape[-1]
    n_rows = target.numel()
    row_max = torch.empty((n_rows,), dtype=torch.float32, device=X.device)
    log_sum = torch.empty((n_rows,), dtype=torch.float32, device=X.device)
    dX = torch.empty_like(X) if has_gradients else None
    _total = torch.empty((n_rows,), dtype=torch.float32, device=X.device)
    if n_rows * n_cols > 0:
        BLOCK_SIZE, num_warps = (8192, 16 if n_cols > 32768 else 8) if has_gradients else (4096, 4)
        BLOCK_SIZE = min(triton.next_power_of_2(n_cols), BLOCK_SIZE)
        _cross_entropy_forward_kernel[(n_rows,)](
            row_max,
            log_sum,
            dX,
            _total,
            X,
            target,
            count,
            n_cols=n_cols,
            HAS_GRADIENTS=has_gradients,
            NUM_STAGES=1 if has_gradients and n_cols <= 32768 else pipeline_stages(BLOCK_SIZE, X.element_size()),
            BLOCK_SIZE=BLOCK_SIZE,
            num_warps=num_warps,
        )
    total = sum_parts(_total, torch.float32)
    # a copy: torch.compile loses the gradient of a result that is an intermediate too
    Y = (total / count).to(X.dtype, copy=True)
    return Y, dX, count, row_max, log_sum


def cross_entropy_backward(dY, X, target, row_max, log_sum, count, dX=None):
    dY = dY.contiguous()
    X = X.contiguous()
    target = target.contiguous()
    row_max = row_max.contiguous()
    log_sum = log_sum.contiguous()
    count = count.contiguous()
    has_gradients = dX is not None
    if not has_gradients:
        dX = torch.empty_like(X)
    n_cols = X.shape[-1]
    n_rows = X.shape[:-1].numel()
    if n_rows * n_cols == 0:
        return dX
    BLOCK_SIZE, num_warps = min(triton.next_power_of_2(n_cols), 2048), 4
    _cross_entropy_backward_kernel[(n_rows,)](
        dX,
        X,
        target,
        row_max,
        log_sum,
        count,
        dY,
        n_cols=n_cols,
        HAS_GRADIENTS=has_gradients,
        BLOCK_SIZE=BLOCK_SIZE,
        num_warps=num_warps,
    )
    return dX


class CrossEntropyFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, X, target):
        # A compiled graph would copy the gradient before its backward may write to it.
        has_gradients = any(ctx.needs_input_grad) and not torch.compiler.is_compiling()
        Y, dX, count, row_max, log_sum = cross_entropy_forward(X, target, has_gradients)
        ctx.save_for_backward(X, target, row_max, log_sum, count)
        ctx.dX = dX
        return Y

    @staticmethod
    def backward(ctx, dY):
        X, target, row_max, log_sum, count = ctx.saved_tensors
        dX = ctx.dX
        ctx.dX = None  # a second backward computes anew
        dX = cross_entropy_backward(dY, X, target, row_max, log_sum, count, dX)
        return dX, None
