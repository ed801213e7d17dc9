import torch
import triton
import triton.language as tl


@triton.jit
def _jsd_forward_kernel(
    Y_ptr,
    X_ptr,
    target_ptr,
    beta,
    n_rows,
    n_cols: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    """
    L = mean(β KL(p ‖ m) + (1 - β) KL(q ‖ m)), m = βp + (1 - β)q, from log-probabilities
    """
    beta = beta.to(tl.float32)
    row_idx = tl.program_id(0).to(tl.int64)

    total_shifted_acc = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK_SIZE):
        col_offsets = start + tl.arange(0, BLOCK_SIZE)
        mask = col_offsets < n_cols
        target = tl.load(target_ptr + row_idx * n_cols + col_offsets, mask=mask, other=0.0).to(tl.float32)
        x = tl.load(X_ptr + row_idx * n_cols + col_offsets, mask=mask, other=0.0).to(tl.float32)
        scaled = beta * tl.exp(target)
        scaled_2 = (1 - beta) * tl.exp(x)
        log_shifted = tl.log(scaled + scaled_2)
        total_shifted_acc += tl.where(mask, scaled * (target - log_shifted) + scaled_2 * (x - log_shifted), 0.0)
    total_shifted = tl.sum(total_shifted_acc, axis=0)

    tl.store(Y_ptr + tl.program_id(0), total_shifted / n_rows)


@triton.jit
def _jsd_backward_kernel(
    dX_ptr,
    X_ptr,
    target_ptr,
    dY_ptr,
    beta,
    n_rows,
    n_elements,
    BLOCK_SIZE: tl.constexpr,
):
    """
    dx = dy / n_rows * (1 - beta) * exp(x) + ((1 - beta) * dy / n_rows * (x - log(beta * exp(target) + (1 - beta)
        * exp(x))) + (1 - beta) * (-(dy / n_rows * (1 - beta) * exp(x)) - dy / n_rows * beta * exp(target)) /
        (beta * exp(target) + (1 - beta) * exp(x))) * exp(x)
    """
    beta = beta.to(tl.float32)
    n_rows = n_rows.to(tl.float32)
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements

    dy = tl.load(dY_ptr).to(tl.float32)
    x = tl.load(X_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    target = tl.load(target_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    exp_x = tl.exp(x)
    scaled = beta * tl.exp(target)
    scaled_2 = (1 - beta) * exp_x
    shifted = scaled + scaled_2
    quotient = dy / n_rows
    dy_scaled = quotient * scaled_2
    shifted_2 = (1 - beta) * quotient * (x - tl.log(shifted)) + (1 - beta) * (-dy_scaled - quotient * scaled) / shifted
    tl.store(dX_ptr + offsets, dy_scaled + shifted_2 * exp_x, mask=mask)


def jsd_forward(X, target, beta):
    X = X.contiguous()
    target = target.contiguous()
    n_cols = X.shape[-1]
    n_rows = X.shape[:-1].numel()
    _Y = torch.empty((n_rows,), dtype=torch.float32, device=X.device)
    if n_rows * n_cols > 0:
        BLOCK_SIZE, num_warps = min(triton.next_power_of_2(n_cols), 4096), 8
        _jsd_forward_kernel[(n_rows,)](
            _Y,
            X,
            target,
            float(beta),
            n_rows,
            n_cols=n_cols,
            BLOCK_SIZE=BLOCK_SIZE,
            num_warps=num_warps,
        )
    Y = _Y.sum().to(X.dtype)
    return Y


def jsd_backward(dY, X, target, beta):
    dY = dY.contiguous()
    X = X.contiguous()
    target = target.contiguous()
    dX = torch.empty_like(X)
    n_elements = X.numel()
    if n_elements == 0:
        return dX
    BLOCK_SIZE, num_warps = 1024, 4
    _jsd_backward_kernel[(triton.cdiv(n_elements, BLOCK_SIZE),)](
        dX,
        X,
        target,
        dY,
        float(beta),
        float(X.shape[:-1].numel()),
        n_elements,
        BLOCK_SIZE=BLOCK_SIZE,
        num_warps=num_warps,
    )
    return dX


class JsdFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, X, target, beta=0.5):
        Y = jsd_forward(X, target, beta)
        ctx.save_for_backward(X, target)
        ctx.beta = beta
        return Y

    @staticmethod
    def backward(ctx, dY):
        X, target = ctx.saved_tensors
        dX = jsd_backward(dY, X, target, ctx.beta)
        return dX, None, None
