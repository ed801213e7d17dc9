"""Print the autograd Function around the two wrappers. Pure."""

from __future__ import annotations

from kernels.call_signature import arguments
from kernels.derivation import Derivation
from kernels.module_style import ModuleStyle
from kernels.op_spec import ScalarSpec
from kernels.passes.names import stem
from kernels.wrapper_printer import WrapperPrinter

INDENT = "    "


def print_function(
    derivation: Derivation, style: ModuleStyle, forward: WrapperPrinter, backward: WrapperPrinter
) -> str:
    """The autograd Function around the two wrappers."""
    args = arguments(derivation)
    parameters = [stem(n) if s is None else f"{n}={_default(s)}" for n, s in args]
    outputs = [stem(t.name) for t in forward.results() if t.kind == "output"]
    written = [stem(t.name) for t in forward.results()]
    results = [t for t in forward.results() if t.kind == "output"]
    whole = [stem(t.name) for t in results if t.dtype in ("int64", "bool")]
    tangents = [f"_d{t.name}" if t.dtype in ("int64", "bool") else stem(f"d{t.name}") for t in results]
    given_tangents = {t.name for t in backward.inputs if t.kind == "tangent"}
    saved_names = [stem(n) for n in backward.given if n not in given_tangents]
    scalars = [s.name for s in backward.scalars]
    gradients = {stem(t.name) for t in backward.results()}
    decorator = f"{INDENT}@ensure_contiguous" if style.utils_module else None
    lines = [f"class {style.function_class}(torch.autograd.Function):", f"{INDENT}@staticmethod"]
    lines += [decorator] if decorator else []
    lines += [f"{INDENT}def forward(ctx, {', '.join(parameters)}):"]
    kept = [stem(n) for n in backward.optional_gradients()]
    body = []
    if kept:
        body += [
            "# A compiled graph would copy the gradient before its backward may write to it.",
            "has_gradients = any(ctx.needs_input_grad) and not torch.compiler.is_compiling()",
        ]
    body.append(f"{', '.join(written)} = {forward.signature()}")
    body.append(f"ctx.save_for_backward({', '.join(saved_names)})")
    body += [f"ctx.{s} = {s}" for s in [*scalars, *kept]]
    body += [f"ctx.mark_non_differentiable({', '.join(whole)})"] if whole else []
    body.append(f"return {', '.join(outputs)}")
    lines += [INDENT * 2 + line for line in body]
    lines += ["", f"{INDENT}@staticmethod"]
    lines += [decorator] if decorator else []
    lines += [f"{INDENT}def backward(ctx, {', '.join(tangents)}):"]
    body = []
    if saved_names:
        body.append(f"{', '.join(saved_names)}{',' if len(saved_names) == 1 else ''} = ctx.saved_tensors")
        if len(saved_names) == 1:
            body[-1] = f"({saved_names[0]},) = ctx.saved_tensors"
    if kept:
        body.append(f"{', '.join(kept)} = {', '.join(f'ctx.{name}' for name in kept)}")
        body.append(f"{' = '.join(f'ctx.{name}' for name in kept)} = None  # a second backward computes anew")
    order = [stem(t.name) for t in backward.results()]
    body.append(f"{', '.join(order)} = {backward.signature('ctx.')}")
    aliases = {stem(a): stem(b) for a, b in derivation.aliases.items()}
    returned = []
    for name, scalar in args:
        gradient = stem(f"d{name}")
        gradient = aliases.get(gradient, gradient)
        returned.append(gradient if scalar is None and gradient in gradients else "None")
    body.append(f"return {', '.join(returned)}")
    lines += [INDENT * 2 + line for line in body]
    return "\n".join(lines)


def _default(scalar: ScalarSpec) -> str:
    return repr(scalar.default)
