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
def _rms_norm_forward_kernel(
    Y_ptr,
    rstd_ptr,
    X_ptr,
    weight_ptr,
    eps,
    n_cols: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    """
    y = w · x / √(mean(x²) + ε), rounded before the weight
    """
    eps = tl.cast(eps, tl.float32)
    row_idx = tl.program_id(0).to(tl.int64)
    col_offsets = tl.arange(0, BLOCK_SIZE)
    mask = col_offsets < n_cols

    x = tl.load(X_ptr + row_idx * n_cols + col_offsets, mask=mask, other=0.0).to(tl.float32)
    total_x_sq = tl.sum(x * x, axis=0)
    weight = tl.load(weight_ptr + col_offsets, mask=mask, other=0.0).to(tl.float32)
    rstd = tl.rsqrt(total_x_sq / n_cols + eps)
    tl.store(
        Y_ptr + row_idx * n_cols + col_offsets, weight * (rstd * x).to(X_ptr.dtype.element_ty).to(tl.float32), mask=mask
    )
    tl.store(rstd_ptr + row_idx, rstd)


@triton.jit
def _rms_norm_backward_kernel(
    dX_ptr,
    dweight_ptr,
    X_ptr,
    weight_ptr,
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
    rstd = rsqrt(sum(x²) / n_cols + eps)
    dx = rstd * weight * dy - sum(weight * dy * x) * rstd * rstd * rstd / n_cols * x
    dweight = sum(dy * round(rstd * x))
    """
    row_start = tl.program_id(0).to(tl.int64) * rows_per_program
    row_end = tl.minimum(row_start + rows_per_program, n_rows)
    col_offsets = tl.arange(0, BLOCK_SIZE)
    mask = col_offsets < n_cols
    first_read: tl.constexpr = "evict_last" if READ_AGAIN else ""

    weight = tl.load(weight_ptr + col_offsets, mask=mask, other=0.0).to(tl.float32)
    dweight_acc = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
    for row_idx in tl.range(row_start, row_end, num_stages=NUM_STAGES):
        rstd = tl.load(rstd_ptr + row_idx).to(tl.float32)
        dy = tl.load(
            dY_ptr + row_idx * n_cols + col_offsets, mask=mask, other=0.0, eviction_policy=first_read
        ).to(tl.float32)
        x = tl.load(
            X_ptr + row_idx * n_cols + col_offsets, mask=mask, other=0.0, eviction_policy=first_read
        ).to(tl.float32)
        dy_scaled = weight * dy
        dot = tl.sum(dy_scaled * x, axis=0)
        if READ_AGAIN:
            # Read again, from the cache: kept across the sum, they take more registers than there are
            dy = tl.load(
                dY_ptr + row_idx * n_cols + col_offsets, mask=mask, other=0.0, eviction_policy="evict_first"
            ).to(tl.float32)
            x = tl.load(
                X_ptr + row_idx * n_cols + col_offsets, mask=mask, other=0.0, eviction_policy="evict_first"
            ).to(tl.float32)
            dy_scaled = weight * dy
        tl.store(
            dX_ptr + row_idx * n_cols + col_offsets, rstd * dy_scaled - dot * rstd * rstd * rstd / n_cols * x, mask=mask
        )
        dweight_acc += dy * (rstd * x).to(X_ptr.dtype.element_ty).to(tl.float32)

    tl.store(dweight_ptr + tl.program_id(0).to(tl.int64) * n_cols + col_offsets, dweight_acc, mask=mask)


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


def rms_norm_forward(X, weight, eps):
    X = X.contiguous()
    weight = weight.contiguous()
    Y = torch.empty_like(X)
    rstd = torch.empty(X.shape[:-1], dtype=torch.float32, device=X.device)
    n_cols = X.shape[-1]
    n_rows = X.shape[:-1].numel()
    if n_rows * n_cols == 0:
        return Y, rstd
    BLOCK_SIZE, num_warps = calculate_settings(n_cols)
    _rms_norm_forward_kernel[(n_rows,)](
        Y,
        rstd,
        X,
        weight,
        float(eps),
        n_cols=n_cols,
        BLOCK_SIZE=BLOCK_SIZE,
        num_warps=num_warps,
    )
    return Y, rstd


def rms_norm_backward(dY, X, weight, rstd):
    dY = dY.contiguous()
    X = X.contiguous()
    weight = weight.contiguous()
    rstd = rstd.contiguous()
    n_cols = X.shape[-1]
    n_rows = X.shape[:-1].numel()
    n_programs = min(max(1, 8192 // max(n_cols, 1)) * get_sm_count(X.device), n_rows)
    dX = torch.empty_like(X)
    _dweight = torch.empty((n_programs, n_cols), dtype=torch.float32, device=X.device)
    if n_rows * n_cols > 0:
        BLOCK_SIZE, num_warps = calculate_settings(n_cols)
        rows_per_program = triton.cdiv(n_rows, n_programs)
        _rms_norm_backward_kernel[(n_programs,)](
            dX,
            _dweight,
            X,
            weight,
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
    dweight = sum_parts(_dweight, weight.dtype)
    return dX, dweight


class RmsNormFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, X, weight, eps=1e-06):
        Y, rstd = rms_norm_forward(X, weight, eps)
        ctx.save_for_backward(X, weight, rstd)
        return Y

    @staticmethod
    def backward(ctx, dY):
        X, weight, rstd = ctx.saved_tensors
        dX, dweight = rms_norm_backward(dY, X, weight, rstd)
        return dX, dweight, None
