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


def pipeline_stages(n_cols, *element_sizes):
    # Two rows, or blocks of one, wait in shared memory while one is computed: NVIDIA GPUs have 96 KiB of it
    row_bytes = n_cols * sum(element_sizes)
    return 3 if torch.version.hip is None and 2 * row_bytes <= 98304 else 1


@triton.jit
def _group_norm_forward_kernel(
    Y_ptr,
    stat_0_ptr,
    rstd_ptr,
    X_ptr,
    weight_ptr,
    bias_ptr,
    eps,
    num_groups,
    channels_space,
    n_channels_outer,
    n_cols: tl.constexpr,
    n_channels_inner: tl.constexpr,
    n_space: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    """
    y = w · (x - mean_g) / √(var_g + ε) + b, statistics per group of channels
    """
    eps = tl.cast(eps, tl.float32)
    channels_space = tl.cast(channels_space, tl.float32)
    row_idx = tl.program_id(0).to(tl.int64)
    col_offsets = tl.arange(0, BLOCK_SIZE).to(tl.int64)
    mask = col_offsets < n_cols

    x = tl.load(X_ptr + row_idx * n_cols + col_offsets, mask=mask, other=0.0).to(tl.float32)
    total_x = tl.sum(x, axis=0)
    quotient = num_groups * total_x / channels_space
    difference = x - quotient
    total_difference_sq = tl.sum(tl.where(mask, difference * difference, 0.0), axis=0)
    weight = tl.load(
        weight_ptr + (row_idx % n_channels_outer) * n_channels_inner + (col_offsets // n_space), mask=mask, other=0.0
    ).to(tl.float32)
    bias = tl.load(
        bias_ptr + (row_idx % n_channels_outer) * n_channels_inner + (col_offsets // n_space), mask=mask, other=0.0
    ).to(tl.float32)
    rstd = tl.rsqrt(num_groups * total_difference_sq / channels_space + eps)
    tl.store(Y_ptr + row_idx * n_cols + col_offsets, rstd * difference * weight + bias, mask=mask)
    tl.store(stat_0_ptr + row_idx, quotient)
    tl.store(rstd_ptr + row_idx, rstd)


@triton.jit
def _group_norm_backward_stage_1_kernel(
    dX_ptr,
    X_ptr,
    weight_ptr,
    stat_0_ptr,
    rstd_ptr,
    dY_ptr,
    num_groups,
    channels_space,
    n_channels_outer,
    n_cols: tl.constexpr,
    n_channels_inner: tl.constexpr,
    n_space: tl.constexpr,
    READ_AGAIN: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    """
    Stage 1 of 2: dx
    """
    channels_space = tl.cast(channels_space, tl.float32)
    row_idx = tl.program_id(0).to(tl.int64)
    col_offsets = tl.arange(0, BLOCK_SIZE).to(tl.int64)
    mask = col_offsets < n_cols
    first_read: tl.constexpr = "evict_last" if READ_AGAIN else ""

    rstd = tl.load(rstd_ptr + row_idx).to(tl.float32)
    stat_0 = tl.load(stat_0_ptr + row_idx).to(tl.float32)
    dy = tl.load(
        dY_ptr + row_idx * n_cols + col_offsets, mask=mask, other=0.0, eviction_policy=first_read
    ).to(tl.float32)
    weight = tl.load(
        weight_ptr + (row_idx % n_channels_outer) * n_channels_inner + (col_offsets // n_space),
        mask=mask,
        other=0.0,
        eviction_policy=first_read,
    ).to(tl.float32)
    x = tl.load(X_ptr + row_idx * n_cols + col_offsets, mask=mask, other=0.0, eviction_policy=first_read).to(tl.float32)
    dy_scaled = dy * weight
    scaled = rstd * (x - stat_0)
    dot = tl.sum(dy_scaled * scaled, axis=0)
    dot_2 = tl.sum(dy_scaled, axis=0)
    if READ_AGAIN:
        # Read again, from the cache: kept across the sum, they take more registers than there are
        dy = tl.load(
            dY_ptr + row_idx * n_cols + col_offsets, mask=mask, other=0.0, eviction_policy="evict_first"
        ).to(tl.float32)
        weight = tl.load(
            weight_ptr + (row_idx % n_channels_outer) * n_channels_inner + (col_offsets // n_space),
            mask=mask,
            other=0.0,
            eviction_policy="evict_first",
        ).to(tl.float32)
        x = tl.load(
            X_ptr + row_idx * n_cols + col_offsets, mask=mask, other=0.0, eviction_policy="evict_first"
        ).to(tl.float32)
        dy_scaled = dy * weight
        scaled = rstd * (x - stat_0)
    difference = dy_scaled - num_groups * dot_2 / channels_space - num_groups * dot / channels_space * scaled
    tl.store(dX_ptr + row_idx * n_cols + col_offsets, rstd * difference, mask=mask)


@triton.jit
def _group_norm_backward_kernel(
    dweight_rows_ptr,
    dbias_rows_ptr,
    X_ptr,
    stat_0_ptr,
    rstd_ptr,
    dY_ptr,
    n_channels_inner,
    n_cols: tl.constexpr,
    NUM_STAGES: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    """
    Stage 2 of 2: dweight_rows, dbias_rows
    stat_0 = num_groups * sum(x) / (channels * space)
    rstd = rsqrt(num_groups * sum((x - stat_0)²) / (channels * space) + eps)
    dx = rstd * (dy * weight - num_groups * sum(dy * weight) / (channels * space) - num_groups * sum(dy * weight *
        rstd * (x - stat_0)) / (channels * space) * rstd * (x - stat_0))
    dweight = sum(dy * rstd * (x - stat_0))
    dbias = sum(dy)
    """
    row_idx = tl.program_id(0).to(tl.int64)

    stat_0 = tl.load(stat_0_ptr + (row_idx // n_channels_inner)).to(tl.float32)
    rstd = tl.load(rstd_ptr + (row_idx // n_channels_inner)).to(tl.float32)
    dot_acc = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
    total_dy_acc = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
    for start in tl.range(0, n_cols, BLOCK_SIZE, num_stages=NUM_STAGES):
        col_offsets = start + tl.arange(0, BLOCK_SIZE)
        mask = col_offsets < n_cols
        x = tl.load(X_ptr + row_idx * n_cols + col_offsets, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dY_ptr + row_idx * n_cols + col_offsets, mask=mask, other=0.0).to(tl.float32)
        dot_acc += dy * (rstd * (x - stat_0))
        total_dy_acc += dy
    dot = tl.sum(dot_acc, axis=0)
    total_dy = tl.sum(total_dy_acc, axis=0)

    tl.store(dweight_rows_ptr + row_idx, dot)
    tl.store(dbias_rows_ptr + row_idx, total_dy)


def group_norm_forward(X, weight, bias, num_groups, eps):
    X = X.contiguous()
    weight = weight.contiguous()
    bias = bias.contiguous()
    Y = torch.empty_like(X)
    stat_0 = torch.empty((X.shape[-3], num_groups), dtype=torch.float32, device=X.device)
    rstd = torch.empty((X.shape[-3], num_groups), dtype=torch.float32, device=X.device)
    n_cols = X.shape[-2] * X.shape[-1] // num_groups
    n_rows = X.shape[-3] * num_groups
    if n_rows * n_cols == 0:
        return Y, stat_0, rstd
    n_space = X.shape[-1]
    n_channels_inner = X.shape[-2] // num_groups
    n_channels_outer = num_groups
    BLOCK_SIZE, num_warps = calculate_settings(n_cols)
    if BLOCK_SIZE <= 16384:
        num_warps = min(num_warps, 8)  # each reduction of a row waits for all of them
    _group_norm_forward_kernel[(n_rows,)](
        Y,
        stat_0,
        rstd,
        X,
        weight,
        bias,
        float(eps),
        num_groups,
        float(X.shape[-2] * X.shape[-1]),
        n_channels_outer,
        n_cols=n_cols,
        n_channels_inner=n_channels_inner,
        n_space=n_space,
        BLOCK_SIZE=BLOCK_SIZE,
        num_warps=num_warps,
    )
    return Y, stat_0, rstd


def group_norm_backward(dY, X, weight, bias, stat_0, rstd, num_groups):
    dY = dY.contiguous()
    X = X.contiguous()
    weight = weight.contiguous()
    bias = bias.contiguous()
    stat_0 = stat_0.contiguous()
    rstd = rstd.contiguous()
    n_cols = X.shape[-2] * X.shape[-1] // num_groups
    n_rows = stat_0.numel()
    dX = torch.empty_like(X)
    if n_rows * n_cols > 0:
        n_space = X.shape[-1]
        n_channels_inner = X.shape[-2] // num_groups
        n_channels_outer = stat_0.shape[-1]
        BLOCK_SIZE, num_warps = calculate_settings(n_cols)
        _group_norm_backward_stage_1_kernel[(n_rows,)](
            dX,
            X,
            weight,
            stat_0,
            rstd,
            dY,
            num_groups,
            float(X.shape[-2] * X.shape[-1]),
            n_channels_outer,
            n_cols=n_cols,
            n_channels_inner=n_channels_inner,
            n_space=n_space,
            READ_AGAIN=BLOCK_SIZE >= 16384,
            BLOCK_SIZE=BLOCK_SIZE,
            num_warps=num_warps,
        )
    n_cols = X.shape[-1]
    n_rows = X.shape[:-1].numel()
    dweight_rows = torch.empty(
        (X.shape[-3], stat_0.shape[-1], X.shape[-2] // num_groups), dtype=torch.float32, device=X.device
    )
    dbias_rows = torch.empty(
        (X.shape[-3], stat_0.shape[-1], X.shape[-2] // num_groups), dtype=torch.float32, device=X.device
    )
    if n_rows * n_cols > 0:
        n_channels_inner = X.shape[-2] // num_groups
        BLOCK_SIZE, num_warps = min(triton.next_power_of_2(n_cols), 4096), 4
        _group_norm_backward_kernel[(n_rows,)](
            dweight_rows,
            dbias_rows,
            X,
            stat_0,
            rstd,
            dY,
            n_channels_inner,
            n_cols=n_cols,
            NUM_STAGES=pipeline_stages(BLOCK_SIZE, dY.element_size(), X.element_size()),
            BLOCK_SIZE=BLOCK_SIZE,
            num_warps=num_warps,
        )
    dweight = dweight_rows.sum(dim=0).view((X.shape[-2],)).to(weight.dtype)
    dbias = dbias_rows.sum(dim=0).view((X.shape[-2],)).to(bias.dtype)
    return dX, dweight, dbias


class GroupNormFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, X, weight, bias, num_groups=4, eps=1e-05):
        Y, stat_0, rstd = group_norm_forward(X, weight, bias, num_groups, eps)
        ctx.save_for_backward(X, weight, bias, stat_0, rstd)
        ctx.num_groups = num_groups
        return Y

    @staticmethod
    def backward(ctx, dY):
        X, weight, bias, stat_0, rstd = ctx.saved_tensors
        dX, dweight, dbias = group_norm_backward(dY, X, weight, bias, stat_0, rstd, ctx.num_groups)
        return dX, dweight, dbias, None, None
