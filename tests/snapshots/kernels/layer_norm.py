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


def get_sm_count(device):
    # Programs that share the rows. Elsewhere (Triton's interpreter on a CPU) a few, so that partial sums are exercised.
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).multi_processor_count
    if device.type == "xpu":
        return torch.xpu.get_device_properties(device).gpu_eu_count
    return 4


def pipeline_stages(n_cols, *element_sizes):
    # Two rows, or blocks of one, wait in shared memory while one is computed: NVIDIA GPUs have 96 KiB of it
    row_bytes = n_cols * sum(element_sizes)
    return 3 if torch.version.hip is None and 2 * row_bytes <= 98304 else 1


@triton.jit
def _layer_norm_forward_kernel(
    Y_ptr,
    mean_ptr,
    rstd_ptr,
    X_ptr,
    weight_ptr,
    bias_ptr,
    eps,
    n_cols: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    """
    y = w · (x - mean) / √(var + ε) + b
    """
    eps = tl.cast(eps, tl.float32)
    row_idx = tl.program_id(0).to(tl.int64)
    col_offsets = tl.arange(0, BLOCK_SIZE)
    mask = col_offsets < n_cols

    x = tl.load(X_ptr + row_idx * n_cols + col_offsets, mask=mask, other=0.0).to(tl.float32)
    total_x = tl.sum(x, axis=0)
    mean_x = total_x / n_cols
    x_centered = x - mean_x
    total_x_centered_sq = tl.sum(tl.where(mask, x_centered * x_centered, 0.0), axis=0)
    weight = tl.load(weight_ptr + col_offsets, mask=mask, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + col_offsets, mask=mask, other=0.0).to(tl.float32)
    rstd = tl.rsqrt(total_x_centered_sq / n_cols + eps)
    tl.store(Y_ptr + row_idx * n_cols + col_offsets, weight * (rstd * x_centered) + bias, mask=mask)
    tl.store(mean_ptr + row_idx, mean_x)
    tl.store(rstd_ptr + row_idx, rstd)


@triton.jit
def _layer_norm_backward_kernel(
    dX_ptr,
    dweight_ptr,
    dbias_ptr,
    X_ptr,
    weight_ptr,
    mean_ptr,
    rstd_ptr,
    dY_ptr,
    n_rows,
    rows_per_program,
    n_cols: tl.constexpr,
    READ_AGAIN: tl.constexpr,
    NUM_STAGES: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    """
    mean = sum(x) / n_cols
    rstd = rsqrt(sum((x - mean)²) / n_cols + eps)
    dx = rstd * (weight * dy - sum(weight * dy) / n_cols - sum(weight * dy * rstd * (x - mean)) / n_cols * rstd *
        (x - mean))
    dweight = sum(dy * rstd * (x - mean))
    dbias = sum(dy)
    """
    row_start = tl.program_id(0).to(tl.int64) * rows_per_program
    row_end = tl.minimum(row_start + rows_per_program, n_rows)
    col_offsets = tl.arange(0, BLOCK_SIZE)
    mask = col_offsets < n_cols
    first_read: tl.constexpr = "evict_last" if READ_AGAIN else ""

    weight = tl.load(weight_ptr + col_offsets, mask=mask, other=0.0).to(tl.float32)
    dweight_acc = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
    dbias_acc = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
    for row_idx in tl.range(row_start, row_end, num_stages=NUM_STAGES):
        rstd = tl.load(rstd_ptr + row_idx).to(tl.float32)
        mean = tl.load(mean_ptr + row_idx).to(tl.float32)
        dy = tl.load(
            dY_ptr + row_idx * n_cols + col_offsets, mask=mask, other=0.0, eviction_policy=first_read
        ).to(tl.float32)
        x = tl.load(
            X_ptr + row_idx * n_cols + col_offsets, mask=mask, other=0.0, eviction_policy=first_read
        ).to(tl.float32)
        dy_scaled = weight * dy
        scaled = rstd * (x - mean)
        dot = tl.sum(dy_scaled * scaled, axis=0)
        dot_2 = tl.sum(dy_scaled, axis=0)
        if READ_AGAIN:
            # Read again, from the cache: kept across the sum, they take more registers than there are
            dy = tl.load(
                dY_ptr + row_idx * n_cols + col_offsets, mask=mask, other=0.0, eviction_policy="evict_first"
            ).to(tl.float32)
            x = tl.load(
                X_ptr + row_idx * n_cols + col_offsets, mask=mask, other=0.0, eviction_policy="evict_first"
            ).to(tl.float32)
            dy_scaled = weight * dy
            scaled = rstd * (x - mean)
        tl.store(
            dX_ptr + row_idx * n_cols + col_offsets,
            rstd * (dy_scaled - dot_2 / n_cols - dot / n_cols * scaled),
            mask=mask,
        )
        dweight_acc += dy * scaled
        dbias_acc += dy

    tl.store(dweight_ptr + tl.program_id(0).to(tl.int64) * n_cols + col_offsets, dweight_acc, mask=mask)
    tl.store(dbias_ptr + tl.program_id(0).to(tl.int64) * n_cols + col_offsets, dbias_acc, mask=mask)


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


def layer_norm_forward(X, weight, bias, eps):
    X = X.contiguous()
    weight = weight.contiguous()
    bias = bias.contiguous()
    Y = torch.empty_like(X)
    mean = torch.empty(X.shape[:-1], dtype=torch.float32, device=X.device)
    rstd = torch.empty(X.shape[:-1], dtype=torch.float32, device=X.device)
    n_cols = X.shape[-1]
    n_rows = X.shape[:-1].numel()
    if n_rows * n_cols == 0:
        return Y, mean, rstd
    BLOCK_SIZE, num_warps = calculate_settings(n_cols)
    if BLOCK_SIZE <= 16384:
        num_warps = min(num_warps, 8)  # each reduction of a row waits for all of them
    _layer_norm_forward_kernel[(n_rows,)](
        Y,
        mean,
        rstd,
        X,
        weight,
        bias,
        float(eps),
        n_cols=n_cols,
        BLOCK_SIZE=BLOCK_SIZE,
        num_warps=num_warps,
    )
    return Y, mean, rstd


def layer_norm_backward(dY, X, weight, bias, mean, rstd):
    dY = dY.contiguous()
    X = X.contiguous()
    weight = weight.contiguous()
    bias = bias.contiguous()
    mean = mean.contiguous()
    rstd = rstd.contiguous()
    n_cols = X.shape[-1]
    n_rows = X.shape[:-1].numel()
    n_programs = min(max(1, 8192 // max(n_cols, 1)) * get_sm_count(X.device), n_rows)
    dX = torch.empty_like(X)
    _parts = torch.empty((2, n_programs, n_cols), dtype=torch.float32, device=X.device)
    _dweight, _dbias = _parts
    if n_rows * n_cols > 0:
        BLOCK_SIZE, num_warps = calculate_settings(n_cols)
        rows_per_program = triton.cdiv(n_rows, n_programs)
        _layer_norm_backward_kernel[(n_programs,)](
            dX,
            _dweight,
            _dbias,
            X,
            weight,
            mean,
            rstd,
            dY,
            n_rows,
            rows_per_program,
            n_cols=n_cols,
            READ_AGAIN=BLOCK_SIZE >= 16384,
            NUM_STAGES=1 if BLOCK_SIZE >= 16384 else pipeline_stages(BLOCK_SIZE, X.element_size(), dY.element_size()),
            BLOCK_SIZE=BLOCK_SIZE,
            num_warps=num_warps,
        )
    dweight, dbias = sum_parts(_parts, weight.dtype if weight.dtype == bias.dtype else torch.float32, dim=1)
    dweight = dweight.to(weight.dtype)
    dbias = dbias.to(bias.dtype)
    return dX, dweight, dbias


class LayerNormFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, X, weight, bias, eps=1e-05):
        Y, mean, rstd = layer_norm_forward(X, weight, bias, eps)
        ctx.save_for_backward(X, weight, bias, mean, rstd)
        return Y

    @staticmethod
    def backward(ctx, dY):
        X, weight, bias, mean, rstd = ctx.saved_tensors
        dX, dweight, dbias = layer_norm_backward(dY, X, weight, bias, mean, rstd)
        return dX, dweight, dbias, None
