"""The printed helper that adds up what the programs of a kernel left: one launch for a sum and its rounding. Pure.

torch's `.sum(dim=0).to(dtype)` is two to three launches (its reduction clears a semaphore first), measured on an H200 at 13 to
25 µs for the parts of a norm's weight gradient; this is one of 7 to 10 µs, and 5 instead of 9 to 14 µs for a loss.
"""

from __future__ import annotations

from kernels.module_style import ModuleStyle

INDENT = "    "

_KERNEL = '''
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
'''

_LAUNCH = """
_sum_parts_kernel[(triton.cdiv(n_cols, BLOCK_SIZE), n_sums)](
    total,
    parts,
    parts.shape[dim],
    n_cols,
    BLOCK_PARTS=BLOCK_PARTS,
    BLOCK_SIZE=BLOCK_SIZE,
    num_warps=num_warps,
)
"""

_HOST = """
def sum_parts(parts, dtype, dim=0):
    # Sums over dim and a cast in one launch, always in the same order
    total = torch.empty(parts.shape[:dim] + parts.shape[dim + 1 :], dtype=dtype, device=parts.device)
    n_sums, n_cols = parts.shape[:dim].numel(), parts.shape[dim + 1 :].numel()
    BLOCK_PARTS = 8192 if n_cols == 1 else min(128, triton.next_power_of_2(max(parts.shape[dim], 1)))
    BLOCK_SIZE, num_warps = (1, 16) if n_cols == 1 else (2048 // BLOCK_PARTS, 8)
    if n_cols > 0:
{launch}
    return total
"""


def sum_parts_source(style: ModuleStyle) -> str:
    """The kernel and its launcher, as the module's text."""
    launch = _LAUNCH.strip("\n").splitlines()
    if style.device_context:
        launch = ["with device_context(parts.device):", *(INDENT + line for line in launch)]
    body = "\n".join(INDENT * 2 + line for line in launch)
    return f"{_KERNEL.strip(chr(10))}\n\n\n{_HOST.strip(chr(10)).format(launch=body)}"
