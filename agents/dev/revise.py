"""`/liger revise key=value`: a person's changes to a profile, checked, marked as theirs, and derived again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agents.conventions.detection import detect
from agents.conventions.record import Conventions, NotAKernelLibrary
from agents.dev.analysis import Analysis, analyze, derived, row_options
from agents.dev.compose import class_prefix, compose
from agents.dev.findings import Origin
from agents.dev.refused import Mistake, Refused
from agents.dev.revisable import Change, change
from agents.dev.understand import already_there
from agents.ports import Bench, OnProgress, Tree
from agents.profiles import Decision, Evidence, KernelProfile
from kernels.op_spec import OpSpec
from kernels.traced import TracedOp

MAX_CHANGES = 20


async def revise(
    profile: KernelProfile,
    changes: Mapping[str, str],
    tree: Tree,
    bench: Bench,
    on_progress: OnProgress | None = None,
) -> KernelProfile | Refused:
    """Apply `changes` to a profile; the result is a new profile with another hash. All are applied, or none.

    A change of the op itself (shapes, gradients, defaults) is traced again. Raises AnalysisFault when the runner failed.
    """
    try:
        if not 1 <= len(changes) <= MAX_CHANGES:
            raise Mistake(f"Give 1 to {MAX_CHANGES} changes, as key=value.")
        accepted = [change(profile, key, value) for key, value in changes.items()]
        conventions = detect(tree)
    except Mistake as mistake:
        return mistake.refused
    except NotAKernelLibrary as error:
        return Refused(reason=str(error))
    op = profile.op
    for item in accepted:
        op = item.op(op) if item.op else op
    refused = _clash(profile, op, accepted, conventions, tree)
    if refused is not None:
        return refused
    rows = next((item.value for item in accepted if item.key == "rows"), profile.rows)
    analysis = await _analysis(profile, op, rows, bench, on_progress)
    if isinstance(analysis, Refused):
        return analysis
    revised = _with_fields(profile, analysis, conventions, accepted)
    if _substance(revised) == _substance(profile):
        return Refused(
            reason=f"Nothing changes: {', '.join(f'`{item.key}` is {item.value} already' for item in accepted)}."
        )
    return revised


def _clash(
    profile: KernelProfile, op: OpSpec, accepted: list[Change], conventions: Conventions, tree: Tree
) -> Refused | None:
    if op.name != profile.op.name:
        taken = already_there(op.name, None, None, conventions, tree)
        if taken is not None:
            return taken
    for item in accepted:
        if item.key == "closest_existing_kernel" and conventions.existing(item.value) is None:
            names = ", ".join(existing.name for existing in conventions.existing_ops)
            return Refused(
                reason=f"This repository has no kernel `{item.value}`.", needed=f"One of: {names}."
            )
    return None


async def _analysis(
    profile: KernelProfile, op: OpSpec, rows: str, bench: Bench, on_progress: OnProgress | None
) -> Analysis | Refused:
    traced = TracedOp.model_validate(profile.traced)
    if op.model_copy(update={"name": profile.op.name}) != profile.op:
        found = await analyze(op, bench, None, on_progress, **row_options(rows))
    else:
        found = derived(traced.model_copy(update={"op": op}), "", **row_options(rows))
    if rows != profile.rows and isinstance(found, Analysis):
        plain = derived(found.traced, "", **row_options(profile.rows))
        if isinstance(plain, Analysis) and plain.derivation == found.derivation:
            return Refused(
                reason=f"`rows={rows}` makes no other kernels: this op's rows are laid out so already."
            )
    return found


def _with_fields(
    profile: KernelProfile, analysis: Analysis, conventions: Conventions, accepted: list[Change]
) -> KernelProfile:
    composed = compose(
        analysis.traced,
        analysis.derivation,
        conventions,
        _origin(profile, analysis, conventions),
        profile.base_sha,
    )
    earlier = [change(profile, one.name, one.value) for one in profile.decisions if _is_persons(one)]
    kept = {item.key: item for item in (*earlier, *accepted)}
    fields: dict[str, Any] = composed.model_dump()
    for item in kept.values():
        if item.field is not None:
            item.field(fields)
    fields["decisions"] = [
        one.model_dump() for one in _marked(composed, fields["tolerances"], list(kept.values()))
    ]
    answered = tuple(f"{item.key}=" for item in kept.values())
    open_questions = [
        question for question in composed.questions if not any(key in question for key in answered)
    ]
    return KernelProfile.model_validate({**fields, "questions": open_questions})


def _origin(profile: KernelProfile, analysis: Analysis, conventions: Conventions) -> Origin:
    before = {decision.name: decision for decision in profile.decisions}
    renamed = analysis.derivation.op.name != profile.op.name
    named, traced = before.get("operation_name"), before.get("op")
    if analysis.environment:
        probes = (Evidence(kind="probe", text=f"traced in {analysis.environment}"),)
    else:
        notes = set(analysis.traced.notes)
        probes = tuple(one for one in (traced.evidence if traced else ()) if one.text not in notes)
    return Origin(
        source=profile.source,
        stem=None if renamed else profile.module_class_name.removeprefix(class_prefix(conventions)),
        questions=tuple(profile.questions),
        name_why=named.why if named else "",
        evidence=tuple(named.evidence) if named else (),
        probes=probes,
    )


def _marked(
    composed: KernelProfile, tolerances: dict[str, dict[str, float]], kept: list[Change]
) -> list[Decision]:
    """The decisions, with those that a person made in their name; what the rules had said stays readable."""
    found = {decision.name: decision for decision in composed.decisions}
    for dtype, tolerance in tolerances.items():
        value = f"atol {tolerance['atol']:g}, rtol {tolerance['rtol']:g}"
        found[f"tolerances.{dtype}"] = found[f"tolerances.{dtype}"].model_copy(update={"value": value})
    for item in kept:
        before = found.get(item.key)
        why = "asked for by a person"
        if before is not None and not _is_persons(before) and before.value != item.value:
            why += f"; the rules had said {before.value}: {before.why}"
        mark = Evidence(kind="person", text=f"{item.key}={item.value}")
        found[item.key] = Decision(name=item.key, value=item.value, why=why, evidence=[mark])
    return list(found.values())


def _is_persons(decision: Decision) -> bool:
    return any(evidence.kind == "person" for evidence in decision.evidence)


def _substance(profile: KernelProfile) -> dict[str, Any]:
    """What is decided, without who decided it and what is still asked."""
    return profile.model_dump(exclude={"decisions", "questions"})
