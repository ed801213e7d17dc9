"""The words of a kernel's pull request and commit, in the target's own template. Pure."""

from __future__ import annotations

import re

from agents.conventions import Conventions
from agents.dev.naming import class_stem
from agents.dev.roofline import predicted_speedup
from agents.markdown import code, fence, plain, table
from agents.profiles import KernelProfile
from kernels.derivation import Derivation

_CHECKBOX = re.compile(r"^- (\[ \].*|Hardware Type:.*)$", re.MULTILINE)
_DEFAULT_SECTIONS = ["Summary", "Details", "Testing Done"]


def commit_message(profile: KernelProfile) -> str:
    """Subject in the target's style, and what the kernel computes."""
    return f"{pull_title(profile)}\n\n{profile.op.summary or profile.forward_computation}\n"


def pull_title(profile: KernelProfile) -> str:
    return f"[Feature] Add Triton kernel for {display_name(profile)}"


def display_name(profile: KernelProfile) -> str:
    """How people call the op: the class name without Liger, words apart: "ReLU Squared"."""
    return " ".join(class_stem(part) for part in profile.operation_name.split("_"))


def pull_body(profile: KernelProfile, derivation: Derivation, conventions: Conventions) -> str:
    """The target's template with its sections filled in; sections we don't know say so, in place of an empty heading."""
    written = {
        "summary": _summary(profile),
        "details": _details(profile, derivation),
        "testing done": _testing(conventions),
    }
    titles = conventions.pull_request_sections() or _DEFAULT_SECTIONS
    titles += [
        title for title in _DEFAULT_SECTIONS if title.lower() not in {known.lower() for known in titles}
    ]
    parts = [
        f"## {title}\n{written.get(title.lower(), 'Not applicable to a new kernel.')}" for title in titles
    ]
    return "\n\n".join(parts) + "\n"


def _summary(profile: KernelProfile) -> str:
    lines = [
        f"Adds {plain(display_name(profile))}: {code(profile.op.summary or profile.forward_computation)}, forward and backward.",
        "",
        f"- {code(profile.function_class_name)} (autograd), {code(profile.module_class_name)} (module), {code(profile.functional_name)} (functional)",
        f"- reference: {plain(profile.source)}",
    ]
    if profile.roofline:
        point = profile.roofline[0]
        lines.append(
            f"- predicted at {plain(point.shape)}, an upper bound when memory-bound: {predicted_speedup(point)}, "
            f"{point.predicted_memory_saving_pct:.1f}% less peak memory"
        )
    return "\n".join(lines)


def _details(profile: KernelProfile, derivation: Derivation) -> str:
    saved = ", ".join(code(name) for name in profile.backward_saved_tensors) or "nothing"
    rows = [
        ("forward", code(derivation.forward_formula)),
        *((f"d{name}", code(formula)) for name, formula in derivation.gradient_formulas.items()),
        ("saved for backward", saved),
        ("recomputed in backward", ", ".join(code(name) for name in profile.backward_recompute) or "nothing"),
        (
            "in fp32",
            ", ".join(plain(name) for name in profile.precision_sensitive_ops) or "nothing in particular",
        ),
        (
            "forward schedule",
            plain(
                f"{derivation.forward_schedule.name}, {derivation.forward_schedule.grid}: {derivation.forward_schedule.why}"
            ),
        ),
        (
            "backward schedule",
            plain(
                f"{derivation.backward_schedule.name}, {derivation.backward_schedule.grid}: {derivation.backward_schedule.why}"
            ),
        ),
    ]
    parts = [table(("decision", "value"), rows)]
    notes = [*profile.risks, *derivation.warnings]
    if notes:
        parts.append(
            "To look at in review:\n" + "\n".join(f"- {plain(note)}" for note in dict.fromkeys(notes))
        )
    parts.append(
        "The reference that the kernel was derived from and is tested against:\n\n"
        + fence(profile.op.source.strip(), "python")
    )
    parts.append(f"Approved profile: `sha256:{profile.sha256()}`")
    return "\n\n".join(parts)


def _testing(conventions: Conventions) -> str:
    told = (
        "The checks of this pull request run the new unit test and its neighbours, compare forward and every gradient with an fp64 "
        "reference, and compile the kernels for sm_80, sm_90, sm_100 and gfx942. The boxes are for the person who merges."
    )
    lines = [told, ""]
    boxes = _CHECKBOX.findall(conventions.pull_request_template)
    lines += [
        f"- {box.replace('<BLANK>', 'see the checks').replace('BLANK', 'see the checks')}" for box in boxes
    ]
    return "\n".join(lines).rstrip()
