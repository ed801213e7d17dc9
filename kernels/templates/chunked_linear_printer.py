"""Print linear layers and a loss by chunks of rows: the loss's kernel, and the host loop around it. Pure."""

from __future__ import annotations

from kernels.call_signature import arguments
from kernels.derivation import ChunkedLoss, Derivation
from kernels.module_style import ModuleStyle
from kernels.passes.names import stem
from kernels.printer import assemble, printed_steps
from kernels.row_program import Load, Map
from kernels.wrapper_printer import WrapperPrinter

INDENT = "    "


def print_chunked(derivation: Derivation, chunks: ChunkedLoss, style: ModuleStyle) -> str:
    """The source of the ops module."""
    loss_style = style.model_copy(update={"forward_wrapper": f"{style.op_name}_loss"})
    steps = printed_steps(chunks.loss, loss_style, backward=False)
    loss = WrapperPrinter(chunks.loss, loss_style, steps, backward=False)
    text = _Text(derivation, chunks, style, loss)
    return assemble(style, steps, [loss.print(), text.forward(), text.backward(), text.function()])


def chunked_kernel_names(chunks: ChunkedLoss, style: ModuleStyle) -> list[str]:
    """Names of the kernels that the module launches."""
    return [step.kernel for step in printed_steps(chunks.loss, style, backward=False) if step.source]


