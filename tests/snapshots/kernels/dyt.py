import torch
import triton
import triton.language as tl


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
def tanh(x):
    # 2 * sigmoid(2x) - 1 cancels near zero: a series there
    x_sq = x * x
    series = x * (1 + x_sq * (-0.33333333 + x_sq * 0.13333333))
    return tl.where(x_sq < 0.01, series, 2 * tl.sigmoid(2 * x) - 1)


@triton.jit
def _dyt_forward_kernel(
    Y_ptr,
    X_ptr,
    alpha_ptr,
    gamma_ptr,
    beta_ptr,
    n_rows,
    n_cols: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    """
    y = γ · tanh(α x) + β
    """
    row_idx = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]
    col_offsets = tl.program_id(1) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)[None, :]
    row_mask = row_idx < n_rows
    col_mask = col_offsets < n_cols
    mask = row_mask & col_mask

    alpha = tl.load(alpha_ptr).to(tl.float32)
    x = tl.load(X_ptr + row_idx * n_cols + col_offsets, mask=mask, other=0.0).to(tl.float32)
    gamma = tl.load(gamma_ptr + col_offsets, mask=col_mask, other=0.0).to(tl.float32)
    beta = tl.load(beta_ptr + col_offsets, mask=col_mask, other=0.0).to(tl.float32)
    tl.store(Y_ptr + row_idx * n_cols + col_offsets, gamma * tanh(alpha * x) + beta, mask=mask)


@triton.jit
def _dyt_backward_kernel(
    dX_ptr,
    dalpha_ptr,
    dgamma_ptr,
    dbeta_ptr,
    X_ptr,
    alpha_ptr,
    gamma_ptr,
    dY_ptr,
    n_rows,
    rows_per_program,
    n_cols: tl.constexpr,
    NUM_STAGES: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    """
    dx = alpha * gamma * dy * (1 - tanh(alpha * x)²)
    dalpha = sum(gamma * dy * (1 - tanh(alpha * x)²) * x)
    dgamma = sum(dy * tanh(alpha * x))
    dbeta = sum(dy)
    """
    row_start = tl.program_id(0).to(tl.int64) * rows_per_program
    row_end = tl.minimum(row_start + rows_per_program, n_rows)
    col_offsets = tl.program_id(1) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = col_offsets < n_cols

    alpha = tl.load(alpha_ptr).to(tl.float32)
    gamma = tl.load(gamma_ptr + col_offsets, mask=mask, other=0.0).to(tl.float32)
    dalpha_acc = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
    dgamma_acc = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
    dbeta_acc = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
    for row_idx in tl.range(row_start, row_end, num_stages=NUM_STAGES):
        x = tl.load(X_ptr + row_idx * n_cols + col_offsets, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dY_ptr + row_idx * n_cols + col_offsets, mask=mask, other=0.0).to(tl.float32)
        tanh_scaled_x = tanh(alpha * x)
        dy_scaled = gamma * dy * (1 - tanh_scaled_x * tanh_scaled_x)
        tl.store(dX_ptr + row_idx * n_cols + col_offsets, alpha * dy_scaled, mask=mask)
        dalpha_acc += dy_scaled * x
        dgamma_acc += dy * tanh_scaled_x
        dbeta_acc += dy

    tl.store(dalpha_ptr + tl.program_id(0) * tl.num_programs(1) + tl.program_id(1), tl.sum(dalpha_acc, axis=0))
    tl.store(dgamma_ptr + tl.program_id(0).to(tl.int64) * n_cols + col_offsets, dgamma_acc, mask=mask)
    tl.store(dbeta_ptr + tl.program_id(0).to(tl.int64) * n_cols + col_offsets, dbeta_acc, mask=mask)


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


def dyt_forward(X, alpha, gamma, beta):
    X = X.contiguous()
    alpha = alpha.contiguous()
    gamma = gamma.contiguous()
    beta = beta.contiguous()
    Y = torch.empty_like(X)
    n_cols = X.shape[-1]
    n_rows = X.shape[:-1].numel()
    if n_rows * n_cols == 0:
        return Y
    BLOCK_SIZE = min(triton.next_power_of_2(n_cols), 1024)
    BLOCK_ROWS = min(4096 // BLOCK_SIZE, triton.next_power_of_2(n_rows))
    num_warps = 4
    _dyt_forward_kernel[(triton.cdiv(n_rows, BLOCK_ROWS), triton.cdiv(n_cols, BLOCK_SIZE))](
        Y,
        X,
        alpha,
        gamma,
        beta,
        n_rows,
        n_cols=n_cols,
        BLOCK_ROWS=BLOCK_ROWS,
        BLOCK_SIZE=BLOCK_SIZE,
        num_warps=num_warps,
    )
    return Y


def dyt_backward(dY, X, alpha, gamma, beta):
    dY = dY.contiguous()
    X = X.contiguous()
    alpha = alpha.contiguous()
    gamma = gamma.contiguous()
    beta = beta.contiguous()
    n_cols = X.shape[-1]
    n_rows = X.shape[:-1].numel()
    BLOCK_SIZE, num_warps = min(triton.next_power_of_2(max(n_cols, 1)), 2048), 4
    n_tiles = triton.cdiv(n_cols, BLOCK_SIZE)
    n_programs = min(triton.cdiv(4 * get_sm_count(X.device), n_tiles), n_rows)
    dX = torch.empty_like(X)
    _dalpha = torch.empty((n_programs * n_tiles,), dtype=torch.float32, device=X.device)
    _parts = torch.empty((2, n_programs, n_cols), dtype=torch.float32, device=X.device)
    _dgamma, _dbeta = _parts
    if n_rows * n_cols > 0:
        rows_per_program = triton.cdiv(n_rows, n_programs)
        _dyt_backward_kernel[(n_programs, n_tiles)](
            dX,
            _dalpha,
            _dgamma,
            _dbeta,
            X,
            alpha,
            gamma,
            dY,
            n_rows,
            rows_per_program,
            n_cols=n_cols,
            NUM_STAGES=pipeline_stages(BLOCK_SIZE, X.element_size(), dY.element_size()),
            BLOCK_SIZE=BLOCK_SIZE,
            num_warps=num_warps,
        )
    dalpha = sum_parts(_dalpha, alpha.dtype)
    dgamma, dbeta = sum_parts(_parts, gamma.dtype if gamma.dtype == beta.dtype else torch.float32, dim=1)
    dgamma = dgamma.to(gamma.dtype)
    dbeta = dbeta.to(beta.dtype)
    return dX, dalpha, dgamma, dbeta


class DytFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, X, alpha, gamma, beta):
        Y = dyt_forward(X, alpha, gamma, beta)
        ctx.save_for_backward(X, alpha, gamma, beta)
        return Y

    @staticmethod
    def backward(ctx, dY):
        X, alpha, gamma, beta = ctx.saved_tensors
        dX, dalpha, dgamma, dbeta = dyt_backward(dY, X, alpha, gamma, beta)
        return dX, dalpha, dgamma, dbeta
