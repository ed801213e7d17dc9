"""How a kernel reads a tensor, directly or by an index, and how it draws random numbers. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.passes.names import stem
from kernels.row_program import Gather, Load, Tensor, Uniform

if TYPE_CHECKING:
    from kernels.kernel_statements import KernelStatements


def load(kernel: KernelStatements, index: int, node: Load) -> str:
    tensor = kernel.program.tensor(node.tensor)
    pointer = f"{stem(node.tensor)}_ptr"
    offset = kernel.offsets.offset(tensor, node.at)
    address = pointer if offset == "0" else f"{pointer} + {offset}"
    mask = kernel.mask(kernel.axes[index])
    fill = kernel.padding.fill.get(index, 0.0)
    other = "0.0" if fill == 0 else '-float("inf")' if fill < 0 else 'float("inf")'
    if tensor.dtype in ("int64", "bool"):
        other = "0"
    eviction = kernel.eviction_policy(kernel.axes[index])
    text = f"tl.load({address}, mask={mask}, other={other}{eviction})" if mask else f"tl.load({address})"
    return text if tensor.dtype in ("int64", "bool") else f"{text}.to(tl.float32)"


def uniform(kernel: KernelStatements, node: Uniform) -> str:
    """Random numbers by the element's offset: the same ones in the backward, whatever its schedule."""
    seed = kernel.text.write(node.seed).text
    if kernel.schedule == "flat":
        kernel.text.helpers.add("uniform_block")
        return f"uniform_block({seed}, tl.program_id(0).to(tl.int64) * BLOCK_SIZE, BLOCK_SIZE)"
    tensor = Tensor(name="", dims=(node.axes,), dtype="float32", kind="partial")
    offset = kernel.offsets.offset(tensor, node.at)
    row, plus, column = offset.rpartition(" + ")
    if not plus or column != "col_offsets" or "col_offsets" in row:
        kernel.text.helpers.add("uniform_at")
        return f"uniform_at({seed}, {offset})"
    block = "tl.program_id(1) * BLOCK_SIZE" if kernel.two_d or kernel.tiled else "start"
    start = (
        f"{row} + {block}"
        if kernel.two_d or kernel.tiled or kernel.schedule in ("looped_row", "split_row")
        else row
    )
    helper, sizes = ("uniform_tile", "BLOCK_ROWS, ") if kernel.two_d else ("uniform_row", "")
    kernel.text.helpers.add(helper)
    kernel.offsets.sizes["n_cols"] = None
    return f"{helper}({seed}, {start}, n_cols, {sizes}BLOCK_SIZE)"


def gather(kernel: KernelStatements, node: Gather) -> str:
    """An indirect load. An index outside the axis (an ignored label) reads nothing and gives 0."""
    tensor = kernel.program.tensor(node.tensor)
    at = kernel.text.write(node.index).text
    axis = kernel.program.axis(node.axis)
    size = kernel.offsets.product((axis.name,))
    own = (kernel.axes[node.index] | (frozenset(tensor.axes) - {node.axis})) - {a for a, _ in node.at}
    inside = f"({at} >= 0) & ({at} < {size})"
    mask = kernel.mask(own)
    address = f"{stem(node.tensor)}_ptr + {kernel.offsets.offset(tensor, node.at, {node.axis: at})}"
    condition = f"{mask} & {inside}" if mask else inside
    text = f"tl.load({address}, mask={condition}, other=0.0)"
    return text if tensor.dtype in ("int64", "bool") else f"{text}.to(tl.float32)"
