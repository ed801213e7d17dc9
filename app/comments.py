"""Every sentence that the bot posts. Pure: data -> Markdown.

A reply answers one comment. The status comment of a request is one comment, edited in place, found by its marker.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from agents.dev.refused import Refused
from agents.profiles import KernelProfile
from app.commands import USAGE, Mistake, Verb
from agents.markdown import code, cut, plain, table
from app.policy import MARKER_PREFIX
from app.profile_view import profile_markdown
from app.states import Stage, State

MAX_BODY_CHARS = 65_536
WRITERS_WORDS = "someone with write access to this repository"

_ICONS = {"success": "✅", "failure": "❌", "neutral": "⚪", "timed_out": "⏱️", "cancelled": "🚫", "action_required": "⚠️", None: "⏳"}
_STAGE_WORDS = {
    Stage.understand: "Understand: read the reference, decide, write the profile",
    Stage.act: "Act: write kernels, tests and benchmark on a branch, open a draft pull request",
    Stage.verify: "Verify: style, correctness, compile, benchmark",
}
_HEADLINES = {
    State.received: "received",
    State.understanding: "reading the reference",
    State.awaiting_approval: "waiting for your decision",
    State.revising: "revising the profile",
    State.acting: "writing the kernel",
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
    profile: KernelProfile | None = None
    expires: datetime | None = None
    approved_by: str | None = None
    requester_may_approve: bool = True
    pull_number: int | None = None
    gates: Sequence[GateLine] = field(default_factory=tuple)
    failure: dict[str, object] | None = None
    ended_by: str = ""


def marker(request_id: str) -> str:
    """The hidden words by which a request's status comment is found again."""
    return f"{MARKER_PREFIX}request={request_id} -->"


def body_sha256(body: str) -> str:
    """Hash of a comment's text as it is compared: GitHub may change line ends and the space around it."""
    return hashlib.sha256(body.replace("\r\n", "\n").strip().encode()).hexdigest()


def status(view: StatusView) -> str:
    """The status comment."""
    parts = [
        marker(view.request_id),
        f"### {code(view.command)}: {_HEADLINES[view.state]}",
        "\n".join(_stage_line(one) for one in view.stages),
        _next_step(view),
        _gates(view),
        profile_markdown(view.profile, view.page_url) if view.profile else "",
    ]
    ending = f"\n\n<sub>request `{view.request_id}` by {plain(view.requester)} · [details]({view.page_url})</sub>"
    return _within("\n\n".join(part for part in parts if part), MAX_BODY_CHARS - len(ending)) + ending


def _within(text: str, limit: int) -> str:
    """Text within the limit, with every folded section closed."""
    if len(text) <= limit:
        return text
    text = cut(text, limit - 200, "This comment was too long; the rest is on the page linked below.")
    return text + "\n\n</details>" * (text.count("<details>") - text.count("</details>"))


def _stage_line(one: StageLine) -> str:
    box = "x" if one.done else " "
    took = f" ({one.elapsed_s:.1f} s)" if one.elapsed_s is not None else ""
    sign = " ⏳" if one.running else ""
    note = f"<br>{plain(one.note)}" if one.note else ""
    return f"- [{box}] {_STAGE_WORDS[one.stage]}{took}{sign}{note}"


def _next_step(view: StatusView) -> str:
    match view.state:
        case State.awaiting_approval:
            who = WRITERS_WORDS if view.requester_may_approve else f"{WRITERS_WORDS}, other than {plain(view.requester)},"
            until = f" This expires on {view.expires:%d %B %Y}." if view.expires else ""
            return (
                f"**Is this right?** Waiting for {who}: react 👍 to this comment or comment `/liger approve`. "
                f"`/liger revise key=value` changes a decision; 👎 or `/liger reject` turns it down.{until}"
            )
        case State.in_review:
            failed = [one.name for one in view.gates if one.conclusion in {"failure", "timed_out", "action_required"}]
            look = f"Pull request #{view.pull_number} is a draft, for a person to review and merge."
            if failed:
                return f"{look} **Not everything passed: {', '.join(failed)}.** `/liger retry` verifies again."
            return f"{look} Everything that blocks has passed."
        case State.failed:
            return _failure(view)
        case State.rejected | State.cancelled | State.expired:
            by = f" by {plain(view.ended_by)}" if view.ended_by else ""
            kept = f" Pull request #{view.pull_number} and its branch are left as they are." if view.pull_number else ""
            return f"This request was {view.state}{by}. Nothing more happens to it.{kept} `/liger retry` takes it up again."
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
        return refusal(Refused.model_validate(failure["refused"]))
    reason = _clause(str(failure.get("reason", "")))
    if failure.get("kind") == "mistake":
        return f"This can't go on: {reason}. `/liger retry` tries again once that is changed."
    return f"**This is our fault, not yours**: {reason}. It is logged under request `{view.request_id}`. `/liger retry` tries again."


def refusal(refused: Refused) -> str:
    """Why an op can't become a profile, and what to do instead."""
    lines = [f"**This op can't be derived**: {_clause(refused.reason)}."]
    if refused.node:
        lines.append(f"- operation: {code(refused.node)}")
    if refused.where:
        lines.append(f"- where: {code(refused.where)}")
    if refused.needed:
        lines.append(f"- what is needed: {_clause(refused.needed)}")
    if refused.model_could_help:
        lines.append("- a language model could try it: the operator of this bot can configure one with `LIGER_BOT_MODEL`")
    if refused.suggestions:
        lines.append("- next: " + " or ".join(code(_as_command(one)) for one in refused.suggestions[:3]))
    return lines[0] + ("\n\n" + "\n".join(lines[1:]) if lines[1:] else "")


