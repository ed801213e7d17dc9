"""Segment mean pooling: the mean of each run of rows, given where the runs start. One launch a direction. Pure.

The rows of a segment are known at run time only, so no row program can say which rows a mean spans. Forward: a program a
segment reads its own rows and no others. Backward: a program a block of rows finds the segments that reach into it. Offsets
need not ascend: segments may overlap, be empty, or reach beyond the rows, as in the reference.

On an H200 (batch 256, 512 rows of 256 columns, 32 segments, bfloat16) 0.026 ms forward and backward with even segments, 0.033
and 0.028 ms with random ones; 4 warps and a block of 2048 elements take 0.09 ms forward, in sums across warps.
"""

from __future__ import annotations

from string import Template as Text

from kernels.derivation import Derivation, KernelSchedule, Operand, Rule, Saved, Traffic
from kernels.module_style import ModuleStyle
from kernels.op_spec import OpSpec, TensorSpec
from kernels.templates.template import no_program

AXES = ("batch", "seq_len", "n_cols", "n_offsets")
REFERENCE = """
import torch


def segment_mean_pooling(x: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    position = torch.arange(x.shape[1], device=x.device)
    means = []
    for segment in range(offsets.shape[1] - 1):
        start, end = offsets[:, segment, None], offsets[:, segment + 1, None]
        inside = (position >= start) & (position < end)
        total = torch.where(inside[..., None], x, 0.0).sum(1)
        means.append(total / inside.sum(1, keepdim=True).clamp(min=1))
    return torch.stack(means, 1)
"""
KERNELS = Text('''
@triton.jit
def $forward_kernel(
    Y_ptr,
    X_ptr,
    offsets_ptr,
    seq_len,
    n_segments,
    n_cols: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    """
    y = mean of x[offsets[s] : offsets[s + 1]], and 0 where there is no such row
    """
    segment_idx = tl.program_id(0).to(tl.int64)
    col_offsets = tl.program_id(1) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = col_offsets < n_cols
    batch_idx = segment_idx // n_segments
    bounds_ptr = offsets_ptr + batch_idx * (n_segments + 1) + segment_idx % n_segments
    start = tl.maximum(tl.load(bounds_ptr), 0)
    end = tl.minimum(tl.load(bounds_ptr + 1), seq_len)
    count = tl.maximum(end - start, 1).to(tl.float32)

    total = tl.zeros((BLOCK_ROWS, BLOCK_SIZE), dtype=tl.float32)
    for row_start in range(start, end, BLOCK_ROWS):
        row_idx = row_start + tl.arange(0, BLOCK_ROWS)[:, None]
        x_offsets = (batch_idx * seq_len + row_idx) * n_cols + col_offsets[None, :]
        total += tl.load(X_ptr + x_offsets, mask=(row_idx < end) & mask[None, :], other=0.0).to(tl.float32)
    tl.store(Y_ptr + segment_idx * n_cols + col_offsets, tl.sum(total, axis=0) / count, mask=mask)


@triton.jit
def $backward_kernel(
    dX_ptr,
    dY_ptr,
    offsets_ptr,
    seq_len,
    n_segments,
    n_cols: tl.constexpr,
    BLOCK_SEGMENTS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    """
    dx = sum of dy[s] / rows of s, over the segments s that hold the row
    """
    n_blocks = tl.cdiv(seq_len, BLOCK_ROWS)
    batch_idx = (tl.program_id(0) // n_blocks).to(tl.int64)
    row_start = tl.program_id(0) % n_blocks * BLOCK_ROWS
    row_idx = row_start + tl.arange(0, BLOCK_ROWS)[:, None]
    col_offsets = tl.program_id(1) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = col_offsets < n_cols

    # The segments that reach into these rows: where offsets ascend, a few neighbours.
    bounds_ptr = offsets_ptr + batch_idx * (n_segments + 1)
    segments = tl.arange(0, BLOCK_SEGMENTS)
    starts = tl.load(bounds_ptr + segments, mask=segments < n_segments, other=0)
    ends = tl.load(bounds_ptr + segments + 1, mask=segments < n_segments, other=0)
    reaches = (starts < row_start + BLOCK_ROWS) & (ends > row_start) & (starts < ends)
    first = tl.min(tl.where(reaches, segments, n_segments), axis=0)
    last = tl.max(tl.where(reaches, segments, -1), axis=0)

    dx = tl.zeros((BLOCK_ROWS, BLOCK_SIZE), dtype=tl.float32)
    for segment_idx in range(first, last + 1):
        start = tl.maximum(tl.load(bounds_ptr + segment_idx), 0)
        end = tl.minimum(tl.load(bounds_ptr + segment_idx + 1), seq_len)
        count = tl.maximum(end - start, 1).to(tl.float32)
        dy_offsets = (batch_idx * n_segments + segment_idx) * n_cols + col_offsets
        dy = tl.load(dY_ptr + dy_offsets, mask=mask, other=0.0).to(tl.float32)
        dx += tl.where((row_idx >= start) & (row_idx < end), (dy / count)[None, :], 0.0)
    dx_offsets = (batch_idx * seq_len + row_idx) * n_cols + col_offsets[None, :]
    tl.store(dX_ptr + dx_offsets, dx, mask=(row_idx < seq_len) & mask[None, :])
''')
WRAPPERS = Text("""
def calculate_blocks(n_cols):
    # Rows by columns of one warp: its threads hold whole columns, so that no sum over rows crosses threads.
    BLOCK_SIZE = min(triton.next_power_of_2(max(n_cols, 1)), 128)
    return 1024 // BLOCK_SIZE, BLOCK_SIZE


def $forward_wrapper(X, offsets):
${contiguous_forward}    batch, seq_len, n_cols = X.shape
    n_segments = offsets.shape[1] - 1
    Y = torch.empty((batch, n_segments, n_cols), dtype=X.dtype, device=X.device)
    if Y.numel() == 0:
        return Y
    BLOCK_ROWS, BLOCK_SIZE = calculate_blocks(n_cols)
$launch_forward
    return Y


def $backward_wrapper(dY, offsets, seq_len):
${contiguous_backward}    batch, n_segments, n_cols = dY.shape
    dX = torch.empty((batch, seq_len, n_cols), dtype=dY.dtype, device=dY.device)
    if dX.numel() == 0:
        return dX
    BLOCK_ROWS, BLOCK_SIZE = calculate_blocks(n_cols)
$launch_backward
    return dX


class $function_class(torch.autograd.Function):
    @staticmethod
$decorator    def forward(ctx, X, offsets):
        Y = $forward_wrapper(X, offsets)
        ctx.save_for_backward(offsets)
        ctx.seq_len = X.shape[1]
        return Y

    @staticmethod
$decorator    def backward(ctx, dY):
        (offsets,) = ctx.saved_tensors
        return $backward_wrapper(dY, offsets, ctx.seq_len), None
""")
LAUNCH_FORWARD = Text("""
$forward_kernel[(batch * n_segments, triton.cdiv(n_cols, BLOCK_SIZE))](
    Y,
    X,
    offsets,
    seq_len,
    n_segments,
    n_cols=n_cols,
    BLOCK_ROWS=BLOCK_ROWS,
    BLOCK_SIZE=BLOCK_SIZE,
    num_warps=1,
)
""")
LAUNCH_BACKWARD = Text("""
$backward_kernel[(batch * triton.cdiv(seq_len, BLOCK_ROWS), triton.cdiv(n_cols, BLOCK_SIZE))](
    dX,
    dY,
    offsets,
    seq_len,
    n_segments,
    n_cols=n_cols,
    BLOCK_SEGMENTS=triton.next_power_of_2(max(n_segments, 1)),
    BLOCK_ROWS=BLOCK_ROWS,
    BLOCK_SIZE=BLOCK_SIZE,
    num_warps=1,
)
""")


