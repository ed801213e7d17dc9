"""The status comment of a request: one comment, edited in place, found by its marker."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from agents.command_agent import AnyProfile
from agents.dev.refused import Refused
from agents.dev.schedule_table import ScheduleTable
from agents.markdown import code, cut, plain, table
from app.comments.limits import MAX_BODY_CHARS, WRITERS_WORDS
from app.comments.profile import profile_markdown
from app.comments.refusals import clause, refusal
from app.comments.wording import Wording, wording
from app.policy import MARKER_PREFIX
from app.states import Stage, State

_ICONS = {
    "success": "✅",
    "failure": "❌",
    "neutral": "⚪",
    "timed_out": "⏱️",
    "cancelled": "🚫",
    "action_required": "⚠️",
    None: "⏳",
}
_HEADLINES = {
    State.received: "received",
    State.awaiting_approval: "waiting for your decision",
    State.revising: "revising the profile",
    State.verifying: "verifying",
    State.repairing: "repairing",
    State.in_review: "ready for review",
    State.merged: "merged",
    State.closed: "closed without merging",
    State.rejected: "rejected",
    State.cancelled: "cancelled",
    State.expired: "expired",
    State.failed: "stopped",
}


@dataclass(frozen=True)
class StageLine:
    """One stage as the checklist shows it."""

    stage: Stage
    done: bool = False
    running: bool = False
    elapsed_s: float | None = None
    note: str = ""


@dataclass(frozen=True)
class GateLine:
    """One gate as the status comment shows it; conclusion None: still running."""

    name: str
    conclusion: str | None
    title: str


@dataclass(frozen=True)
class StatusView:
    """What the status comment of a request shows."""

    request_id: str
    command: str
    requester: str
    state: State
    page_url: str
    stages: Sequence[StageLine] = ()
    profile: AnyProfile | None = None
    schedules: ScheduleTable | None = None
    expires: datetime | None = None
    approved_by: str | None = None
    requester_may_approve: bool = True
    pull_number: int | None = None
    gates: Sequence[GateLine] = field(default_factory=tuple)
    failure: dict[str, object] | None = None
    ended_by: str = ""
    verb: str = "dev"

    @property
    def wording(self) -> Wording:
        return wording(self.verb)


def marker(request_id: str) -> str:
    """The hidden words by which a request's status comment is found again."""
    return f"{MARKER_PREFIX}request={request_id} -->"


def body_sha256(body: str) -> str:
    """Hash of a comment's text as it is compared: GitHub may change line ends and the space around it."""
    return hashlib.sha256(body.replace("\r\n", "\n").strip().encode()).hexdigest()


def status_markdown(view: StatusView) -> str:
    """The status comment."""
    parts = [
        marker(view.request_id),
        f"### {code(view.command)}: {_headline(view)}",
        "\n".join(_stage_line(one, view.wording) for one in view.stages),
        _next_step(view),
        _gates(view),
        profile_markdown(view.profile, view.page_url, view.schedules) if view.profile else "",
    ]
    ending = (
        f"\n\n<sub>request `{view.request_id}` by {plain(view.requester)} · [details]({view.page_url})</sub>"
    )
    return _within("\n\n".join(part for part in parts if part), MAX_BODY_CHARS - len(ending)) + ending


def _headline(view: StatusView) -> str:
    if view.state is State.rejected and view.failure:
        return view.wording.refused
    own = {State.understanding: view.wording.reading, State.acting: view.wording.writing}
    return own.get(view.state) or _HEADLINES[view.state]


def _within(text: str, limit: int) -> str:
    """Text within the limit, with every folded section closed."""
    if len(text) <= limit:
        return text
    text = cut(text, limit - 200, "This comment was too long; the rest is on the page linked below.")
    return text + "\n\n</details>" * (text.count("<details>") - text.count("</details>"))


def _stage_line(one: StageLine, words: Wording) -> str:
    box = "x" if one.done else " "
    took = f" ({one.elapsed_s:.1f} s)" if one.elapsed_s is not None else ""
    sign = " ⏳" if one.running else ""
    note = f"<br>{plain(one.note)}" if one.note else ""
    does = {
        Stage.understand: f"Understand: {words.understand}",
        Stage.act: f"Act: {words.act}",
        Stage.verify: "Verify: style, correctness, compile, benchmark",
    }[one.stage]
    return f"- [{box}] {does}{took}{sign}{note}"


def _next_step(view: StatusView) -> str:
    match view.state:
        case State.awaiting_approval:
            who = (
                WRITERS_WORDS
                if view.requester_may_approve
                else f"{WRITERS_WORDS}, other than {plain(view.requester)},"
            )
            until = f" This expires on {view.expires:%d %B %Y}." if view.expires else ""
            return (
                f"**Is this right?** Waiting for {who}: react 👍 to this comment or comment `/liger approve`. "
                f"`/liger revise key=value` changes a decision; 👎 or `/liger reject` turns it down.{until}"
            )
        case State.in_review:
            failed = [
                plain(one.name)
                for one in view.gates
                if one.conclusion in {"failure", "timed_out", "action_required"}
            ]
            look = f"Pull request #{view.pull_number} is a draft, for a person to review and merge."
            if failed:
                return (
                    f"{look} **Not everything passed: {', '.join(failed)}.** `/liger retry` verifies again."
                )
            return f"{look} Everything that blocks has passed."
        case State.failed:
            return _failure(view)
        case State.rejected if view.failure:
            return _failure(view)
        case State.rejected | State.cancelled | State.expired:
            by = f" by {plain(view.ended_by)}" if view.ended_by else ""
            kept = (
                f" Pull request #{view.pull_number} and its branch are left as they are."
                if view.pull_number
                else ""
            )
            return f"This request {'has' if view.state is State.expired else 'was'} {view.state}{by}. Nothing more happens to it.{kept} `/liger retry` takes it up again."
        case State.merged:
            return f"Pull request #{view.pull_number} was merged."
        case State.closed:
            return f"Pull request #{view.pull_number} was closed without merging."
    if view.approved_by:
        return f"Approved by {plain(view.approved_by)}."
    return ""


def _failure(view: StatusView) -> str:
    failure = view.failure or {}
    if failure.get("kind") == "refused":
        return refusal(Refused.model_validate(failure["refused"]), view.verb)
    reason = clause(str(failure.get("reason", "")))
    if failure.get("kind") == "mistake":
        return f"This can't go on: {reason}. `/liger retry` tries again once that is changed."
    return f"**This is our fault, not yours**: {reason}. It is logged under request `{view.request_id}`. `/liger retry` tries again."


def _gates(view: StatusView) -> str:
    if not view.gates:
        return ""
    rows = [[f"{_ICONS.get(one.conclusion, '❔')} {plain(one.name)}", plain(one.title)] for one in view.gates]
    heading = f"Checks on pull request #{view.pull_number}" if view.pull_number else "Checks"
    return table([heading, "result"], rows)
