"""Replies: each answers one comment, once."""

from __future__ import annotations

from collections.abc import Sequence

from agents.dev.refused import Refused
from agents.markdown import code, cut, plain, table
from app.commands import Mistake
from app.comments.limits import MAX_BODY_CHARS, WRITERS_WORDS
from app.comments.refusals import clause, refusal
from app.policy import MARKER_PREFIX
from app.repository_config import CONFIG_PATH, WRITERS, Who
from app.verbs import USAGE, Verb


def reply_marker(to: int | str) -> str:
    """The hidden words by which the reply to a comment, or to what `to` names, is found again."""
    return f"{MARKER_PREFIX}reply={to} -->"


def reply(to: int | str, text: str) -> str:
    """A reply as it is posted: marked, so that a comment is answered once."""
    return cut(f"{reply_marker(to)}\n{text}", MAX_BODY_CHARS, "…")


def _reply(login: str, text: str) -> str:
    return f"@{login} {text}"


def refused(login: str, one: Refused, verb: str = "dev") -> str:
    """An op or a model that can't even be looked for."""
    return _reply(login, refusal(one, verb))


def mistake(login: str, one: Mistake) -> str:
    """A command that can't be followed."""
    meant = f" Did you mean {code(one.suggestion)}?" if one.suggestion else ""
    return _reply(login, f"I didn't follow that: {one.what}.{meant} Try {code(one.next_command)}.")


def not_allowed(login: str, verb: Verb, rule: Who | None = None) -> str:
    """A command by someone who may not give it. rule: whom the repository's configuration lets give it."""
    if rule is not None and rule != WRITERS:
        return _reply(
            login,
            f"`/liger {verb}` is for {_people(rule)} here ({code(CONFIG_PATH)} on the default branch says so).",
        )
    return _reply(
        login,
        f"`/liger {verb}` needs write access to this repository, which you don't have; {WRITERS_WORDS} can comment "
        "it here. I answer this once a day.",
    )


def _people(rule: Who) -> str:
    """Whom a rule names; nobody is mentioned, so that nobody is called."""
    groups = [f"people with {rule.permission} access"] if rule.permission != "nobody" else []
    groups += [code(login) for login in rule.logins] + [f"team {code(team)}" for team in rule.teams]
    return " or ".join(groups) or "nobody"


def broken_config(login: str, mistake: str) -> str:
    """A command in a repository whose configuration can't be used."""
    end = "" if mistake.endswith("?") else "."
    return _reply(login, f"I can't act before this is mended: {clause(mistake)}{end}")


def not_available(login: str, verb: Verb) -> str:
    """A verb that this version doesn't have yet."""
    return _reply(login, f"`/liger {verb}` is not available yet. `/liger dev <op>` is; see `/liger help`.")


def help_text(login: str, topic: Verb | None) -> str:
    """How the verbs are written."""
    verbs = [topic] if topic else list(Verb)
    rows = [
        [
            code(USAGE[verb].form),
            plain(USAGE[verb].does),
            "write access" if USAGE[verb].writers_only else "anyone",
        ]
        for verb in verbs
    ]
    text = table(["command", "what it does", "who"], rows)
    if topic:
        text += f"\n\nExample: {code(USAGE[topic].example)}"
    return _reply(login, "one command a comment, at the start of a line:\n\n" + text)


def live_already(login: str, request_id: str, command: str, url: str) -> str:
    """A second request for an op whose first one is still live."""
    return _reply(
        login,
        f"that is being worked on already: {code(command)}, request `{request_id}`, {url}. `/liger cancel` there stops it.",
    )


def nothing_to(login: str, verb: Verb, states: Sequence[tuple[str, str]]) -> str:
    """A command that fits no request of this issue. states: (command, state) of those that are here."""
    here = "; ".join(f"{code(command)} is {state.replace('_', ' ')}" for command, state in states[:5])
    return _reply(
        login, f"there is nothing to {verb} here{': ' + here if here else ''}. `/liger status` shows more."
    )


def other_profile(login: str, given: str, current: str) -> str:
    """An approval that names another profile than the one that waits."""
    return _reply(
        login,
        f"the profile that waits here has the hash `{current[:12]}`, not {code(given)}; look at it again, then `/liger approve {current[:12]}`.",
    )


def second_person(login: str) -> str:
    """An approval by the requester where a second person is asked for."""
    return _reply(
        login,
        f"you asked for this, and here the approval is a second person's: {WRITERS_WORDS} can comment `/liger approve`.",
    )


def early(login: str, profile_sha256: str) -> str:
    """An approval that had been there before the profile was."""
    return _reply(
        login,
        f"your 👍 was there before this profile was, so it can't be about it: take it back and give it again, or comment `/liger approve {profile_sha256[:12]}`.",
    )


def shown_again(login: str) -> str:
    """The comment under an approval had been edited."""
    return _reply(
        login,
        "the profile's comment had been edited, so that approval can't be tied to a profile. I have put the profile back as it was: please look again, then react 👍 or comment `/liger approve`.",
    )


def revise_mistake(login: str, refused: Refused) -> str:
    """A revision that can't be made."""
    near = (
        f" Did you mean {' or '.join(code(one) for one in refused.suggestions[:3])}?"
        if refused.suggestions
        else ""
    )
    needed = f" {clause(refused.needed)}." if refused.needed else ""
    return _reply(login, f"the profile stays as it was: {clause(refused.reason)}.{needed}{near}")


def status_reply(login: str, rows: Sequence[tuple[str, str, str, str]]) -> str:
    """Where the requests of an issue stand. rows: (request id, command, state, page)."""
    if not rows:
        return _reply(login, "no request was made here yet. Start with `/liger dev <op>`.")
    lines = [
        [f"[{request_id}]({page})", code(command), state.replace("_", " ")]
        for request_id, command, state, page in rows[:20]
    ]
    return _reply(login, "requests here:\n\n" + table(["request", "command", "state"], lines))


def overtaken(login: str, state: str) -> str:
    """A command that came after another one had changed the request."""
    return _reply(
        login,
        f"that came too late: the request is {state.replace('_', ' ')} by now. `/liger status` shows more.",
    )