class _Text:
    """The host code around the loss."""

    def __init__(self, derivation: Derivation, chunks: ChunkedLoss, style: ModuleStyle, loss: WrapperPrinter):
        self.chunks, self.style, self.loss = chunks, style, loss
        self.arguments = arguments(derivation)
        self.specs = {t.name: t for t in derivation.op.tensors}
        self.tensors = [n for n, scalar in self.arguments if scalar is None]
        self.scalars = [s.name for _, s in self.arguments if s is not None]
        wanted = [n for n in self.tensors if n in derivation.gradient_formulas]
        self.gradients = {n: stem(f"d{n}") for n in wanted}
        self.main = stem(chunks.linears[0].x)

    def forward(self) -> str:
        names = [stem(n) for n in self.tensors]
        lines = [f"{n} = {n}.contiguous()" for n in names if self.style.utils_module is None]
        flattened = [n for n in self.tensors if self.chunks.rows == "*" and self._by_rows(n)]
        shape = f"{self.main}.shape" if flattened else ""
        if flattened:
            lines.append(f"shape = {shape}")
        for n in flattened:
            width = "" if len(self.specs[n].shape) == 1 else f", {stem(n)}.shape[-1]"
            lines.append(f"{stem(n)} = {stem(n)}.view(-1{width})")
        lines += [
            f"n_rows, n_cols = {self.main}.shape",
            "# A chunk of logits and its gradient take a quarter of the memory of the weight's gradient in fp32: fewer rows",
            "# would read and write that gradient more often, and of all rows at once the logits would be the largest tensor.",
            "chunk_rows = triton.next_power_of_2(triton.cdiv(max(n_cols, 1), 4))",
            *self._totals(),
            f"Y = torch.zeros((), dtype=torch.float32, device={self.main}.device)",
        ]
        lines += [f"{d} = {self._allocated(n)} if has_gradients else None" for n, d in self.gradients.items()]
        lines += ["for start in range(0, max(n_rows, 1), chunk_rows):", *(INDENT + x for x in self._chunk())]
        if self._is_mean():
            lines += [
                "if n_rows == 0:",
                f'{INDENT}Y = torch.full_like(Y, float("nan"))  # the mean of nothing',
            ]
        result = f"Y.to({self.main}.dtype, copy=True)" if self.chunks.rounds else "Y.clone()"
        if self.gradients:
            rounded = [INDENT + x for n, d in self.gradients.items() if (x := self._rounded(n, d))]
            lines += ["if has_gradients:", *rounded] if rounded else []
        # torch 2.11's compiler gives the gradient of what a forward both adds to and returns to the former: zero, silently.
        lines.append("# a copy: torch.compile loses the gradient of a result that is an intermediate too")
        lines.append(f"return {', '.join([result, *self.gradients.values()])}")
        return _function(f"{self.style.forward_wrapper}({self._parameters()})", lines)

    def _parameters(self, prefix: str = "") -> str:
        return ", ".join(
            [*(stem(n) for n in self.tensors), "has_gradients", *(prefix + s for s in self.scalars)]
        )

    def _totals(self) -> list[str]:
        lines = []
        for name, text in self.chunks.totals.items():
            number = ".sum()" not in text
            lines.append(
                f"{name} = torch.full((), {text}, dtype=torch.float32, device={self.main}.device)"
                if number
                else f"{name} = {text}"
            )
        return lines

    def _is_mean(self) -> bool:
        """Whether every row's part is divided by a number of rows: without rows no kernel divides by its 0."""
        numbers = {name for name, text in self.chunks.totals.items() if text == "n_rows"}
        program = self.chunks.loss.forward
        for part in program.accumulates:
            node = program.nodes[part.value]
            while isinstance(node, Map) and node.fn in ("div", "mul", "neg"):
                divisor = program.nodes[node.args[-1]]
                if node.fn == "div" and isinstance(divisor, Load) and divisor.tensor in numbers:
                    return True
                node = program.nodes[node.args[0]]
        return False

    def _allocated(self, name: str) -> str:
        linears = self.chunks.linears
        if any(linear.x == name for linear in linears):
            return f"torch.empty_like({stem(name)})"
        return f"torch.zeros_like({stem(name)}, dtype=torch.float32)"

    def _rounded(self, name: str, gradient: str) -> str:
        if any(linear.x == name for linear in self.chunks.linears):
            return f"{gradient} = {gradient}.view(shape)" if self.chunks.rows == "*" else ""
        return f"{gradient} = {gradient}.to({stem(name)}.dtype)"

    def _by_rows(self, name: str) -> bool:
        return self.specs[name].shape[:1] == (self.chunks.rows,)

    def _chunk(self) -> list[str]:
        linears = self.chunks.linears
        chunk = {n: f"{stem(n).lower()}_chunk" for n in self.tensors if self._by_rows(n)}
        lines = ["rows = slice(start, start + chunk_rows)"]
        lines += [f"{chunk[n]} = {stem(n)}[rows]" for n in chunk]
        for linear in linears:
            bias = f" + {stem(linear.bias)}" if linear.bias else ""
            lines.append(f"{linear.logits} = {chunk[linear.x]} @ {stem(linear.weight)}.t(){bias}")
        given = [chunk.get(n) or (n if n in self._own() else stem(n)) for n in self.loss.given]
        call = [*given, *(s.name for s in self.loss.scalars), "has_gradients"]
        results = ["loss", *(stem(t.name) for t in self.loss.results() if t.kind == "gradient")]
        lines += [f"{', '.join(results)} = {self.style.op_name}_loss({', '.join(call)})", "Y += loss"]
        updates: list[str] = []
        for linear in linears:
            d = stem(f"d{linear.logits}")
            if d not in results:
                continue
            if linear.x in self.gradients:
                updates.append(f"{self.gradients[linear.x]}[rows] = {d} @ {stem(linear.weight)}")
            if linear.weight in self.gradients:
                updates.append(f"{self.gradients[linear.weight]} += {d}.t() @ {chunk[linear.x]}")
            if linear.bias and linear.bias in self.gradients:
                updates.append(f"{self.gradients[linear.bias]} += {d}.sum(dim=0)")
        return [*lines, "if has_gradients:", *(INDENT + x for x in updates)]

    def _own(self) -> set[str]:
        return {linear.logits for linear in self.chunks.linears} | set(self.chunks.totals)

    def backward(self) -> str:
        given = ["dY", *self.gradients.values()]
        lines = [
            "# The forward has the gradients for an incoming gradient of 1.",
            f"return {', '.join(f'{d} * dY' for d in self.gradients.values())}",
        ]
        return _function(f"{self.style.backward_wrapper}({', '.join(given)})", lines)

    def function(self) -> str:
        gradients = list(self.gradients.values())
        decorator = ["@ensure_contiguous"] if self.style.utils_module else []
        parameters = [stem(n) if s is None else f"{n}={s.default!r}" for n, s in self.arguments]
        unpacked = f"{', '.join(gradients)}{',' if len(gradients) == 1 else ''}"
        forward = [
            "has_gradients = any(ctx.needs_input_grad)",
            f"{', '.join(['Y', *gradients])} = {self.style.forward_wrapper}({self._parameters()})",
            f"ctx.save_for_backward({', '.join(gradients)})",
            "return Y",
        ]
        backward = [
            f"{f'({unpacked})' if len(gradients) == 1 else unpacked} = ctx.saved_tensors",
            f"{', '.join(gradients)} = {self.style.backward_wrapper}(dY, {', '.join(gradients)})",
            f"return {', '.join(self.gradients.get(n, 'None') for n, _ in self.arguments)}",
        ]
        lines = [
            "@staticmethod",
            *decorator,
            *_function(f"forward(ctx, {', '.join(parameters)})", forward).split("\n"),
            "",
            "@staticmethod",
            *decorator,
            *_function("backward(ctx, dY)", backward).split("\n"),
        ]
        body = "\n".join(INDENT + line if line else "" for line in lines)
        return f"class {self.style.function_class}(torch.autograd.Function):\n{body}"


def _function(head: str, lines: list[str]) -> str:
    return "\n".join([f"def {head}:", *(INDENT + line for line in lines)])
