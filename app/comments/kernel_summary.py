"""A kernel's profile as the rows that are read in ten seconds. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from agents.dev.roofline import predicted_floor, predicted_speedup
from agents.markdown import code, plain
from agents.profiles import KernelProfile, PlannedFile, Roofline


def kernel_rows(profile: KernelProfile) -> list[list[str]]:
    """(what, its value) as finished Markdown."""
    names = [profile.function_class_name, profile.module_class_name, profile.functional_name]
    return [
        ["computes", code(profile.forward_computation)],
        [
            "gradients",
            "<br>".join(code(f"d{name} = {formula}") for name, formula in profile.gradient_formulas.items())
            or "none",
        ],
        ["inputs", ", ".join(code(f"{one.name}: {one.shape} {one.dtype}") for one in profile.forward_inputs)],
        ["names", ", ".join(code(name) for name in names)],
        [
            "kind",
            plain(
                f"tier {profile.tier}, {profile.tier_description}; nearest kernel: {profile.closest_existing_kernel}"
            ),
        ],
        [
            "kept for the backward",
            ", ".join(code(one) for one in profile.backward_saved_tensors) or "nothing",
        ],
        ["in fp32", ", ".join(code(one) for one in profile.precision_sensitive_ops) or "nothing needs it"],
        ["layout", plain(f"{profile.grid_description}; block size: {profile.block_size_source}")],
        *[[f"predicted at {plain(one.shape)}", _prediction(one)] for one in profile.roofline[:3]],
        [
            "tolerances",
            "; ".join(plain(f"{dtype}: {_pairs(limits)}") for dtype, limits in profile.tolerances.items()),
        ],
        *files_and_risks(profile.files, profile.risks),
        ["reference from", plain(profile.source)],
    ]


def _prediction(one: Roofline) -> str:
    return (
        f"at most {predicted_speedup(one)}; floor {predicted_floor(one)}; "
        f"{one.predicted_memory_saving_pct:.1f}% less peak memory (bytes moved, not measured)"
    )


def _pairs(values: dict[str, float]) -> str:
    return ", ".join(f"{key} {value:g}" for key, value in values.items())


def files_and_risks(files: Sequence[PlannedFile], risks: Sequence[str]) -> list[list[str]]:
    """The two rows that every profile ends with."""
    return [
        ["files", "<br>".join(f"{one.action} {code(one.path)}" for one in files)],
        ["risks", "<br>".join(plain(one) for one in risks) or "none seen"],
    ]
