"""A kernel's profile as the rows that are read in ten seconds. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from agents.dev.roofline import predicted_floor, predicted_speedup
from agents.dev.schedule_table import Compiled, ScheduleTable
from agents.markdown import code, plain, table
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


def schedules_table(found: ScheduleTable) -> str:
    """What the offline compiler says of every schedule; the chosen ones are bold."""
    rows = []
    for (kernel, schedule, warps, at), by_arch in found.lines().items():
        chosen = any(row.chosen for row in by_arch.values())
        cells = [_resources(by_arch[arch]) if arch in by_arch else "" for arch in found.archs]
        name = f"**{plain(schedule)}**" if chosen else plain(schedule)
        rows.append([code(kernel), name, str(warps), plain(at), *cells])
    lines = [
        plain(found.spill_verdict()),
        f"Not all were compiled: {plain(found.note)}." if found.note else "",
    ]
    head = table(["kernel", "schedule (chosen: bold)", "warps", "at", *found.archs], rows)
    return "\n\n".join(
        [*filter(None, lines), "registers · spilled · shared memory · theoretical occupancy", head]
    )


def _resources(row: Compiled) -> str:
    spilled = f"**{row.spill_bytes} B**" if row.spill_bytes else "0"
    shared = f"{row.shared_bytes / 1024:.1f} KiB" if row.shared_bytes else "0"
    return f"{row.registers} · {spilled} · {shared} · {row.occupancy:.0%}"


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
