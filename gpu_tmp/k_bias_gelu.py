import torch
import triton
import triton.language as tl

SQRT_2_OVER_PI = tl.constexpr(0.7978845608028654)  # sqrt(2 / pi)
GELU_CUBIC = tl.constexpr(0.044715)  # cubic coefficient of the tanh approximation of GELU
GELU_CUBIC_SLOPE = tl.constexpr(0.134145)  # 3 * GELU_CUBIC


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


@triton.jit
def tanh(x):
    # 2 * sigmoid(2x) - 1 cancels near zero: a series there
    x_sq = x * x
    series = x * (1 + x_sq * (-0.33333333 + x_sq * 0.13333333))
    return tl.where(x_sq < 0.01, series, 2 * tl.sigmoid(2 * x) - 1)


@triton.jit
def _bias_gelu_forward_kernel(
    Y_ptr,
    X_ptr,
    bias_ptr,
    n_rows,
    n_cols: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    """
    y = gelu_tanh(x + bias)
    """
    row_idx = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]
    col_offsets = tl.program_id(1) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)[None, :]
    row_mask = row_idx < n_rows
    col_mask = col_offsets < n_cols
    mask = row_mask & col_mask

    x = tl.load(X_ptr + row_idx * n_cols + col_offsets, mask=mask, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + col_offsets, mask=col_mask, other=0.0).to(tl.float32)
    x_plus_bias = x + bias
    shifted = x_plus_bias + x_plus_bias * x_plus_bias * GELU_CUBIC * x_plus_bias
    tl.store(Y_ptr + row_idx * n_cols + col_offsets, 0.5 * x_plus_bias * (1 + tanh(shifted * SQRT_2_OVER_PI)), mask=mask)


@triton.jit
def _bias_gelu_backward_kernel(
    dX_ptr,
    dbias_ptr,
    X_ptr,
    bias_ptr,
    dY_ptr,
    n_rows,
    rows_per_program,
    n_cols: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    """
    dx = dy * (0.5 * (1 + tanh(√(2/π) * (x + bias + 0.044715 * (x + bias)² * (x + bias)))) + √(2/π) * 0.5 * (x +
        bias) * (1 - tanh(√(2/π) * (x + bias + 0.044715 * (x + bias)² * (x + bias)))²) * (1 + 0.134145 * (x +
        bias)²))
    dbias = sum(dy * (0.5 * (1 + tanh(√(2/π) * (x + bias + 0.044715 * (x + bias)² * (x + bias)))) + √(2/π) * 0.5 *
        (x + bias) * (1 - tanh(√(2/π) * (x + bias + 0.044715 * (x + bias)² * (x + bias)))²) * (1 + 0.134145 * (x +
        bias)²)))
    """
    row_start = tl.program_id(0).to(tl.int64) * rows_per_program
    row_end = tl.minimum(row_start + rows_per_program, n_rows)
    col_offsets = tl.program_id(1) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = col_offsets < n_cols

    bias = tl.load(bias_ptr + col_offsets, mask=mask, other=0.0).to(tl.float32)
    dbias_acc = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
    for row_idx in range(row_start, row_end):
        x = tl.load(X_ptr + row_idx * n_cols + col_offsets, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dY_ptr + row_idx * n_cols + col_offsets, mask=mask, other=0.0).to(tl.float32)
        x_plus_bias = x + bias
        x_plus_bias_sq = x_plus_bias * x_plus_bias
        scaled = (x_plus_bias + x_plus_bias_sq * GELU_CUBIC * x_plus_bias) * SQRT_2_OVER_PI
        tanh_scaled = tanh(scaled)
        scaled_2 = 0.5 * x_plus_bias * SQRT_2_OVER_PI * (1 - tanh_scaled * tanh_scaled)
        shifted = 0.5 * (1 + tanh_scaled) + scaled_2 * (1 + x_plus_bias_sq * GELU_CUBIC_SLOPE)
        dy_scaled = dy * shifted
        tl.store(dX_ptr + row_idx * n_cols + col_offsets, dy_scaled, mask=mask)
        dbias_acc += dy_scaled

    tl.store(dbias_ptr + tl.program_id(0).to(tl.int64) * n_cols + col_offsets, dbias_acc, mask=mask)


def bias_gelu_forward(X, bias):
    X = X.contiguous()
    bias = bias.contiguous()
    Y = torch.empty_like(X)
    n_cols = X.shape[-1]
    n_rows = X.shape[:-1].numel()
    if n_rows * n_cols == 0:
        return Y
    BLOCK_SIZE = min(triton.next_power_of_2(n_cols), 2048)
    BLOCK_ROWS = max(1, min(2048 // BLOCK_SIZE, triton.next_power_of_2(n_rows)))
    num_warps = 4
    _bias_gelu_forward_kernel[(triton.cdiv(n_rows, BLOCK_ROWS), triton.cdiv(n_cols, BLOCK_SIZE))](
        Y,
        X,
        bias,
        n_rows,
        n_cols=n_cols,
        BLOCK_ROWS=BLOCK_ROWS,
        BLOCK_SIZE=BLOCK_SIZE,
        num_warps=num_warps,
    )
    return Y


def bias_gelu_backward(dY, X, bias):
    dY = dY.contiguous()
    X = X.contiguous()
    bias = bias.contiguous()
    n_cols = X.shape[-1]
    n_rows = X.shape[:-1].numel()
    BLOCK_SIZE, num_warps = min(triton.next_power_of_2(max(n_cols, 1)), 1024), 4
    n_tiles = triton.cdiv(n_cols, BLOCK_SIZE)
    n_programs = min(triton.cdiv(8 * get_sm_count(X.device), n_tiles), n_rows)
    dX = torch.empty_like(X)
    _dbias = torch.empty((n_programs, n_cols), dtype=torch.float32, device=X.device)
    if n_rows * n_cols > 0:
        rows_per_program = triton.cdiv(n_rows, n_programs)
        _bias_gelu_backward_kernel[(n_programs, n_tiles)](
            dX,
            _dbias,
            X,
            bias,
            dY,
            n_rows,
            rows_per_program,
            n_cols=n_cols,
            BLOCK_SIZE=BLOCK_SIZE,
            num_warps=num_warps,
        )
    dbias = _dbias.sum(dim=0).to(bias.dtype)
    return dX, dbias


class BiasGeluFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, X, bias):
        Y = bias_gelu_forward(X, bias)
        ctx.save_for_backward(X, bias)
        return Y

    @staticmethod
    def backward(ctx, dY):
        X, bias = ctx.saved_tensors
        dX, dbias = bias_gelu_backward(dY, X, bias)
        return dX, dbias
