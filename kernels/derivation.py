"""The result of deriving an op: what was decided and why, and the row programs that the printer prints. Pure.

`derive` (kernels/derive.py) makes one from a TracedOp; profiles quote it; `print_module` (kernels/printer.py) prints it.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kernels.op_spec import Frozen, OpSpec
from kernels.row_program import RowProgram


class Unsupported(Exception):  # noqa: N818 - the design's word; it is an answer, not a fault
    """An op outside the rules. Shown to the person as it stands and handed to the model.

    reason: one sentence · node: the operation ("aten.sort.default") · where: "line 4: y = x.sort()" ·
    needed: what would be needed to support it.
    """

    def __init__(
        self, reason: str, *, node: str | None = None, where: str | None = None, needed: str | None = None
    ):
        super().__init__(reason)
        self.reason, self.node, self.where, self.needed = reason, node, where, needed


class Operand(Frozen):
    """A tensor that a kernel reads or writes."""

    name: str
    role: Literal["full", "column", "row", "scalar"] = Field(
        description="full: every element its own value; column: one per column; row: one per row"
    )
    shape: str = Field(description='for people, e.g. "(*, n_cols)"')
    dtype: str = Field(description='"same as input", "float32", "int64", "bool"')


class Saved(Frozen):
    """A tensor kept for the backward, and why it and not another."""

    name: str
    role: Literal["full", "column", "row", "scalar"]
    why: str


class Rule(Frozen):
    """One rule that was applied, for the profile's evidence."""

    rule: str = Field(description='the pass or rule, e.g. "silu"; docs/derivation.md explains each')
    note: str = Field(description="what it did here, one line")
    where: str | None = Field(default=None, description="source line in the reference")


class Traffic(Frozen):
    """The bytes-moved model, per element of the full tensor: divide by bandwidth for the roofline floor.

    Counts are numbers of full-tensor reads + writes (each `itemsize` bytes an element); row and column operands are
    counted by `per_row_bytes`. A scalar loss has an incoming gradient of 1. Eager counts come from the traced ATen graph: each op reads its inputs and writes its output.
    """

    forward_tensors: int
    backward_tensors: int
    eager_forward_tensors: int
    eager_backward_tensors: int
    forward_per_row_bytes: int = 0
    backward_per_row_bytes: int = 0
    transcendentals_forward: int = 0
    transcendentals_backward: int = 0
    peak_tensors: int = Field(
        description="full tensors alive at the peak of forward + backward, inputs and gradients included"
    )
    eager_peak_tensors: int


class KernelSchedule(Frozen):
    """How one row program is laid on the GPU."""

    name: Literal[
        "persistent_row", "looped_row", "row_block", "tile", "flat", "split_row", "group_reduce", "template"
    ]
    why: str
    live_vectors: int = Field(description="fp32 vectors of BLOCK_SIZE alive at once: what decides spilling")
    block_size: str = Field(
        description='"calculate_settings(n_cols)" or what the kernel uses instead, and why'
    )
    num_warps: str
    grid: str = Field(description='e.g. "one program per row"')


class Step(Frozen):
    """One kernel launch, or one host step on small tensors (schedule None)."""

    program: RowProgram
    schedule: KernelSchedule | None


class Linear(Frozen):
    """A linear layer before a loss: logits = x @ weight.T, plus bias."""

    x: str
    weight: str
    bias: str | None
    logits: str = Field(description="what the loss calls them")


class Derivation(Frozen):
    """Everything decided about one op, and its row programs."""

    op: OpSpec
    tier: Literal[1, 2, 3] = Field(description="1 element-wise, 2 row reduction, 3 fused or complex")
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    forward_formula: str
    gradient_formulas: dict[str, str] = Field(
        description="input name -> formula, as printed in the kernel's docstring"
    )
    definitions: dict[str, str] = Field(
        default_factory=dict, description="values of a row that the gradient formulas name, e.g. rstd"
    )
    precision_sensitive: tuple[str, ...] = Field(description="operations done in fp32")
    casts_kept: tuple[str, ...] = Field(
        default=(), description="the reference's own casts, which change the result"
    )
    saved: tuple[Saved, ...]
    recomputed: tuple[str, ...] = Field(default=(), description="values computed again in the backward")
    rules: tuple[Rule, ...] = ()
    traffic: Traffic
    forward_schedule: KernelSchedule
    backward_schedule: KernelSchedule
    forward: RowProgram
    backward: RowProgram
    forward_steps: tuple[Step, ...] = Field(
        default=(), description="every launch and host step of the forward, in order"
    )
    backward_steps: tuple[Step, ...] = Field(
        default=(), description="every launch and host step of the backward, in order"
    )
    gradient_in_forward: bool = Field(
        default=False,
        description="the forward writes the gradients for an incoming gradient of 1; the backward runs for any other",
    )
    aliases: dict[str, str] = Field(
        default_factory=dict,
        description="gradient -> the equal gradient of another input, whose tensor it shares",
    )
    template: str | None = Field(
        default=None,
        description="the template in kernels/templates that prints it, where the rules derive nothing",
    )
    chunks: ChunkedLoss | None = Field(default=None, description="linear layers and a loss by chunks of rows")
    warnings: tuple[str, ...] = Field(
        default=(), description="numerical or semantic points a reviewer should know"
    )


class ChunkedLoss(Frozen):
    """Linear layers and the loss of their logits, chunk of rows by chunk of rows (kernels/templates/chunked_linear.py)."""

    loss: Derivation = Field(description="of one chunk; its forward writes the gradients of the logits too")
    linears: tuple[Linear, ...]
    totals: dict[str, str] = Field(
        description="numbers that belong to all rows -> torch code that computes them"
    )
    rows: str = Field(description='the axis of the rows, "*" or a name')
    rounds: bool = Field(description="whether the loss has the inputs' dtype")


Derivation.model_rebuild()
