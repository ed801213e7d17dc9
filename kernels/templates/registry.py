"""The templates that there are. Pure."""

from __future__ import annotations

from kernels.derivation import Derivation
from kernels.op_spec import OpSpec
from kernels.templates.segment_mean_pooling import SegmentMeanPooling
from kernels.templates.template import PREFIX, as_traced, is_reference_of
from kernels.traced import TracedOp

TEMPLATES = {template.name: template for template in (SegmentMeanPooling(),)}


def traced_from_template(op: OpSpec) -> TracedOp | None:
    """The traced op of a reference that a template knows word for word; None: trace it."""
    for template in TEMPLATES.values():
        if is_reference_of(template, op):
            return as_traced(template, op, template.axes)
    return None


def derived_from_template(traced: TracedOp) -> Derivation | None:
    """The derivation of a traced op that a template answers; None: derive it."""
    last = traced.nodes[-1].op if traced.nodes else ""
    template = TEMPLATES.get(last.removeprefix(PREFIX)) if last.startswith(PREFIX) else None
    return template.derivation(traced.op) if template else None
