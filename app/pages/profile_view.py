"""A profile as a page: what it decides, with the evidence, and the whole of it as YAML. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import yaml
from markupsafe import Markup
from pydantic import ValidationError

from agents.autopatch.model_profile import ModelProfile
from agents.autopatch.unpatched import unpatched
from agents.command_agent import AnyProfile, read_profile
from agents.dev.roofline import predicted_floor, predicted_speedup
from agents.dev.schedule_table import Compiled, ScheduleTable
from agents.profiles import KernelProfile
from app.pages.source import highlighted
from app.tables import Profile


@dataclass(frozen=True)
class Fact:
    """One line of the summary. code: each value is code rather than words."""

    name: str
    values: list[str]
    code: bool = False


@dataclass(frozen=True)
class ScheduleRow:
    """One schedule of one kernel; cells: what the compiler said, one an architecture."""

    kernel: str
    schedule: str
    warps: int
    at: str
    chosen: bool
    cells: list[Compiled | None]


@dataclass(frozen=True)
class ProfileView:
    """A profile, laid out. profile: None when it is of a version that can't be read any more."""

    profile: AnyProfile | None
    name: str
    facts: list[Fact]
    source_title: str
    source: Markup
    schedules: ScheduleTable | None
    schedule_rows: list[ScheduleRow]
    yaml: Markup


def profile_view(stored: Profile) -> ProfileView:
    """The stored profile for its page."""
    try:
        profile = read_profile(stored.body)
    except ValidationError:
        profile = None
    schedules = ScheduleTable.model_validate(stored.schedules) if stored.schedules else None
    if isinstance(profile, KernelProfile):
        name, facts = profile.operation_name, _kernel_facts(profile)
        title, source = "Reference: the plain PyTorch that the kernel must equal", profile.op.source
    elif isinstance(profile, ModelProfile):
        name, facts = profile.model_type, _model_facts(profile)
        title, source = "The model's own forward, from which lce_forward is made", profile.forward.source
    else:
        name, facts, title, source = "", [], "", ""
    return ProfileView(
        profile,
        name,
        facts,
        title,
        highlighted("reference.py", source),
        schedules,
        _schedule_rows(schedules) if schedules else [],
        highlighted("profile.yaml", _yaml(stored)),
    )


def _kernel_facts(profile: KernelProfile) -> list[Fact]:
    gradients = [f"d{name} = {formula}" for name, formula in profile.gradient_formulas.items()]
    return [
        Fact("computes", [profile.forward_computation], code=True),
        Fact("gradients", gradients, code=True),
        Fact("inputs", [f"{one.name}: {one.shape} {one.dtype}" for one in profile.forward_inputs], code=True),
        Fact(
            "outputs", [f"{one.name}: {one.shape} {one.dtype}" for one in profile.forward_outputs], code=True
        ),
        Fact(
            "names",
            [profile.function_class_name, profile.module_class_name, profile.functional_name],
            code=True,
        ),
        Fact("kind", [f"tier {profile.tier}, {profile.tier_description}"]),
        Fact("nearest kernel", [profile.closest_existing_kernel], code=True),
        Fact("kept for the backward", profile.backward_saved_tensors, code=True),
        Fact("computed again", profile.backward_recompute, code=True),
        Fact("in fp32", profile.precision_sensitive_ops, code=True),
        Fact("layout", [profile.grid_description, f"block size: {profile.block_size_source}"]),
        *(
            Fact(
                f"predicted at {one.shape}",
                [
                    f"at most {predicted_speedup(one)}; floor {predicted_floor(one)}",
                    f"{one.predicted_memory_saving_pct:.1f}% less peak memory; bytes moved, not measured",
                ],
            )
            for one in profile.roofline
        ),
        Fact("tolerances", [f"{dtype}: {_pairs(limits)}" for dtype, limits in profile.tolerances.items()]),
        Fact("reference from", [profile.source]),
    ]


def _model_facts(profile: ModelProfile) -> list[Fact]:
    return [
        Fact("model", [f"{profile.causal_class} of transformers {profile.transformers_version}"]),
        Fact("asked for", profile.requested, code=True),
        Fact("architecture", [profile.architecture]),
        Fact("patched classes", _patched(profile), code=True),
        Fact("not patched", [f"{name}: {why}" for name, why in unpatched(profile)]),
        Fact("lce_forward from", [f"{profile.forward.file}:{profile.forward.line}"], code=True),
    ]


def _patched(profile: ModelProfile) -> list[str]:
    classes = [*profile.norms, *profile.vision_norms, *profile.mlps]
    found = [
        f"{one.name} → {one.liger_class or f'a class made from {one.variant_of}'}"
        for one in classes
        if one.patched
    ]
    if profile.rope.patched:
        found.append(f"{profile.rope.function} → {profile.rope.liger_function}")
    return found


def _pairs(values: dict[str, float]) -> str:
    return ", ".join(f"{key} {value:g}" for key, value in values.items())


def _schedule_rows(found: ScheduleTable) -> list[ScheduleRow]:
    return [
        ScheduleRow(
            kernel,
            schedule,
            warps,
            at,
            any(one.chosen for one in by_arch.values()),
            [by_arch.get(arch) for arch in found.archs],
        )
        for (kernel, schedule, warps, at), by_arch in found.lines().items()
    ]


def _yaml(stored: Profile) -> str:
    body = {key: value for key, value in stored.body.items() if key != "traced"}
    if "traced" in stored.body:
        body["traced"] = "omitted: machine-made; covered by the hash"
    body["sha256"] = stored.sha256
    return yaml.dump(body, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


# The C emitter where there is one: a model's profile takes a tenth of the time.
_Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