class SegmentMeanPooling:
    """x (batch, seq_len, n_cols) and offsets (batch, n_segments + 1) -> means (batch, n_segments, n_cols)."""

    name = "segment_mean_pooling"
    entry = "segment_mean_pooling"
    reference = REFERENCE
    axes = AXES

    def tensors(self) -> tuple[TensorSpec, ...]:
        return (
            TensorSpec(name="x", shape=("batch", "seq_len", "n_cols")),
            TensorSpec(name="offsets", shape=("batch", "n_offsets"), dtype="int64", needs_grad=False),
        )

    def derivation(self, op: OpSpec) -> Derivation:
        blocks = "1024 elements: as many columns as a row has, up to 128, and the rest rows"
        forward = KernelSchedule(
            name="template",
            why="the rows of a segment are known at run time only: each program reads its own, and each row is read once",
            live_vectors=1,
            block_size=blocks,
            num_warps="1",
            grid="one program per segment and block of columns",
        )
        backward = KernelSchedule(
            name="template",
            why="each row is written once, by the program that finds the segments that hold it: no atomic",
            live_vectors=1,
            block_size=blocks,
            num_warps="1",
            grid="one program per block of rows and columns",
        )
        return Derivation(
            op=op,
            tier=2,
            inputs=(
                Operand(name="x", role="full", shape="(batch, seq_len, n_cols)", dtype="same as input"),
                Operand(name="offsets", role="row", shape="(batch, n_offsets)", dtype="int64"),
            ),
            outputs=(
                Operand(name="y", role="row", shape="(batch, n_offsets - 1, n_cols)", dtype="same as input"),
            ),
            forward_formula=op.summary
            or "y[s] = mean of x[offsets[s] : offsets[s + 1]], 0 where it is empty",
            gradient_formulas={"x": "sum of dy[s] / rows of s, over the segments s that hold the row"},
            precision_sensitive=("sum over the rows of a segment",),
            saved=(Saved(name="offsets", role="row", why="an input: the backward needs where segments lie"),),
            rules=(
                Rule(
                    rule="template",
                    note="kernels/templates/segment_mean_pooling.py: which rows a mean spans is data, and no rule says that",
                ),
            ),
            # Eager as the reference has it: where reads and writes, sum reads, for each segment; here for one segment.
            traffic=Traffic(
                forward_tensors=1,
                backward_tensors=1,
                eager_forward_tensors=3,
                eager_backward_tensors=3,
                peak_tensors=2,
                eager_peak_tensors=3,
            ),
            forward_schedule=forward,
            backward_schedule=backward,
            forward=no_program(),
            backward=no_program(),
            template=self.name,
        )

    def kernel_names(self, style: ModuleStyle) -> list[str]:
        return [style.forward_kernel, style.backward_kernel]

    def print(self, derivation: Derivation, style: ModuleStyle) -> str:
        names = style.model_dump() | {"op_name": derivation.op.name}
        own = style.utils_module is None
        imports = ["import torch", "import triton", "import triton.language as tl"]
        if not own:
            used = ["device_context"] if style.device_context else []
            imports += ["", *(f"from {style.utils_module} import {n}" for n in (*used, "ensure_contiguous"))]
        blanks = {
            "contiguous_forward": "    X, offsets = X.contiguous(), offsets.contiguous()\n" if own else "",
            "contiguous_backward": "    dY, offsets = dY.contiguous(), offsets.contiguous()\n" if own else "",
            "decorator": "" if own else "    @ensure_contiguous\n",
            "launch_forward": _launch(LAUNCH_FORWARD, names, "X", style),
            "launch_backward": _launch(LAUNCH_BACKWARD, names, "dY", style),
        }
        head = [style.header.rstrip("\n")] if style.header else []
        body = [KERNELS.substitute(names).strip("\n"), WRAPPERS.substitute(names | blanks).strip("\n")]
        return "\n\n".join([*head, "\n".join(imports)]) + "\n\n\n" + "\n\n\n".join(body) + "\n"


def _launch(text: Text, names: dict[str, str], tensor: str, style: ModuleStyle) -> str:
    lines = text.substitute(names).strip("\n").split("\n")
    if style.device_context:
        lines = [f"with device_context({tensor}.device):", *(f"    {line}" for line in lines)]
    return "\n".join(f"    {line}" for line in lines)
