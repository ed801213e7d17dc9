"""Repair: a new candidate from one that a gate failed, by rule where there is a rule, else by asking the model once a round.

A repair never touches the reference, a test's tolerance or a check: what it returns passes the same gates as the first candidate.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from importlib import resources
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agents.candidate import Candidate
from agents.conventions.reading import outline
from agents.ports import Bench, Model, ModelRequest
from agents.profiles import KernelProfile
from agents.untrusted import fenced
from kernels.syntax import syntax_tree
from runners.protocol import Gate, Job, Outcome, Report, Status, StylePayload, StyleResult

MAX_ROUNDS = 3
MAX_EVIDENCE = 12_000  # characters of findings that a model is shown
PURPOSE = "repair"


class _Answer(BaseModel):
    """What the model is asked for."""

    model_config = ConfigDict(extra="forbid")
    understood: bool = Field(description="false when the cause can't be seen")
    explanation: str = Field(description="one or two sentences: the cause and the change")
    module: str = Field(description="the whole corrected module, or empty when not understood")


async def repair(
    profile: KernelProfile,
    candidate: Candidate,
    reports: Mapping[Gate, Report],
    bench: Bench,
    model: Model | None = None,
    *,
    attempt: int = 1,
    checkout: str = ".",
) -> Candidate | None:
    """The repaired candidate, or None when nothing can be done: no rule applies and no model helps, or `attempt` > 3.

    reports: of the gates that failed, at least. Only a candidate's failure is repaired, never a runner's. Raises ModelError.
    """
    failed = {
        gate: report
        for gate, report in reports.items()
        if not report.ok and report.status is not Status.error
    }
    if not failed or attempt > MAX_ROUNDS:
        return None
    if (
        Gate.style in failed
        and (formatted := await _format(profile, candidate, bench, checkout, attempt)) is not None
    ):
        return formatted
    if model is None or not set(failed) - {Gate.style}:
        return None
    rewritten = await _ask(profile, candidate, failed, model)
    if rewritten is None:
        return None
    return await _format(profile, rewritten, bench, checkout, attempt) or rewritten


async def _format(
    profile: KernelProfile, candidate: Candidate, bench: Bench, checkout: str, attempt: int
) -> Candidate | None:
    """The candidate with its new files through the target's ruff again; None when that changes nothing."""
    created = {path: candidate.files[path] for path in candidate.created}
    payload = StylePayload(checkout=checkout, files=created, fix=True, ruff=candidate.ruff)
    job = Job(
        id=f"repair-{profile.sha256()[:12]}-{attempt}",
        nonce=secrets.token_hex(16),
        deadline_s=60.0,
        payload=payload,
    )
    report = await bench.run(job)
    if report.status is not Status.completed or not isinstance(report.result, StyleResult):
        return None
    formatted = {path: report.result.files.get(path, text) for path, text in created.items()}
    if formatted == created:
        return None
    return candidate.model_copy(update={"files": {**candidate.files, **formatted}})


async def _ask(
    profile: KernelProfile, candidate: Candidate, failed: Mapping[Gate, Report], model: Model
) -> Candidate | None:
    path = candidate.target.path
    module = candidate.files[path]
    user = "\n\n".join(
        [
            f"The reference:\n{fenced(profile.op.source, 60_000)}",
            f"The module `{candidate.target.module}`:\n{fenced(module, 60_000)}",
            f"What the checks found:\n{fenced(_evidence(failed), MAX_EVIDENCE)}",
        ]
    )
    system = (resources.files("agents") / "skills" / "dev" / "repair.md").read_text(encoding="utf-8")
    request = ModelRequest(
        purpose=PURPOSE, system=system, user=user, json_schema=schema(), max_output_tokens=16_384
    )
    reply = await model.ask(request)
    try:
        answer = _Answer.model_validate(reply.data)
    except ValidationError:
        return None
    if (
        not answer.understood
        or answer.module.strip() == module.strip()
        or not acceptable(answer.module, module, candidate)
    ):
        return None
    kernels = [
        name
        for name, found in outline(answer.module).functions.items()
        if any("triton.jit" in one for one in found.decorators)
    ]
    return candidate.model_copy(
        update={
            "files": {**candidate.files, path: answer.module.rstrip() + "\n"},
            "target": candidate.target.model_copy(
                update={"kernels": [name for name in kernels if name in candidate.target.kernels]}
            ),
        }
    )


def acceptable(module: str, before: str, candidate: Candidate) -> bool:
    """Whether a rewritten module is worth sending to the gates: it parses, imports nothing new, and keeps the names others use."""
    try:
        syntax_tree(module)
    except (SyntaxError, ValueError):
        return False
    new, old = outline(module), outline(before)
    allowed = {one.module for one in old.imports} | {"torch", "triton", "triton.language", "math"}
    kept = {
        *candidate.target.kernels,
        *(name for name in old.functions if name.endswith(("_forward", "_backward"))),
    }
    return (
        all(one.module in allowed for one in new.imports)
        and candidate.target.function_class in new.classes
        and kept <= set(new.functions)
    )


def _evidence(failed: Mapping[Gate, Report]) -> str:
    parts: list[str] = []
    for gate, report in failed.items():
        if report.status is not Status.completed:
            parts.append(f"{gate.value}: the job ended as {report.status.value}\n{report.log_tail[-2000:]}")
        wrong = [v for v in report.verdicts if v.outcome is Outcome.failed and v.hard]
        parts += [f"{v.check}: {v.summary}\n{v.details[:3000]}" for v in wrong]
    return "\n\n".join(parts)[:MAX_EVIDENCE]


def schema() -> dict[str, Any]:
    """The JSON schema of the model's answer."""
    return _Answer.model_json_schema()
