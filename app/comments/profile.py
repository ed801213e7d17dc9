"""A profile as people read it in a comment: a table for ten seconds, the evidence and the whole of it folded. Pure."""

from __future__ import annotations

import json

import yaml

from agents.command_agent import AnyProfile
from agents.dev.schedule_table import ScheduleTable
from agents.markdown import code, cut, fence, plain, table
from agents.profiles import Decision, KernelProfile
from app.comments.kernel_summary import kernel_rows, schedules_table
from app.comments.model_summary import model_rows

MAX_YAML_CHARS = 30_000
MAX_SOURCE_CHARS = 8_000
MAX_DECISIONS = 40
MAX_SCHEDULES_CHARS = 9_000


def profile_markdown(profile: AnyProfile, page_url: str, schedules: ScheduleTable | None = None) -> str:
    """The profile for a comment; page_url is where the whole of it can be read when it doesn't fit.

    schedules: what the offline compiler says of them, once it is there; no part of the profile or its hash.
    """
    digest = profile.sha256()
    if isinstance(profile, KernelProfile):
        name, rows = profile.operation_name, kernel_rows(profile)
        source = "Reference: the plain PyTorch that the kernel must equal", profile.op.source
    else:
        name, rows = profile.model_type, model_rows(profile)
        source = "The model's own forward, from which lce_forward is made", profile.forward.source
    parts = [
        f"#### Profile of {code(name)} · hash `{digest[:12]}`",
        table(["", "decision"], rows),
        _questions(profile.questions),
        folded(f"Why: {len(profile.decisions)} decisions and their evidence", _decisions(profile.decisions)),
        _schedules(schedules),
        folded(source[0], cut(fence(source[1], "python"), MAX_SOURCE_CHARS)),
        folded("The whole profile (YAML)", fence(_yaml(profile, digest, page_url), "yaml")),
    ]
    return "\n\n".join(part for part in parts if part)


def _schedules(found: ScheduleTable | None) -> str:
    if found is None:
        return ""
    if not found.rows:
        return f"The schedules could not be compiled: {plain(found.note)}. The pull request's compile check will show them."
    text = cut(schedules_table(found), MAX_SCHEDULES_CHARS, "| … | | | | the rest was cut |")
    return folded(
        "Every schedule considered, compiled offline: registers, spills, shared memory, occupancy", text
    )


def folded(summary: str, markdown: str) -> str:
    """A section that is closed until someone opens it. `summary` is ours."""
    return f"<details><summary>{summary}</summary>\n\n{markdown}\n\n</details>"


def _questions(questions: list[str]) -> str:
    if not questions:
        return ""
    return "**To confirm**\n\n" + "\n".join(
        f"{number}. {plain(one)}" for number, one in enumerate(questions, 1)
    )


def _decisions(decisions: list[Decision]) -> str:
    rows = []
    for one in decisions[:MAX_DECISIONS]:
        evidence = "<br>".join(
            plain(f"{item.kind}: {item.text}") + (f" ({code(item.where)})" if item.where else "")
            for item in one.evidence[:4]
        )
        rows.append([code(one.name), plain(one.value), plain(one.why), evidence])
    text = table(["decision", "value", "why", "evidence"], rows)
    return cut(text, 20_000, "| … | | | the rest is in the YAML below |")


def _yaml(profile: AnyProfile, digest: str, page_url: str) -> str:
    body = profile.model_dump(mode="json", exclude={"traced"})
    if isinstance(profile, KernelProfile):
        body["traced"] = (
            f"omitted: machine-made, {len(json.dumps(profile.traced)):,} characters; covered by the hash"
        )
    body["sha256"] = digest
    text = yaml.safe_dump(body, sort_keys=False, allow_unicode=True, width=110)
    return cut(text, MAX_YAML_CHARS, f"# … cut; the whole profile: {page_url}")
