"""A traced op, its derivation and the checkout's conventions -> the profile that a person approves. Pure."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from agents.conventions.record import Conventions
from agents.dev.closest import closest_existing
from agents.dev.decisions import both, decisions
from agents.dev.findings import Findings, Origin
from agents.dev.naming import class_stem
from agents.dev.roofline import rooflines
from agents.dev.tolerances import tolerances
from agents.profiles import KernelProfile, LearnableParam, ModuleParam, PlannedFile, TensorEntry
from kernels.derivation import Derivation, Operand
from kernels.op_spec import TensorSpec
from kernels.traced import TracedOp
from runners.sizes import logits_axis

TIERS = {1: "element-wise", 2: "reduction", 3: "fused/complex"}
SPILLING_REGISTERS = (
    65536  # 32-bit registers of one multiprocessor: live vectors x columns beyond it must spill
)
_INITIAL = {"ones": "ones", "zeros": "zeros", "randn": "randn", "half": "0.5", None: "ones"}


def compose(
    traced: TracedOp, derivation: Derivation, conventions: Conventions, origin: Origin, base_sha: str = ""
) -> KernelProfile:
    """Fill every field of the profile; each choice is explained in `decisions`."""
    closest, closest_why = closest_existing(derivation, conventions)
    found = Findings(traced, derivation, conventions, origin, closest, closest_why)
    op = derivation.op
    names = _names(op.name, origin.stem or class_stem(op.name), class_prefix(conventions))
    tolerance = tolerances(traced, derivation)
    forward, backward = derivation.forward_schedule, derivation.backward_schedule
    return KernelProfile(
        operation_name=op.name,
        **names,
        tier=derivation.tier,
        tier_description=TIERS[derivation.tier],
        closest_existing_kernel=closest.name if closest else "none",
        forward_inputs=[_entry(operand) for operand in derivation.inputs],
        forward_outputs=[_entry(operand) for operand in derivation.outputs],
        forward_computation=derivation.forward_formula,
        precision_sensitive_ops=list(derivation.precision_sensitive),
        backward_saved_tensors=[saved.name for saved in derivation.saved],
        backward_recompute=list(derivation.recomputed),
        gradient_formulas=dict(derivation.gradient_formulas),
        grid_dimensions="2D" if "tile" in {forward.name, backward.name} else "1D",
        grid_description=both(forward.grid, backward.grid),
        block_size_source=both(forward.block_size, backward.block_size),
        needs_sm_parallelism=backward.name in {"row_block", "group_reduce"},
        module_init_params=_init_params(derivation),
        learnable_params=[_learnable(tensor) for tensor in op.tensors if tensor.learnable],
        **_benchmark(derivation),
        op=op,
        source=origin.source,
        decisions=decisions(found, names, tolerance),
        files=planned_files(op.name, conventions),
        roofline=rooflines(derivation.traffic),
        risks=_risks(found),
        questions=list(dict.fromkeys([*origin.questions, *_role_questions(traced)])),
        tolerances={dtype: {"atol": t.atol, "rtol": t.rtol} for dtype, t in tolerance.items()},
        conventions=conventions.for_people(),
        base_sha=base_sha,
        traced=traced.model_dump(mode="json"),
    )


def class_prefix(conventions: Conventions) -> str:
    """The word that the checkout's Function classes start with, e.g. "Liger"; "" when they share none."""
    classes = [name for op in conventions.existing_ops for name in op.function_classes]
    words = Counter(match[0] for name in classes if (match := re.match(r"[A-Z][a-z]+", name)))
    if not words:
        return ""
    word, count = words.most_common(1)[0]
    return word if count > len(classes) / 2 else ""


def planned_files(name: str, conventions: Conventions) -> list[PlannedFile]:
    """The files that the act stage will touch."""
    path = conventions.path
    files = [
        PlannedFile(
            path=path("ops", f"{name}.py"), action="create", why="the kernels and their autograd.Function"
        ),
        PlannedFile(path=path("transformers", f"{name}.py"), action="create", why="the nn.Module"),
        PlannedFile(path=path("transformers", "functional.py"), action="edit", why="the functional form"),
        PlannedFile(path=path("transformers", "__init__.py"), action="edit", why="export of the module"),
        PlannedFile(
            path=f"test/transformers/test_{name}.py", action="create", why="correctness against the reference"
        ),
        PlannedFile(
            path=f"benchmark/scripts/benchmark_{name}.py",
            action="create",
            why="speed and memory against eager",
        ),
    ]
    if conventions.ops_import == "package":
        exported = PlannedFile(path=path("ops", "__init__.py"), action="edit", why="export of the Function")
        files.insert(1, exported)
    return files