def _clause(text: str) -> str:
    return plain(text.strip().rstrip("."))


def _as_command(suggestion: str) -> str:
    return suggestion if suggestion.startswith("/liger") else f"/liger dev {suggestion}"


def _gates(view: StatusView) -> str:
    if not view.gates:
        return ""
    rows = [[f"{_ICONS.get(one.conclusion, '❔')} {plain(one.name)}", plain(one.title)] for one in view.gates]
    heading = f"Checks on pull request #{view.pull_number}" if view.pull_number else "Checks"
    return table([heading, "result"], rows)


# --- replies ---------------------------------------------------------------------------------------------------------


def reply_marker(comment_id: int) -> str:
    """The hidden words by which the reply to a comment is found again."""
    return f"{MARKER_PREFIX}reply={comment_id} -->"


def reply(comment_id: int, text: str) -> str:
    """A reply as it is posted: marked, so that a comment is answered once."""
    return cut(f"{reply_marker(comment_id)}\n{text}", MAX_BODY_CHARS, "…")


def _reply(login: str, text: str) -> str:
    return f"@{login} {text}"


def refused(login: str, one: Refused) -> str:
    """An op that can't even be looked for."""
    return _reply(login, refusal(one))


def mistake(login: str, one: Mistake) -> str:
    """A command that can't be followed."""
    meant = f" Did you mean {code(one.suggestion)}?" if one.suggestion else ""
    return _reply(login, f"I didn't follow that: {one.what}.{meant} Try {code(one.next_command)}.")


def not_allowed(login: str, verb: Verb) -> str:
    """A command by someone who may not give it."""
    return _reply(
        login,
        f"`/liger {verb}` needs write access to this repository, which you don't have; {WRITERS_WORDS} can comment "
        "it here. I answer this once a day.",
    )


def not_available(login: str, verb: Verb) -> str:
    """A verb that this version doesn't have yet."""
    return _reply(login, f"`/liger {verb}` is not available yet. `/liger dev <op>` is; see `/liger help`.")


def help_text(login: str, topic: Verb | None) -> str:
    """How the verbs are written."""
    verbs = [topic] if topic else list(Verb)
    rows = [[code(USAGE[verb].form), plain(USAGE[verb].does), "write access" if USAGE[verb].writers_only else "anyone"] for verb in verbs]
    text = table(["command", "what it does", "who"], rows)
    if topic:
        text += f"\n\nExample: {code(USAGE[topic].example)}"
    return _reply(login, "one command a comment, at the start of a line:\n\n" + text)


def live_already(login: str, request_id: str, command: str, url: str) -> str:
    """A second request for an op whose first one is still live."""
    return _reply(login, f"that is being worked on already: {code(command)}, request `{request_id}`, {url}. `/liger cancel` there stops it.")


def nothing_to(login: str, verb: Verb, states: Sequence[tuple[str, str]]) -> str:
    """A command that fits no request of this issue. states: (command, state) of those that are here."""
    here = "; ".join(f"{code(command)} is {state.replace('_', ' ')}" for command, state in states[:5])
    return _reply(login, f"there is nothing to {verb} here{': ' + here if here else ''}. `/liger status` shows more.")


def other_profile(login: str, given: str, current: str) -> str:
    """An approval that names another profile than the one that waits."""
    return _reply(login, f"the profile that waits here has the hash `{current[:12]}`, not {code(given)}; look at it again, then `/liger approve {current[:12]}`.")


def second_person(login: str) -> str:
    """An approval by the requester where a second person is asked for."""
    return _reply(login, f"you asked for this kernel, and here the approval is a second person's: {WRITERS_WORDS} can comment `/liger approve`.")


def shown_again(login: str) -> str:
    """The comment under an approval had been edited."""
    return _reply(login, "the profile's comment had been edited, so that approval can't be tied to a profile. I have put the profile back as it was: please look again, then react 👍 or comment `/liger approve`.")


def revise_mistake(login: str, refused: Refused) -> str:
    """A revision that can't be made."""
    near = f" Did you mean {' or '.join(code(one) for one in refused.suggestions[:3])}?" if refused.suggestions else ""
    needed = f" {_clause(refused.needed)}." if refused.needed else ""
    return _reply(login, f"the profile stays as it was: {_clause(refused.reason)}.{needed}{near}")


def status_reply(login: str, rows: Sequence[tuple[str, str, str, str]]) -> str:
    """Where the requests of an issue stand. rows: (request id, command, state, page)."""
    if not rows:
        return _reply(login, "no request was made here yet. Start with `/liger dev <op>`.")
    lines = [[f"[{request_id}]({page})", code(command), state.replace("_", " ")] for request_id, command, state, page in rows[:20]]
    return _reply(login, "requests here:\n\n" + table(["request", "command", "state"], lines))


def pull_footer(requester: str, request_id: str, profile_sha256: str, approved_by: str, page_url: str) -> str:
    """What the service adds below a pull request's text."""
    return (
        f"\n\n---\n<sub>Asked for by {plain(requester)}, profile `{profile_sha256[:12]}` approved by {plain(approved_by)} · "
        f"request [`{request_id}`]({page_url}) · a person reviews and merges this</sub>\n"
    )


def pull_text(body: str, footer: str) -> str:
    """A pull request's text within GitHub's limit."""
    return cut(body, MAX_BODY_CHARS - len(footer), "…") + footer


def overtaken(login: str, state: str) -> str:
    """A command that came after another one had changed the request."""
    return _reply(login, f"that came too late: the request is {state.replace('_', ' ')} by now. `/liger status` shows more.")
