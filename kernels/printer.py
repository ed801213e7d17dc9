"""Print a derivation as a complete ops module, as a maintainer of the target repository would write it. Pure."""

from __future__ import annotations

import textwrap

from kernels.call_signature import call_order
from kernels.derivation import Derivation
from kernels.function_printer import print_function
from kernels.helpers import CONSTANTS, helper_sources
from kernels.kernel_printer import KernelPrinter
from kernels.module_style import ModuleStyle
from kernels.partial_sums import sum_parts_source
from kernels.row_program import RowProgram
from kernels.schedules import MOST_SPLITS, SPLIT_PROGRAMS
from kernels.templates.registry import TEMPLATES
from kernels.tidy import tidy
from kernels.wrapper_printer import WrapperPrinter
from kernels.wrapper_tensors import PrintedStep

__all__ = ["call_order", "kernel_names", "print_module"]

CALCULATE_SETTINGS = """
def calculate_settings(n_cols):
    BLOCK_SIZE = triton.next_power_of_2(n_cols)
    if BLOCK_SIZE > 65536:
        raise RuntimeError(f"a row of {n_cols} columns doesn't fit one block of 65536")
    num_warps = 4
    if BLOCK_SIZE >= 32768:
        num_warps = 32 if torch.version.hip is None else 16
    elif BLOCK_SIZE >= 8192:
        num_warps = 16
    elif BLOCK_SIZE >= 2048:
        num_warps = 8
    return BLOCK_SIZE, num_warps
"""
SM_COUNT = """
def get_sm_count(device):
    # Programs that share the rows. Elsewhere (Triton's interpreter on a CPU) a few, so that partial sums are exercised.
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).multi_processor_count
    if device.type == "xpu":
        return torch.xpu.get_device_properties(device).gpu_eu_count
    return 4
"""
SPLIT_COUNT = f"""
def split_count(n_rows, n_cols, BLOCK_SIZE, device):
    # Programs that share a row: {SPLIT_PROGRAMS} a multiprocessor over all rows, and no more than there are blocks
    wanted = triton.cdiv({SPLIT_PROGRAMS} * get_sm_count(device), max(n_rows, 1))
    return max(1, min(wanted, triton.cdiv(n_cols, BLOCK_SIZE), {MOST_SPLITS}))
"""
PIPELINE_STAGES = """
def pipeline_stages(n_cols, *element_sizes):
    # Two rows, or blocks of one, wait in shared memory while one is computed: NVIDIA GPUs have 96 KiB of it
    row_bytes = n_cols * sum(element_sizes)
    return 3 if torch.version.hip is None and 2 * row_bytes <= 98304 else 1
"""
WIDTH = 110


def kernel_names(derivation: Derivation, style: ModuleStyle) -> list[str]:
    """Names of the @triton.jit kernels that are launched, in the printed module."""
    if derivation.chunks:
        from kernels.templates.chunked_linear_printer import chunked_kernel_names

        return chunked_kernel_names(derivation.chunks, style)
    if derivation.template:
        return TEMPLATES[derivation.template].kernel_names(style)
    steps = [
        *printed_steps(derivation, style, backward=False),
        *printed_steps(derivation, style, backward=True),
    ]
    return [step.kernel for step in steps if step.source]


def print_module(derivation: Derivation, style: ModuleStyle) -> str:
    """The source of the ops module: helpers, kernels, wrappers and the autograd Function."""
    if not style.utils_module and style.device_context:
        raise ValueError("device_context needs a utils_module that has it")
    if derivation.chunks:
        from kernels.templates.chunked_linear_printer import (
            print_chunked,
        )  # it assembles its module with this one

        return print_chunked(derivation, derivation.chunks, style)
    if derivation.template:
        return tidy(TEMPLATES[derivation.template].print(derivation, style))
    forward_steps = printed_steps(derivation, style, backward=False)
    backward_steps = printed_steps(derivation, style, backward=True)
    forward = WrapperPrinter(derivation, style, forward_steps, backward=False)
    backward = WrapperPrinter(derivation, style, backward_steps, backward=True)
    host = [forward.print(), backward.print(), print_function(derivation, style, forward, backward)]
    return assemble(style, [*forward_steps, *backward_steps], host)


