"""The sums of a wrapper: buffers for what each program leaves, and the lines that add them up. Pure."""

from __future__ import annotations

from kernels.passes.names import stem
from kernels.passes.program import group_axes
from kernels.quantity import Factor, Quantity
from kernels.row_program import Map, RowProgram, Symbol
from kernels.schedules import tiles_columns
from kernels.wrapper_tensors import PrintedStep, WrapperTensors

INDENT = "    "


class WrapperSums(WrapperTensors):
    """Partial sums of one direction's kernels."""

    part_buffers = 0  # shared buffers so far, for their names

    def _partials(
        self, step: PrintedStep, accumulated: list[str], main: str, programs: str
    ) -> tuple[list[str], list[str]]:
        """Buffers of one part a program, and the sums over them; sums over buffers of one shape share a launch."""
        buffers: list[str] = []
        sums: dict[str, list[str]] = {}
        together: dict[str, list[str]] = {}
        shapes: dict[str, str] = {}
        groups = group_axes(step.program)
        for name in accumulated:
            tensor = self.tensors[name]
            own = tuple(a for a in tensor.axes if a not in step.program.rows)
            size = self.shapes.size(own)
            scalar = size.same(Quantity())
            parts = (
                f"{programs} * n_tiles"
                if step.schedule == "row_block" and tiles_columns(step.program)
                else programs
            )
            shape = f"{parts}" if scalar else f"{programs}, {self.size(size)}"
            if groups and set(tensor.axes) & set(step.program.rows):
                buffers.append(self._buffer(f"_{stem(name)}", shape, main))
                by_group = f"_{stem(name)}.view(n_groups, programs_per_group, {self.size(size)})"
                text = f"{by_group}.sum(dim=1){self._shaped(name)}{self.to_result(tensor)}"
                sums[name] = [f"{stem(name)} = {text}"]
            else:
                # a forward's results are cast in the sum itself: a cast that changes nothing returns the same tensor
                same = shape if self.backward else f"{shape} {self.result_dtype(tensor)}"
                together.setdefault(same, []).append(name)
                shapes[same] = shape
        for same, names in together.items():
            shape = shapes[same]
            made, summed = self._summed_together(names, shape, main)
            buffers += made
            sums |= summed
        for name in accumulated:
            divisor = self._divisor(step.program, name) if self.tensors[name].kind == "output" else None
            if divisor and not self.tensors[name].axes:
                nan = f'torch.full_like({stem(name)}, float("nan"))'
                sums[name] += [f"if {divisor} == 0:", f"{INDENT}{stem(name)} = {nan}  # the mean of nothing"]
        return buffers, [line for lines in sums.values() for line in lines]

    def _summed_together(
        self, names: list[str], shape: str, main: str
    ) -> tuple[list[str], dict[str, list[str]]]:
        """The buffers of the parts of `names`, all of one shape, and the lines that add them up."""
        dtypes = list(dict.fromkeys(self.result_dtype(self.tensors[n]) for n in names))
        if len(names) == 1:
            text = f"sum_parts(_{stem(names[0])}, {dtypes[0]}){self._shaped(names[0])}"
            return [self._buffer(f"_{stem(names[0])}", shape, main)], {
                names[0]: [f"{stem(names[0])} = {text}"]
            }
        self.part_buffers += 1
        parts = "_parts" if self.part_buffers == 1 else f"_parts_{self.part_buffers}"
        buffers = [
            self._buffer(parts, f"{len(names)}, {shape}", main),
            f"{', '.join(f'_{stem(n)}' for n in names)} = {parts}",
        ]
        dtype = dtypes[0] if len(dtypes) == 1 else f"{dtypes[0]} if {' == '.join(dtypes)} else torch.float32"
        summed = [f"{', '.join(stem(n) for n in names)} = sum_parts({parts}, {dtype}, dim=1)"]
        for name in names:
            cast = f".to({self.result_dtype(self.tensors[name])})" if len(dtypes) > 1 else ""
            if self._shaped(name) or cast:
                summed.append(f"{stem(name)} = {stem(name)}{self._shaped(name)}{cast}")
        return buffers, {names[0]: summed} | {name: [] for name in names[1:]}

    @staticmethod
    def _buffer(name: str, shape: str, main: str) -> str:
        """One fp32 allocation of the parts; `shape` is the inside of a tuple."""
        inside = shape if ", " in shape else f"{shape},"
        return f"{name} = torch.empty(({inside}), dtype=torch.float32, device={main}.device)"

    def _shaped(self, name: str) -> str:
        tensor = self.tensors[name]
        shaped = len(tensor.dims) > 1 or (len(tensor.dims) == 1 and self.shapes.star(tensor))
        return f".view({self.shape(tensor)})" if shaped else ""

    def _divisor(self, program: RowProgram, name: str) -> str | None:
        """The size that every part of a mean is divided by: with nothing to add up no program divides by its 0."""
        node = program.nodes[next(a.value for a in program.accumulates if a.tensor == name)]
        while isinstance(node, Map) and node.fn in ("div", "mul", "neg"):
            may_be_below = node.args[1:] if node.fn == "div" else node.args
            number = next((n for i in may_be_below if isinstance(n := program.nodes[i], Symbol)), None)
            if number is not None:
                below = 1 if node.fn == "div" else -1  # times n ** -1 is a division too
                sizes = [
                    Factor(atom=f.atom, power=below * f.power)
                    for f in number.quantity.factors
                    if below * f.power > 0 and f.atom.name in self.axes
                ]
                if sizes:
                    return self.size(Quantity(factors=tuple(sizes)))
            first = program.nodes[node.args[0]]
            node = program.nodes[node.args[-1]] if first is number else first
        return None
