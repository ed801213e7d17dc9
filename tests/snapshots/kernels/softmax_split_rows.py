import torch
import triton
import triton.language as tl

LOWEST = tl.constexpr(-3.4028234663852886e+38)  # the lowest fp32: like -inf, but LOWEST - LOWEST is 0
LOG2_E = tl.constexpr(1.4426950408889634)  # 1 / log(2): exp(x) = exp2(x * LOG2_E)


def get_sm_count(device):
    # Programs that share the rows. Elsewhere (Triton's interpreter on a CPU) a few, so that partial sums are exercised.
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).multi_processor_count
    if device.type == "xpu":
        return torch.xpu.get_device_properties(device).gpu_eu_count
    return 4


def split_count(n_rows, n_cols, BLOCK_SIZE, device):
    # Programs that share a row: 8 a multiprocessor over all rows, and no more than there are blocks
    wanted = triton.cdiv(8 * get_sm_count(device), max(n_rows, 1))
    return max(1, min(wanted, triton.cdiv(n_cols, BLOCK_SIZE), 1024))


@triton.jit
def _softmax_forward_stage_1_kernel(
    max_x_parts_ptr,
    total_parts_ptr,
    X_ptr,
    n_splits,
    n_cols: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    """
    Stage 1 of 2: max_x_parts, total_parts
    """
    row_idx = tl.program_id(0).to(tl.int64)
    split_idx = tl.program_id(1).to(tl.int64)

    max_x = tl.full((), LOWEST, dtype=tl.float32)
    total_acc = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
    for start in range(split_idx * BLOCK_SIZE, n_cols, n_splits * BLOCK_SIZE):
        col_offsets = start + tl.arange(0, BLOCK_SIZE)
        mask = col_offsets < n_cols
        x = tl.load(X_ptr + row_idx * n_cols + col_offsets, mask=mask, other=-float("inf")).to(tl.float32)
        max_x_new = tl.maximum(max_x, tl.max(x, axis=0))
        total_acc = total_acc * tl.exp2((max_x - max_x_new) * LOG2_E) + tl.exp2((x - max_x_new) * LOG2_E)
        max_x = max_x_new
    total = tl.sum(total_acc, axis=0)

    tl.store(max_x_parts_ptr + row_idx * n_splits + split_idx, max_x)
    tl.store(total_parts_ptr + row_idx * n_splits + split_idx, total)


@triton.jit
def _softmax_forward_kernel(
    Y_ptr,
    X_ptr,
    max_x_parts_ptr,
    total_parts_ptr,
    n_splits,
    n_cols: tl.constexpr,
    BLOCK_SPLITS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    """
    Stage 2 of 2: y
    y = eˣ / Σ eˣ
    """
    row_idx = tl.program_id(0).to(tl.int64)
    split_idx = tl.program_id(1).to(tl.int64)
    split_offsets = tl.arange(0, BLOCK_SPLITS)
    split_mask = split_offsets < n_splits

    max_x_parts = tl.load(
        max_x_parts_ptr + row_idx * n_splits + split_offsets, mask=split_mask, other=-float("inf")
    ).to(tl.float32)
    total_parts = tl.load(
        total_parts_ptr + row_idx * n_splits + split_offsets, mask=split_mask, other=0.0
    ).to(tl.float32)
    max_x = tl.max(max_x_parts, axis=0)
    total = tl.sum(total_parts * tl.exp(max_x_parts - max_x), axis=0)
    for start in range(split_idx * BLOCK_SIZE, n_cols, n_splits * BLOCK_SIZE):
        col_offsets = start + tl.arange(0, BLOCK_SIZE)
        mask = col_offsets < n_cols
        x = tl.load(X_ptr + row_idx * n_cols + col_offsets, mask=mask, other=0.0).to(tl.float32)
        tl.store(Y_ptr + row_idx * n_cols + col_offsets, tl.exp2((x - max_x) * LOG2_E) * (1.0 / total), mask=mask)


@triton.jit
def _softmax_backward_stage_1_kernel(
    dot_parts_ptr,
    Y_ptr,
    dY_ptr,
    n_splits,
    n_cols: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    """
    Stage 1 of 2: dot_parts
    """
    row_idx = tl.program_id(0).to(tl.int64)
    split_idx = tl.program_id(1).to(tl.int64)

    dot_acc = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
    for start in range(split_idx * BLOCK_SIZE, n_cols, n_splits * BLOCK_SIZE):
        col_offsets = start + tl.arange(0, BLOCK_SIZE)
        mask = col_offsets < n_cols
        y = tl.load(Y_ptr + row_idx * n_cols + col_offsets, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dY_ptr + row_idx * n_cols + col_offsets, mask=mask, other=0.0).to(tl.float32)
        dot_acc += dy * y
    dot = tl.sum(dot_acc, axis=0)

    tl.store(dot_parts_ptr + row_idx * n_splits + split_idx, dot)


@triton.jit
def _softmax_backward_kernel(
    dX_ptr,
    Y_ptr,
    dY_ptr,
    dot_parts_ptr,
    n_splits,
    n_cols: tl.constexpr,
    BLOCK_SPLITS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    """
    Stage 2 of 2: dx
    dx = exp(x - max(x)) / sum(exp(x - max(x))) * (dy - sum(dy * exp(x - max(x)) / sum(exp(x - max(x)))))
    """
    row_idx = tl.program_id(0).to(tl.int64)
    split_idx = tl.program_id(1).to(tl.int64)
    split_offsets = tl.arange(0, BLOCK_SPLITS)
    split_mask = split_offsets < n_splits

    dot_parts = tl.load(dot_parts_ptr + row_idx * n_splits + split_offsets, mask=split_mask, other=0.0).to(tl.float32)
    dot = tl.sum(dot_parts, axis=0)
    for start in range(split_idx * BLOCK_SIZE, n_cols, n_splits * BLOCK_SIZE):
        col_offsets = start + tl.arange(0, BLOCK_SIZE)
        mask = col_offsets < n_cols
        y = tl.load(Y_ptr + row_idx * n_cols + col_offsets, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dY_ptr + row_idx * n_cols + col_offsets, mask=mask, other=0.0).to(tl.float32)
        tl.store(dX_ptr + row_idx * n_cols + col_offsets, y * (dy - dot), mask=mask)


def softmax_forward(X):
    X = X.contiguous()
    n_cols = X.shape[-1]
    n_rows = X.shape[:-1].numel()
    BLOCK_SIZE, num_warps = min(triton.next_power_of_2(max(n_cols, 1)), 2048), 4
    n_splits = split_count(n_rows, n_cols, BLOCK_SIZE, X.device)
    max_x_parts = torch.empty((n_rows, n_splits), dtype=torch.float32, device=X.device)
    total_parts = torch.empty((n_rows, n_splits), dtype=torch.float32, device=X.device)
    if n_rows * n_cols > 0:
        _softmax_forward_stage_1_kernel[(n_rows, n_splits)](
            max_x_parts,
            total_parts,
            X,
            n_splits,
            n_cols=n_cols,
            BLOCK_SIZE=BLOCK_SIZE,
            num_warps=num_warps,
        )
    Y = torch.empty_like(X)
    if n_rows * n_cols > 0:
        _softmax_forward_kernel[(n_rows, n_splits)](
            Y,
            X,
            max_x_parts,
            total_parts,
            n_splits,
            n_cols=n_cols,
            BLOCK_SPLITS=triton.next_power_of_2(n_splits),
            BLOCK_SIZE=BLOCK_SIZE,
            num_warps=num_warps,
        )
    return Y


def softmax_backward(dY, Y):
    dY = dY.contiguous()
    Y = Y.contiguous()
    n_cols = Y.shape[-1]
    n_rows = Y.shape[:-1].numel()
    BLOCK_SIZE, num_warps = min(triton.next_power_of_2(max(n_cols, 1)), 2048), 4
    n_splits = split_count(n_rows, n_cols, BLOCK_SIZE, Y.device)
    dot_parts = torch.empty((n_rows, n_splits), dtype=torch.float32, device=Y.device)
    if n_rows * n_cols > 0:
        _softmax_backward_stage_1_kernel[(n_rows, n_splits)](
            dot_parts,
            Y,
            dY,
            n_splits,
            n_cols=n_cols,
            BLOCK_SIZE=BLOCK_SIZE,
            num_warps=num_warps,
        )
    dX = torch.empty_like(dY)
    if n_rows * n_cols > 0:
        _softmax_backward_kernel[(n_rows, n_splits)](
            dX,
            Y,
            dY,
            dot_parts,
            n_splits,
            n_cols=n_cols,
            BLOCK_SPLITS=triton.next_power_of_2(n_splits),
            BLOCK_SIZE=BLOCK_SIZE,
            num_warps=num_warps,
        )
    return dX


class SoftmaxFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, X):
        Y = softmax_forward(X)
        ctx.save_for_backward(Y)
        return Y

    @staticmethod
    def backward(ctx, dY):
        (Y,) = ctx.saved_tensors
        dX = softmax_backward(dY, Y)
        return dX