def assemble(style: ModuleStyle, steps: list[PrintedStep], host: list[str]) -> str:
    """A module: the imports, constants and helpers that the steps need, their kernels, and the host code around them."""
    sources = [s.source for s in steps if s.source]
    needs_settings = any("calculate_settings(" in text for text in host)
    imports = ["import torch", "import triton", "import triton.language as tl"]
    if style.utils_module:
        names = ["calculate_settings"] if needs_settings else []
        names += ["device_context"] if style.device_context else []
        names += ["ensure_contiguous"]
        imports += ["", *(f"from {style.utils_module} import {name}" for name in names)]
    parts: list[str] = []
    if style.header:
        parts.append(style.header.rstrip("\n"))
    parts.append("\n".join(imports))
    constants = sorted({c for s in sources for c in s.constants}, key=list(CONSTANTS).index)
    if constants:
        parts.append(
            "\n".join(f"{c} = tl.constexpr({CONSTANTS[c][0]!r})  # {CONSTANTS[c][1]}" for c in constants)
        )
    blocks: list[str] = []
    if needs_settings and not style.utils_module:
        blocks.append(CALCULATE_SETTINGS.strip("\n"))
    splits = any("split_count(" in text for text in host)
    if splits or any("get_sm_count(" in text for text in host):
        blocks.append(SM_COUNT.strip("\n"))
    if splits:
        blocks.append(SPLIT_COUNT.strip("\n"))
    if any("pipeline_stages(" in text for text in host):
        blocks.append(PIPELINE_STAGES.strip("\n"))
    blocks += helper_sources({h for s in sources for h in s.helpers})
    blocks += [s.text for s in sources]
    if any("sum_parts(" in text for text in host):
        blocks.append(sum_parts_source(style))
    blocks += host
    return tidy("\n\n".join(parts) + "\n\n\n" + "\n\n\n".join(blocks) + "\n")


def printed_steps(derivation: Derivation, style: ModuleStyle, *, backward: bool) -> list[PrintedStep]:
    """The printed steps of one direction. The last kernel carries the plain name; earlier ones are numbered."""
    steps = derivation.backward_steps if backward else derivation.forward_steps
    base = style.backward_kernel if backward else style.forward_kernel
    integers = frozenset(
        s.name
        for s in derivation.op.scalars
        if isinstance(s.default, int) and not isinstance(s.default, bool)
    )
    kernels = sum(step.schedule is not None for step in steps)
    doc = _backward_doc(derivation) if backward else _forward_doc(derivation)
    printed: list[PrintedStep] = []
    number = 0
    for step in steps:
        if step.schedule is None:
            printed.append(PrintedStep(step.program, "host", "", None))
            continue
        number += 1
        name = base if number == kernels else f"{base.removesuffix('_kernel')}_stage_{number}_kernel"
        written = ", ".join(
            dict.fromkeys(
                w.tensor for w in (*step.program.stores, *step.program.accumulates, *step.program.scatters)
            )
        )
        own = (
            doc
            if kernels == 1
            else [f"Stage {number} of {kernels}: {written}", *(doc if number == kernels else [])]
        )
        gradients = None
        if derivation.gradient_in_forward and (backward or _writes_gradient(step.program)):
            gradients = "found" if backward else "written"
        source = KernelPrinter(step.program, step.schedule.name, name, own, integers, gradients).print()
        printed.append(PrintedStep(step.program, step.schedule.name, name, source))
    return printed


def _writes_gradient(program: RowProgram) -> bool:
    return any(program.tensor(s.tensor).kind == "gradient" for s in program.stores)


def _forward_doc(derivation: Derivation) -> list[str]:
    return _wrapped(derivation.forward_formula)


def _backward_doc(derivation: Derivation) -> list[str]:
    lines: list[str] = []
    for name, formula in derivation.definitions.items():
        lines += _wrapped(f"{name} = {formula}")
    for name, formula in derivation.gradient_formulas.items():
        lines += _wrapped(f"d{name} = {formula}")
    return lines


def _wrapped(text: str) -> list[str]:
    # The reference's words end up inside a docstring: they must not be able to end it.
    safe = text.replace("\\", "").replace('"""', "'''").replace("\n", " ")
    return textwrap.wrap(safe, WIDTH, subsequent_indent="    ") or [""]
