"""The decisions of a profile, each with why and what it rests on. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from agents.dev.findings import Findings
from agents.dev.tolerances import Tolerance
from agents.profiles import Decision, Evidence


def decisions(found: Findings, names: dict[str, str], tolerance: dict[str, Tolerance]) -> list[Decision]:
    """`names`: the profile's name fields, as decided."""
    return [
        *_naming(found, names),
        *_derived(found),
        *_launch(found),
        _closest(found),
        *(
            Decision(
                name=f"tolerances.{dtype}",
                value=f"atol {t.atol:g}, rtol {t.rtol:g}",
                why=t.why,
                evidence=[
                    Evidence(
                        kind="rule",
                        text=f"{t.depth} operations on the longest chain of the traced joint graph",
                    )
                ],
            )
            for dtype, t in tolerance.items()
        ),
    ]


def _naming(found: Findings, names: dict[str, str]) -> list[Decision]:
    origin, op = found.origin, found.derivation.op
    siblings = [existing for existing in found.conventions.existing_ops if existing.function_classes][:3]
    read = [
        Evidence(kind="read", text=", ".join(sibling.function_classes), where=sibling.path)
        for sibling in siblings
    ]
    probes = [*origin.probes, *(Evidence(kind="probe", text=note) for note in found.traced.notes)]
    return [
        Decision(
            name="operation_name",
            value=op.name,
            why=origin.name_why or "the name of the reference",
            evidence=list(origin.evidence),
        ),
        Decision(
            name="function_class_name",
            value=names["function_class_name"],
            why="named like its siblings in the checkout",
            evidence=read,
        ),
        Decision(
            name="op",
            value=op.summary or found.derivation.forward_formula,
            why=f"the reference: {origin.source}",
            evidence=probes,
        ),
    ]


def _derived(found: Findings) -> list[Decision]:
    derivation = found.derivation
    rules = [
        Evidence(kind="rule", text=f"{rule.rule}: {rule.note}", where=_reference_line(rule.where))
        for rule in derivation.rules
    ]
    saved = [f"{saved.name}: {saved.why}" for saved in derivation.saved]
    kept = (
        f"; the reference's own casts are kept: {', '.join(derivation.casts_kept)}"
        if derivation.casts_kept
        else ""
    )
    traffic = derivation.traffic
    return [
        Decision(
            name="forward_computation",
            value=derivation.forward_formula,
            why="derived by rule from the traced graph",
            evidence=rules,
        ),
        Decision(
            name="backward_saved_tensors",
            value=_listed(saved.name for saved in derivation.saved),
            why="; ".join(saved) or "the backward needs nothing of the forward",
        ),
        Decision(
            name="backward_recompute",
            value=_listed(derivation.recomputed),
            why="computing them again moves fewer bytes than saving them"
            if derivation.recomputed
            else "the backward needs no intermediate value of the forward",
        ),
        Decision(
            name="precision_sensitive_ops",
            value=_listed(derivation.precision_sensitive),
            why=f"everything is computed in float32 and rounded once, at the store{kept}",
        ),
        Decision(
            name="roofline",
            value=f"moves {traffic.forward_tensors} full tensors forward, {traffic.backward_tensors} backward",
            why=f"eager moves {traffic.eager_forward_tensors} and {traffic.eager_backward_tensors}: "
            "the ratios are upper bounds of the speed-up when memory-bound",
        ),
    ]


def _launch(found: Findings) -> list[Decision]:
    forward, backward = found.derivation.forward_schedule, found.derivation.backward_schedule
    return [
        Decision(
            name="grid_description",
            value=both(forward.grid, backward.grid),
            why=both(forward.why, backward.why),
        ),
        Decision(
            name="block_size_source",
            value=both(forward.block_size, backward.block_size),
            why=f"float32 vectors of one block alive at once: {forward.live_vectors} in the forward, {backward.live_vectors} in the backward",
        ),
    ]


def _closest(found: Findings) -> Decision:
    closest = found.closest
    where = [Evidence(kind="read", text=f"`{closest.name}`", where=closest.path)] if closest else []
    return Decision(
        name="closest_existing_kernel",
        value=closest.name if closest else "none",
        why=found.closest_why,
        evidence=where,
    )


def both(forward: str, backward: str) -> str:
    """One text when both passes agree, else each with its pass."""
    return forward if forward == backward else f"forward: {forward}; backward: {backward}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def _reference_line(where: str | None) -> str | None:
    return f"reference {where}" if where and where.startswith("line") else where