def _names(operation: str, stem: str, prefix: str) -> dict[str, str]:
    return {
        "function_class_name": f"{prefix}{stem}Function",
        "module_class_name": f"{prefix}{stem}",
        "functional_name": f"{prefix.lower()}_{operation}" if prefix else operation,
    }


def _entry(operand: Operand) -> TensorEntry:
    return TensorEntry(name=operand.name, shape=operand.shape, dtype=operand.dtype)


def _size_name(axis: str) -> str:
    return "hidden_size" if axis == "n_cols" else axis


def _init_params(derivation: Derivation) -> list[ModuleParam]:
    op = derivation.op
    sizes = dict.fromkeys(
        _size_name(axis)
        for tensor in op.tensors
        if tensor.learnable
        for axis in tensor.shape
        if axis != "*" and not axis.isdigit()
    )
    parameters = [ModuleParam(name=size, type="int") for size in sizes]
    return parameters + [
        ModuleParam(name=s.name, type=type(s.default).__name__, default=s.default) for s in op.scalars
    ]


def _learnable(tensor: TensorSpec) -> LearnableParam:
    shape = ", ".join(_size_name(axis) for axis in tensor.shape)
    return LearnableParam(
        name=tensor.name,
        shape=f"({shape},)" if len(tensor.shape) == 1 else f"({shape})",
        init=_INITIAL[tensor.init],
    )


def _benchmark(derivation: Derivation) -> dict[str, Any]:
    if logits_axis(derivation.op):
        # Its memory grows with the tokens: what computing by chunks of them is for.
        return {
            "benchmark_variable": "BT",
            "benchmark_x_label": "total tokens",
            "benchmark_x_values_suggestion": [2**exponent for exponent in range(10, 14)],
            "benchmark_providers": ["liger", "torch", "torch_compile"],
            "benchmark_fixed_config": {"hidden_size": 4096, "dtype": "torch.bfloat16"},
        }
    is_loss = any(tensor.dtype == "int64" for tensor in derivation.op.tensors)
    return {
        "benchmark_variable": "vocab_size" if is_loss else "hidden_size",
        "benchmark_x_label": "vocabulary size" if is_loss else "hidden size",
        "benchmark_x_values_suggestion": [
            2**exponent for exponent in (range(12, 18) if is_loss else range(10, 15))
        ],
        "benchmark_providers": ["liger", "torch", "torch_compile"],
        "benchmark_fixed_config": {"BT": 8192, "dtype": "torch.bfloat16"},
    }


def _role_questions(traced: TracedOp) -> list[str]:
    """The tracer's guesses, each with the key that changes it."""
    questions = []
    for text in traced.questions:
        name = next(
            (
                tensor.name
                for tensor in traced.op.tensors
                if re.search(rf"\b{re.escape(tensor.name)}\b", text)
            ),
            None,
        )
        hint = f" Change it with `{name}.shape=full`, `column` or `row`." if name else ""
        questions.append(f"{text.rstrip('.')}.{hint}")
    questions += [
        f"`{tensor.name}` is passed by the caller. To make it a parameter of the module: `{tensor.name}.learnable=true`."
        for tensor in traced.op.tensors
        if tensor.shape == ("n_cols",) and not tensor.learnable and tensor.needs_grad
    ]
    return questions


def _risks(found: Findings) -> list[str]:
    derivation = found.derivation
    risks = list(derivation.warnings)
    risks += [
        f"`{name}` = {value} is built into the kernels: another value needs another derivation."
        for name, value in found.traced.fixed.items()
    ]
    alive = max(derivation.forward_schedule.live_vectors, derivation.backward_schedule.live_vectors)
    if derivation.tier > 1 and alive > 1:
        risks.append(
            f"{alive} row vectors are alive at once: rows wider than about {SPILLING_REGISTERS // alive:,} columns may spill "
            "registers; the compile check shows it."
        )
    if found.conventions.ruff_requirement is None:
        risks.append("The checkout pins no ruff version: another version may format the files differently.")
    risks.append("Speed-ups are predictions from bytes moved until a GPU has measured them.")
    return risks
