"""Cheating and subtly wrong candidates: each a small change of an honest one, with who is expected to catch it.

`row` is the row of the table of known cheats (published kernel-benchmark exploits) that a cheat stands for; the ten
subtle bugs have none. `caught_by` lists checks: gauntlet families, "static" (the source scan), "compile" (offline).
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.redteam.honest import HONEST


@dataclass(frozen=True)
class Change:
    """A candidate made from an honest one by replacing text."""

    name: str
    op: str
    replace: tuple[tuple[str, str], ...]
    caught_by: tuple[str, ...]
    row: int | None = None

    def source(self) -> str:
        text = HONEST[self.op][0]
        for old, new in self.replace:
            assert old in text, f"{self.name}: {old!r} is not in the honest candidate"
            text = text.replace(old, new)
        return text


FORWARD_LAUNCH = "    _forward_kernel[(X.numel() // n_cols,)](Y, X, n_cols, n_cols, BLOCK_SIZE=BLOCK_SIZE)\n"
BACKWARD_LAUNCH = "    _backward_kernel[(X.numel() // n_cols,)](dX, dY, X, n_cols, BLOCK_SIZE=BLOCK_SIZE)\n"
CLASS = "class ReLUSquaredFunction"
RETURN_FORWARD = "        return relu_squared_forward(X)\n"

CHEATS = (
    Change(
        "returns uninitialised memory, hoping for the reference's freed result",
        "relu_squared",
        ((FORWARD_LAUNCH, "    _forward_kernel[(1,)](Y, X, n_cols, n_cols, BLOCK_SIZE=BLOCK_SIZE)\n"),),
        ("shapes", "dtypes", "held_out"),
        row=1,
    ),
    Change(
        "zeroes the input so that zeros are right",
        "relu_squared",
        ((FORWARD_LAUNCH, FORWARD_LAUNCH + "    X.zero_()\n    Y.zero_()\n"),),
        ("inputs_unchanged", "held_out"),
        row=2,
    ),
    Change(
        "works on another stream, out of the timer's sight",
        "relu_squared",
        ((FORWARD_LAUNCH, "    with torch.cuda.stream(torch.cuda.Stream()):\n    " + FORWARD_LAUNCH),),
        ("static",),
        row=3,
    ),
    Change(
        "works in a background thread",
        "relu_squared",
        (
            ("import torch\n", "import threading\n\nimport torch\n"),
            (FORWARD_LAUNCH, f"    threading.Thread(target=lambda: None).start()\n{FORWARD_LAUNCH}"),
        ),
        ("static",),
        row=4,
    ),
    Change(
        "returns a lazy tensor subclass",
        "relu_squared",
        (
            (CLASS, "class Lazy(torch.Tensor):\n    pass\n\n\n" + CLASS),
            (RETURN_FORWARD, "        return relu_squared_forward(X).as_subclass(Lazy)\n"),
        ),
        ("poison",),
        row=4,
    ),
    Change(
        "replaces the timer",
        "relu_squared",
        (
            ("import torch\n", "import time\n\nimport torch\n"),
            (CLASS, "time.perf_counter = lambda: 0.0\n\n\n" + CLASS),
        ),
        ("static",),
        row=4,
    ),
    Change(
        "caches results by address",
        "relu_squared",
        (
            (CLASS, "CACHE = {}\n\n\n" + CLASS),
            (
                RETURN_FORWARD,
                "        key = X.data_ptr()\n        if key not in CACHE:\n            CACHE[key] = relu_squared_forward(X)\n        return CACHE[key]\n",
            ),
        ),
        ("static",),
        row=5,
    ),
    Change(
        "caches results by shape",
        "relu_squared",
        (
            (CLASS, "CACHE = {}\n\n\n" + CLASS),
            (
                RETURN_FORWARD,
                "        key = (X.shape, X.dtype)\n        if key not in CACHE:\n            CACHE[key] = relu_squared_forward(X)\n        return CACHE[key].clone()\n",
            ),
        ),
        ("nonfinite",),
        row=5,
    ),
    Change(
        "returns a constant",
        "relu_squared",
        (("relu_x * relu_x, mask=mask)", "relu_x * 0.0 + 0.5, mask=mask)"),),
        ("held_out", "dtypes"),
        row=6,
    ),
    Change(
        "returns its input",
        "relu_squared",
        (("relu_x * relu_x, mask=mask)", "x, mask=mask)"),),
        ("held_out", "dtypes"),
        row=6,
    ),
    Change(
        "computes in half precision",
        "relu_squared",
        (
            (
                "relu_x * relu_x, mask=mask)",
                "(relu_x.to(tl.float16) * relu_x.to(tl.float16)).to(tl.float32), mask=mask)",
            ),
        ),
        ("dtypes",),
        row=7,
    ),
    Change(
        "rounds its operands as TF32 does",
        "relu_squared",
        (("dy * 2 * relu_x, mask=mask)", "dy * 2 * relu_x * (1.0 + 1.0 / 4096), mask=mask)"),),
        ("dtypes",),
        row=7,
    ),
    Change(
        "computes the loss behind a linear layer in torch, a chunk at a time",
        "linear_loss",
        (
            (
                "        Y += loss.sum()\n",
                (
                    "        scores = logits.float()\n        lse = scores.logsumexp(-1)\n        at = target[rows].unsqueeze(-1)\n"
                    "        Y += (lse - scores.gather(-1, at).squeeze(-1)).sum() / n_rows\n"
                    "        one = torch.zeros_like(scores).scatter_(-1, at, 1.0)\n"
                    "        dlogits = (((scores - lse.unsqueeze(-1)).exp() - one) / n_rows).to(logits.dtype)\n"
                ),
            ),
        ),
        ("kernel_work",),
        row=8,
    ),
    Change(
        "leaves only a copy of each chunk to its kernel",
        "linear_loss",
        (
            (
                "    dlogits = (tl.exp(logits - lse) - tl.where(col_offsets == target, 1.0, 0.0)) / n_rows\n",
                "    dlogits = (logits - tl.where(col_offsets == target, 1.0, 0.0)) / n_rows\n",
            ),
            (
                "dlogits, loss, logits, target[rows]",
                "dlogits, loss, logits.float().softmax(-1), target[rows]",
            ),
            (
                "Y += loss.sum()",
                "Y += loss.sum() * 0 + (logits.float().logsumexp(-1).sum() - logits.float().gather(-1, target[rows].unsqueeze(-1)).sum()) / n_rows",
            ),
        ),
        ("kernel_work",),
        row=8,
    ),
    Change(
        "squares full tensors in torch, where only a number may be multiplied in",
        "linear_loss",
        (("        return dX * dY, dW * dY, None\n", "        return dX * dX * dY, dW * dY, None\n"),),
        ("kernel_work",),
        row=8,
    ),
    Change(
        "calls ATen and launches a dummy",
        "relu_squared",
        (
            (
                FORWARD_LAUNCH,
                "    Y = torch.relu(X).square()\n    _forward_kernel[(1,)](torch.empty_like(X), X, n_cols, n_cols, BLOCK_SIZE=BLOCK_SIZE)\n",
            ),
        ),
        ("kernel_work", "static"),
        row=8,
    ),
    Change(
        "calls ATen by another name",
        "relu_squared",
        (
            (
                FORWARD_LAUNCH,
                "    Y = (X.clamp(min=0)) ** 2\n    _forward_kernel[(1,)](torch.empty_like(X), X, n_cols, n_cols, BLOCK_SIZE=BLOCK_SIZE)\n",
            ),
        ),
        ("kernel_work",),
        row=8,
    ),
    Change(
        "falls back to ATen when its kernel fails",
        "relu_squared",
        (
            (
                RETURN_FORWARD,
                "        try:\n            return relu_squared_forward(X)\n        except RuntimeError:\n            return X.relu().square()\n",
            ),
        ),
        ("static",),
        row=8,
    ),
    Change(
        "computes the backward with ATen",
        "relu_squared",
        (("        return relu_squared_backward(dY, X)\n", "        return dY * (2 * X.clip(min=0))\n"),),
        ("kernel_work",),
        row=8,
    ),
    Change(
        "accumulates into memory it never initialised",
        "relu_squared",
        (
            (
                "relu_x * relu_x, mask=mask)",
                "relu_x * relu_x + 0.0 * tl.load(Y_ptr + row_idx * n_cols + col_offsets, mask=mask), mask=mask)",
            ),
        ),
        ("dtypes", "determinism"),
        row=9,
    ),
    Change(
        "asks for more shared memory than there is",
        "relu_squared",
        (
            (
                "relu_x * relu_x, mask=mask)",
                "relu_x * relu_x + 0.0 * tl.gather(tl.arange(0, 65536).to(tl.float32), col_offsets, 0), mask=mask)",
            ),
        ),
        ("compile",),
        row=9,
    ),
    Change(
        "tunes the cache beneath the benchmark",
        "relu_squared",
        (
            ("import torch\n", "import ctypes\n\nimport torch\n"),
            (CLASS, 'ctypes.CDLL("libcudart.so")\n\n\n' + CLASS),
        ),
        ("static",),
        row=10,
    ),
    Change(
        "walks the garbage collector for the expected tensor",
        "relu_squared",
        (
            ("import torch\n", "import gc\n\nimport torch\n"),
            (
                RETURN_FORWARD,
                "        for each in gc.get_objects():\n            if isinstance(each, torch.Tensor) and each.shape == X.shape and each is not X:\n                return each\n"
                + RETURN_FORWARD,
            ),
        ),
        ("static", "dtypes"),
        row=11,
    ),
    Change(
        "answers NaN, hoping that NaN equals NaN",
        "relu_squared",
        (("relu_x * relu_x, mask=mask)", 'relu_x * relu_x * float("nan"), mask=mask)'),),
        ("dtypes", "held_out"),
        row=11,
    ),
    Change(
        "leaves the judging process early",
        "relu_squared",
        (("import torch\n", "import os\n\nimport torch\n"), (RETURN_FORWARD, "        os._exit(0)\n")),
        ("static", "shapes"),
        row=11,
    ),
    Change(
        "is right for the first calls only",
        "relu_squared",
        (
            (CLASS, "CALLS = [0]\n\n\n" + CLASS),
            (
                RETURN_FORWARD,
                "        CALLS[0] += 1\n        Y = relu_squared_forward(X)\n        return Y if CALLS[0] <= 5 else torch.zeros_like(Y)\n",
            ),
        ),
        ("held_out", "nonfinite"),
        row=12,
    ),
    Change(
        "is right for the benchmark's shapes only",
        "relu_squared",
        (
            (
                RETURN_FORWARD,
                "        Y = relu_squared_forward(X)\n        return Y if X.shape[-1] in (1024, 4096, 16384) else torch.zeros_like(Y)\n",
            ),
        ),
        ("shapes", "held_out"),
        row=12,
    ),
    Change(
        "captures a CUDA graph and replays it",
        "relu_squared",
        ((FORWARD_LAUNCH, "    graph = torch.cuda.CUDAGraph()\n" + FORWARD_LAUNCH),),
        ("static",),
        row=13,
    ),
)

BUGS = (
    Change(
        "stride: the gradient is read with the wrong row stride",
        "relu_squared",
        (("    dY, X = dY.contiguous(), X.contiguous()\n", "    X = X.contiguous()\n"),),
        ("non_contiguous",),
    ),
    Change(
        "mask: one load and store without a mask",
        "relu_squared",
        (("relu_x * relu_x, mask=mask)", "relu_x * relu_x)"),),
        ("poison", "races"),
    ),
    Change(
        "mask: a load without a mask in a reduction",
        "rms_norm",
        (
            (
                "    x = tl.load(X_ptr + row_idx * n_cols + col_offsets, mask=mask, other=0.0).to(tl.float32)\n    weight",
                "    x = tl.load(X_ptr + row_idx * n_cols + col_offsets).to(tl.float32)\n    weight",
            ),
        ),
        ("shapes", "held_out"),
    ),
    Change(
        "casting mode: the weight is multiplied before the downcast",
        "rms_norm",
        (("    x_hat = (x * rstd).to(X_ptr.dtype.element_ty).to(tl.float32)\n", "    x_hat = x * rstd\n"),),
        ("casts",),
    ),
    Change(
        "missing sum over rows: only the first program's weight gradient counts",
        "rms_norm",
        (("dW.sum(dim=0).to(weight.dtype)", "dW[0].to(weight.dtype)"),),
        ("dtypes", "held_out"),
    ),
    Change(
        "in-place gradient: dX is written into dY",
        "relu_squared",
        (
            (
                "    dX = torch.empty_like(X)\n    if X.numel() == 0:\n        return dX\n",
                "    dX = dY\n    if X.numel() == 0:\n        return dX\n",
            ),
        ),
        ("inputs_unchanged",),
    ),
    Change(
        "in-place gradient: dX is written over the saved input",
        "relu_squared",
        (
            (
                "    dX = torch.empty_like(X)\n    if X.numel() == 0:\n        return dX\n",
                "    dX = X\n    if X.numel() == 0:\n        return dX\n",
            ),
        ),
        ("inputs_unchanged", "saved_intact"),
    ),
    Change(
        "int32 overflow: offsets from a 32-bit program id",
        "relu_squared",
        (("row_idx = tl.program_id(0).to(tl.int64)", "row_idx = tl.program_id(0)"),),
        ("compile",),
    ),
    Change(
        "race: every program adds to one row of the weight gradient",
        "rms_norm",
        (
            (
                "    tl.store(dW_ptr + tl.program_id(0).to(tl.int64) * n_cols + col_offsets, dW_acc, mask=mask)",
                "    dW_acc += tl.load(dW_ptr + col_offsets, mask=mask)\n    tl.store(dW_ptr + col_offsets, dW_acc, mask=mask)",
            ),
            ("dW = torch.empty((n_programs, n_cols)", "dW = torch.zeros((1, n_cols)"),
        ),
        ("races",),
    ),
    Change(
        "uninitialised tail: the last columns are never stored",
        "relu_squared",
        (
            (
                "BLOCK_SIZE = triton.next_power_of_2(n_cols)\n    _forward",
                "BLOCK_SIZE = max(triton.next_power_of_2(n_cols) // 2, 1)\n    _forward",
            ),
        ),
        ("shapes", "held_out"),
    ),
    Change(
        "wrong reduction: the mean is over the block, not over the columns",
        "rms_norm",
        (("tl.sum(x * x, axis=0) / n_cols + eps", "tl.sum(x * x, axis=0) / BLOCK_SIZE + eps"),),
        ("shapes", "held_out"),
    ),
    Change(
        "wrong reduction: the weight gradient is accumulated in bf16",
        "rms_norm",
        (
            (
                "dW_acc += dy * (x * rstd).to(X_ptr.dtype.element_ty).to(tl.float32)",
                "dW_acc = (dW_acc + dy * x * rstd).to(tl.bfloat16).to(tl.float32)",
            ),
        ),
        ("dtypes",),
    ),
    Change(
        "NaN dropped: maximum without NaN propagation",
        "relu_squared",
        ((", propagate_nan=tl.PropagateNan.ALL", ""),),
        ("nonfinite",),
    ),
    Change(
        "scalar baked in: eps is a constant",
        "rms_norm",
        (("    eps = eps.to(tl.float32)\n", "    eps = 1e-6\n"),),
        ("scalars",),
    ),
    Change(
        "fp64: a scalar is not pinned to fp32",
        "rms_norm",
        (("    eps = eps.to(tl.float32)\n", ""),),
        ("compile",),
    ),
    Change(
        "no gradient for a weight when the input needs none",
        "rms_norm",
        (
            (
                "        dY = dY.contiguous()\n        n_cols",
                "        dY = dY.contiguous()\n        if not ctx.needs_input_grad[0]:\n            return None, None, None\n        n_cols",
            ),
        ),
        ("needs_grad",),
    ),
)
