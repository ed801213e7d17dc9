"""The understand stage of `/liger autopatch`: from a model's name to a profile that a person can approve, or a refusal."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from agents.autopatch import refusals
from agents.autopatch.compose import compose
from agents.autopatch.facts import InspectionRefusal, ModelFacts
from agents.autopatch.model_profile import ModelProfile
from agents.dev.analysis import AnalysisFault
from agents.dev.refused import Refused
from agents.ports import Bench, OnProgress, Tree
from runners.protocol import InspectModelPayload, InspectModelResult, Job, ModelRequest, Report, Status

__all__ = ["AnalysisFault", "Asked", "Refused", "ask", "profile_of", "understand"]

DEADLINE_S = 180.0  # a profile takes ten seconds; a mixture of experts on a busy machine, ten times that
LOSS_APART = 1e-4  # relative; the same loss in fp32 lies a hundred times nearer
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
NAME = re.compile(r"[A-Za-z][\w.-]*")
ADD = re.compile(r"--add[ =]([\w,]+)")
REFRESH = re.compile(r"--refresh(?!\S)")


@dataclass(frozen=True)
class Asked:
    """What a person asked for: a model by name or by its config.json, and what a modify request adds."""

    text: str
    request: ModelRequest
    requested: tuple[str, ...] = ()


def ask(text: str, block: str | None = None) -> Asked | Refused:
    """Read the words after `/liger autopatch` and the ```json block below them. Pure."""
    requested = tuple(name for found in ADD.findall(text) for name in found.split(",") if name)
    if REFRESH.search(text):
        requested = (*requested, "refresh")
    name = REFRESH.sub("", ADD.sub("", text)).strip().strip("`")
    if block:
        try:
            config = json.loads(block)
        except ValueError as error:
            return Refused(
                reason=f"The block below the command is not JSON: {error}.", needed="The model's config.json."
            )
        if not isinstance(config, dict):
            return Refused(
                reason="The block below the command is not a JSON object.", needed="The model's config.json."
            )
        return Asked(name or str(config.get("model_type", "")), ModelRequest(config=config), requested)
    if HUB_ID.fullmatch(name):
        return Refused(
            reason=f"`{name}` is a Hub id, and nothing is fetched from the Hub.",
            needed="The model's config.json in a ```json block below the command, or its model type.",
        )
    if not NAME.fullmatch(name):
        return Refused(
            reason="No model is named." if not name else f"`{name[:60]}` is not the name of a model.",
            needed="A model type or a ForCausalLM class.",
            suggestions=("/liger autopatch nemotron",),
        )
    return Asked(name, ModelRequest(model=name), requested)


async def understand(
    asked: Asked, checkout: str, bench: Bench, tree: Tree, base_sha: str = "",
    on_progress: OnProgress | None = None, *, replay: bool = False,
) -> ModelProfile | Refused:  # fmt: skip
    """Inspect the model on a runner and decide.

    checkout: path of the target checkout on the runner · tree: the same, to read · replay: profile a model that is there already.
    Raises AnalysisFault when the runner failed.
    """
    text = f"{asked.request.model_dump_json()}{base_sha}"
    job = Job(
        id=f"inspect-{hashlib.sha256(text.encode()).hexdigest()[:16]}",
        nonce=secrets.token_hex(16),
        deadline_s=DEADLINE_S,
        payload=InspectModelPayload(checkout=checkout, models=[asked.request]),
    )
    report = await bench.run(job, on_progress)
    if report.nonce != job.nonce or report.job_id != job.id:
        raise AnalysisFault(f"the report for {report.job_id} does not belong to the job {job.id}")
    installed = (report.environment.transformers if report.environment else None) or ""
    too_old = old_transformers(installed, tree.read("setup.py") or tree.read("pyproject.toml") or "")
    if too_old is not None:
        return too_old
    return profile_of(_entry(report), asked, installed, base_sha, replay=replay)


def _entry(report: Report) -> dict[str, Any]:
    if (
        report.status is Status.error
        or not isinstance(report.result, InspectModelResult)
        or len(report.result.models) != 1
    ):
        last = report.log_tail.strip().splitlines()[-1:] or [""]
        raise AnalysisFault(f"the inspect_model job ended as {report.status.value}: {last[0][:500]}")
    return report.result.models[0]


def profile_of(
    entry: dict[str, Any], asked: Asked, transformers: str, base_sha: str = "", *, replay: bool = False
) -> ModelProfile | Refused:
    """One entry of an inspection to a profile or a refusal. Pure. Raises AnalysisFault when the entry is malformed."""
    try:
        if entry.get("refusal") is not None:
            return refusals.refused(
                InspectionRefusal.model_validate(entry["refusal"]), asked.text, transformers
            )
        facts = ModelFacts.model_validate(entry.get("facts"))
    except ValidationError as error:
        # It comes from the process that ran a stranger's code; one that is malformed proves nothing about the model.
        raise AnalysisFault(
            f"the runner returned malformed facts: {error.errors()[0]['loc']}: {error.errors()[0]['msg']}"
        ) from error
    present = {facts.model_type, facts.text_model_type} & set(facts.registered)
    if present and not asked.requested and not replay:
        return refusals.already_there(facts.model_type)
    misfit = _misfit(facts)
    if misfit is not None:
        return misfit
    try:
        return compose(facts, asked.requested, base_sha)
    except (
        SyntaxError,
        ValidationError,
    ) as error:  # a source that isn't Python, a value outside the profile's words
        raise AnalysisFault(f"the facts about {facts.model_type} could not be read: {error}") from error


def _misfit(facts: ModelFacts) -> Refused | None:
    """The refusal of a model whose parts are not where a patch of it could reach them."""
    layer = facts.sources.get(facts.layer_class)
    if layer is not None and layer.file != facts.forward.file:
        return refusals.another_models_decoder(facts.model_type, facts.layer_class, layer.file)
    head = facts.head.head_class
    found = [v for k, v in facts.head.liger_loss.items() if k != "model" and isinstance(v, int | float)]
    if head not in (None, "Linear") and found and min(found) > LOSS_APART:
        return refusals.another_head(facts.model_type, head, min(found))
    return None


def old_transformers(installed: str, requirements: str) -> Refused | None:
    """The refusal when the checkout's own pin (`transformers>=5.0.0`) is above the installed version."""
    found = re.search(r"transformers\s*>=\s*(\d+(?:\.\d+)*)", requirements)
    if not found or not installed or _numbers(installed) >= _numbers(found.group(1)):
        return None
    return refusals.too_old(installed, f">= {found.group(1)}")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])
