"""Where a tensor's elements are, seen from a kernel: offsets as text, and the sizes they need as arguments. Pure."""

from __future__ import annotations

from kernels.row_program import SPLITS, RowProgram, Tensor


class Offsets:
    """Writes element offsets of contiguous tensors from the row index and the column offsets."""

    def __init__(self, program: RowProgram, *, flat: bool):
        self.program, self.flat = program, flat
        self.rows, self.cols = set(program.rows), set(program.cols)
        self.sizes: dict[str, None] = {}  # arguments, in the order in which they were needed
        self.axis_sizes: dict[str, str] = {}  # argument -> the axis whose size it is
        self.strided = False  # columns are not neighbours in memory: their offsets need 64 bits

    def offset(
        self, tensor: Tensor, at: tuple[tuple[str, int], ...], given: dict[str, str] | None = None
    ) -> str:
        """The element offset of a tensor inside this kernel, as text. `given`: axes whose coordinate is a value."""
        if self.flat:
            return "offsets" if tensor.axes else "0"
        given = {SPLITS: "split_offsets", **(given or {})}
        fixed = dict(at)
        axes = list(tensor.axes)
        terms: list[str] = []
        position = 0
        while position < len(axes):
            axis = axes[position]
            if axis in given:
                terms.append(_times(given[axis], self._stride(axes[position + 1 :])))
                position += 1
                continue
            if self.program.axis(axis).unroll:
                stride = self._stride(axes[position + 1 :])
                which = fixed.get(axis, 0)
                if which:
                    terms.append(stride if which == 1 and stride != "1" else _times(str(which), stride))
                position += 1
                continue
            order = self.program.rows if axis in self.rows else self.program.cols
            start = order.index(axis)
            length = 1
            while (
                position + length < len(axes)
                and start + length < len(order)
                and axes[position + length] == order[start + length]
                and axes[position + length] not in given
            ):
                length += 1
            index = self._run_index(order, start, length, "row_idx" if axis in self.rows else "col_offsets")
            stride = self._stride(axes[position + length :])
            if axis in self.cols and (stride != "1" or index != "col_offsets"):
                self.strided = True
            terms.append(_times(index, stride))
            position += length
        return " + ".join(terms) or "0"

    def _run_index(self, order: tuple[str, ...], start: int, length: int, whole: str) -> str:
        """The coordinate on a run of consecutive axes, taken out of the flat index over all of them."""
        text = whole
        inner = order[start + length :]
        if inner:
            text = f"{text} // {parenthesised(self.product(inner))}"
        if start:
            text = f"{'(' + text + ')' if inner else text} % {parenthesised(self.product(order[start : start + length]))}"
        return f"({text})" if text != whole else text

    def _stride(self, axes: list[str]) -> str:
        return self.product(tuple(axes))

    def product(self, axes: tuple[str, ...]) -> str:
        """The number of elements on some axes, as text; registers the sizes it needs."""
        number = 1
        names: list[str] = []
        rest = list(axes)
        cols = list(self.program.cols)
        while rest:
            if cols and rest[: len(cols)] == cols:
                self.sizes["n_cols"] = None
                names.append("n_cols")
                rest = rest[len(cols) :]
                continue
            axis = self.program.axis(rest.pop(0))
            if axis.unroll:
                number *= axis.unroll
            else:
                names.append(self._size_name(axis.name))
        if number != 1:
            names.insert(0, str(number))
        return " * ".join(names) or "1"

    def _size_name(self, axis: str) -> str:
        """The argument that holds an axis size. n_cols and n_rows are the block's and the grid's, whatever their axes."""
        if self.program.rows == (axis,):
            name = "n_rows"
        elif axis == SPLITS:
            name = SPLITS
        else:
            name = axis if axis.startswith("n_") else f"n_{axis}"
            name = f"{name}_axis" if name in ("n_cols", "n_rows") else name
            self.axis_sizes[name] = axis
        self.sizes[name] = None
        return name


def _times(one: str, other: str) -> str:
    if other == "1":
        return one
    if one == "1":
        return other
    return f"{one} * {parenthesised(other)}"


def parenthesised(text: str) -> str:
    return f"({text})" if " " in text else text
