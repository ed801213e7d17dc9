"""The words of a model patch's pull request and commit, in the target's own template. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agents.autopatch.model_candidate import Repair
from agents.autopatch.model_profile import ModelProfile
from agents.autopatch.narrow import sentence
from agents.autopatch.patch_plan import Plan
from agents.conventions import Conventions
from agents.markdown import code, plain, table, visible

_CHECKBOX = re.compile(r"^- (\[ \].*|Hardware Type:.*)$", re.MULTILINE)
_SECTIONS = ["Summary", "Details", "Testing Done"]


def pull_title(profile: ModelProfile) -> str:
    if profile.mode == "modify":
        asked = ", ".join(text.removeprefix("--").removeprefix("add ").strip() for text in profile.requested)
        return f"Add {asked or 'updates'} to Liger Kernel's {model_name(profile)} patch"
    return f"Add Liger Kernel support for {model_name(profile)} models"


def commit_message(profile: ModelProfile, plan: Plan, repairs: Sequence[Repair] = ()) -> str:
    done = f"{', '.join(plan.operations())}, for classes and for an existing instance.\n"
    return f"{pull_title(profile)}\n\n{done}{_repaired(repairs)}"


def _repaired(repairs: Sequence[Repair]) -> str:
    """The lines of a commit message that say what a failed check changed; empty without one."""
    return "".join(["\n", *(f"- {visible(sentence(one))}\n" for one in repairs)]) if repairs else ""


def model_name(profile: ModelProfile) -> str:
    return profile.causal_class.removesuffix("ForCausalLM").removesuffix("ForConditionalGeneration")


def pull_body(
    profile: ModelProfile,
    plan: Plan,
    conventions: Conventions,
    beyond: Sequence[str],
    left_out: Sequence[str],
    repairs: Sequence[Repair] = (),
    approved: str = "",
) -> str:
    """The template's sections, filled; what is not known is said and not ticked. approved: the approved profile's hash."""
    written = {
        "summary": _summary(profile, plan),
        "details": _details(profile, plan, beyond, left_out, repairs, approved),
        "testing done": _testing(profile, conventions),
    }
    titles = conventions.pull_request_sections() or list(_SECTIONS)
    titles += [title for title in _SECTIONS if title.lower() not in {known.lower() for known in titles}]
    parts = [
        f"## {title}\n{written.get(title.lower(), 'Not applicable to a model patch.')}" for title in titles
    ]
    return "\n\n".join(parts) + "\n"


def modify_message(profile: ModelProfile, changes: Sequence[str], repairs: Sequence[Repair] = ()) -> str:
    done = "\n".join(f"- {change}" for change in changes) + "\n"
    return f"{pull_title(profile)}\n\n{done}{_repaired(repairs)}"


def modify_body(
    profile: ModelProfile,
    conventions: Conventions,
    changes: Sequence[str],
    repairs: Sequence[Repair] = (),
    approved: str = "",
) -> str:
    """The template's sections for a change of a supported model: the change plan is its summary."""
    written = {
        "summary": f"Changes {code(profile.model_type)}:\n\n"
        + "\n".join(f"- {plain(change)}" for change in changes),
        "details": "\n\n".join(
            [_decisions(profile), *_changed(repairs), _approved(profile, approved)],
        ),
        "testing done": _testing(profile, conventions),
    }
    titles = conventions.pull_request_sections() or list(_SECTIONS)
    titles += [title for title in _SECTIONS if title.lower() not in {known.lower() for known in titles}]
    parts = [
        f"## {title}\n{written.get(title.lower(), 'Not applicable to a model patch.')}" for title in titles
    ]
    return "\n\n".join(parts) + "\n"


def _decisions(profile: ModelProfile) -> str:
    rows = []
    for decision in profile.decisions:
        seen = "; ".join(f"{e.text} ({e.where})" if e.where else e.text for e in decision.evidence)
        rows.append((plain(decision.name), plain(decision.value), plain(decision.why), plain(seen)))
    return table(("decision", "value", "why", "evidence"), rows)


def _summary(profile: ModelProfile, plan: Plan) -> str:
    lines = [
        f"Adds {code(plan.function)} for {plain(model_name(profile))} models ({code(profile.model_type)}).",
        "",
        f"- operations: {plain(', '.join(plan.operations()))}",
    ]
    where = code(f"{profile.forward.file}:{profile.forward.line}")
    lines.append(
        f"- {code('lce_forward')} follows {code(profile.causal_class + '.forward')} of transformers "
        f"{plain(profile.transformers_version)} ({where})"
    )
    return "\n".join([*lines, *(f"- {plain(note)}" for note in plan.notes)])


def _changed(repairs: Sequence[Repair]) -> list[str]:
    """What the checks changed since the profile was approved; empty when nothing."""
    if not repairs:
        return []
    lines = "\n".join(f"- {plain(sentence(one))}" for one in repairs)
    return [f"Changed after a failed check, and narrower than the approved profile:\n{lines}"]


def _approved(profile: ModelProfile, approved: str) -> str:
    return f"Approved profile: `sha256:{approved or profile.sha256()}`"


def _details(
    profile: ModelProfile,
    plan: Plan,
    beyond: Sequence[str],
    left_out: Sequence[str],
    repairs: Sequence[Repair],
    approved: str,
) -> str:
    parts = [_decisions(profile), *_changed(repairs)]
    if plan.norms or plan.mlps:
        parts.append(
            "With `model=` only that instance is patched: the module's classes stay as they are, so other and later "
            "models are unaffected. The rotary function and the loss function have no instance form and are shared."
        )
    if beyond:
        parts.append("Beyond the usual files:\n" + "\n".join(f"- {plain(text)}" for text in beyond))
    if left_out:
        parts.append("Usual files left out:\n" + "\n".join(f"- {plain(text)}" for text in left_out))
    notes = [*profile.risks, *profile.questions]
    if notes:
        parts.append("To look at in review:\n" + "\n".join(f"- {plain(note)}" for note in notes))
    parts.append(_approved(profile, approved))
    return "\n\n".join(parts)


def _testing(profile: ModelProfile, conventions: Conventions) -> str:
    told = (
        f"The checks of this pull request run the new instance test and compare {plain(model_name(profile))} with and without "
        "Liger on a tiny model: loss, logits and every gradient in fp32 and bf16, kernel calls by flag, revert, and the "
        "convergence tests in a reduced form where there is no GPU. The boxes are for the person who merges."
    )
    boxes = _CHECKBOX.findall(conventions.pull_request_template)
    lines = [
        told,
        "",
        *(
            f"- {box.replace('<BLANK>', 'see the checks').replace('BLANK', 'see the checks')}"
            for box in boxes
        ),
    ]
    return "\n".join(lines).rstrip()
