"""Who may do what, which reactions are approvals, which events are ignored, which paths are written. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from app.repository_config import CONFIG_PATH, RepositoryConfig, Who
from app.verbs import USAGE, Verb

WRITERS = frozenset({"admin", "maintain", "write"})
BRANCH_PREFIX = RepositoryConfig().branch_prefix
LEVELS = ("none", "read", "triage", "write", "maintain", "admin")
MARKER_PREFIX = "<!-- liger-bot:"
APPROVE, VETO = "+1", "-1"
REPAIR_ROUNDS = 3
# A person without write access is answered this often on one issue within a day; after that, silence.
STRANGER_ANSWERS_A_DAY = 1
READER_ANSWERS_A_DAY = 5


def may_write(permission: str) -> bool:
    """Whether GitHub's answer for a collaborator means write access."""
    return permission in WRITERS


def among(who: Who, permission: str, login: str) -> bool:
    """Whether a person is among those with the permission, or those named; teams are asked for elsewhere."""
    if login.lower() in {one.lower() for one in who.logins}:
        return True
    if who.permission == "nobody" or permission not in LEVELS:
        return False
    return LEVELS.index(permission) >= LEVELS.index(who.permission)


def rule_for(verb: Verb, config: RepositoryConfig) -> Who | None:
    """Whom a repository lets give a command; None where it has no say."""
    return getattr(config.commands, verb, None)


class Door(StrEnum):
    """What to do with a command by that person."""

    follow = "follow"
    refuse = "refuse"
    ignore = "ignore"


def door(
    verb: Verb, permission: str, *, is_requester: bool, answers_today: int, named: bool | None = None
) -> Door:
    """Whether a command is followed, refused with one short answer, or met with silence.

    answers_today: replies that this person got on this issue in the last 24 hours. named: whether the person is among
    those whom the repository's configuration lets give this command; None where it has no say.
    """
    if verb is Verb.cancel and is_requester:
        return Door.follow
    if may_write(permission) if named is None else named:
        return Door.follow
    if may_write(permission):
        return Door.refuse
    if USAGE[verb].writers_only:
        return Door.refuse if answers_today < STRANGER_ANSWERS_A_DAY else Door.ignore
    return Door.follow if answers_today < READER_ANSWERS_A_DAY else Door.ignore


@dataclass(frozen=True)
class CommentEvent:
    """What the loop guards look at in an issue_comment event."""

    action: str
    sender_type: str
    author_type: str
    body: str
    via_app_id: int | None


def ignored_because(event: CommentEvent, app_id: int) -> str | None:
    """Why a comment is not read for commands; None when it is."""
    if event.action != "created":
        return f"only created comments count, this one was {event.action}"
    if event.sender_type != "User" or event.author_type != "User":
        return "not written by a person"
    if event.via_app_id == app_id:
        return "written by this App"
    if MARKER_PREFIX in event.body:
        return "holds this bot's own marker"
    return None


@dataclass(frozen=True)
class Shown:
    """A profile as it stands in a comment, waiting for an answer."""

    profile_sha256: str
    body_sha256: str  # of the comment's text as we last wrote it
    shown_at: datetime  # when GitHub says that we last edited it
    stale_reactions: frozenset[int]  # ids of reactions that were there before
    requester: str
    earlier_body_sha256: str = ""  # before more was said of the same profile; the comment may still read so


@dataclass(frozen=True)
class SeenReaction:
    """One reaction, with its author's permission as read just now."""

    id: int
    content: str
    login: str
    user_type: str
    permission: str
    created_at: datetime
    approver: bool = True  # among those whose approval the repository's configuration takes


class Answer(StrEnum):
    """What the reactions on a profile amount to."""

    none = "none"
    approved = "approved"
    vetoed = "vetoed"
    early = "early"  # all that would approve it was there before the profile was
    altered = "altered"  # someone edited the comment: what was approved is not what we stored


@dataclass(frozen=True)
class Judgement:
    answer: Answer
    by: SeenReaction | None = None


def by_a_writer(reaction: SeenReaction) -> bool:
    """Whether a reaction is by a person with write access now."""
    return reaction.user_type == "User" and may_write(reaction.permission)


def counts(reaction: SeenReaction, shown: Shown) -> bool:
    """Whether a reaction is by a person with write access now, given after the profile was last shown."""
    return (
        by_a_writer(reaction)
        # GitHub's times have whole seconds, so one second may hold both; the ids tell what was there before
        and reaction.created_at >= shown.shown_at
        and reaction.id not in shown.stale_reactions
    )


def judge_reactions(
    reactions: Iterable[SeenReaction], shown: Shown, body_sha256: str, *, requester_may_approve: bool
) -> Judgement:
    """What the reactions on a shown profile amount to. body_sha256: of the comment's text as it is now."""
    given = sorted(filter(by_a_writer, reactions), key=lambda one: (one.created_at, one.id))
    counted = [one for one in given if counts(one, shown)]
    veto = next((one for one in counted if one.content == VETO), None)
    if veto is not None:
        return Judgement(Answer.vetoed, veto)

    def approves(one: SeenReaction) -> bool:
        may = one.approver and (requester_may_approve or one.login != shown.requester)
        return one.content == APPROVE and may

    approvals = [one for one in counted if approves(one)]
    if not approvals:
        early = next((one for one in given if approves(one)), None)
        return Judgement(Answer.early if early else Answer.none, early)
    if body_sha256 not in {shown.body_sha256, shown.earlier_body_sha256}:
        return Judgement(Answer.altered, approvals[0])
    return Judgement(Answer.approved, approvals[0])


def expired(shown_at: datetime, now: datetime, approval_days: float) -> bool:
    """Whether a profile waited too long for an answer."""
    return (now - shown_at) / timedelta(days=1) > approval_days


def poll_interval_s(age: timedelta, fresh_s: float) -> float:
    """Seconds until a pending profile's reactions are read again: often while it's fresh, seldom later."""
    if age < timedelta(minutes=10):
        return fresh_s
    if age < timedelta(days=1):
        return max(fresh_s, 60.0)
    return max(fresh_s, 300.0)


class ForbiddenWriteError(Exception):
    """A branch or path that the bot must not write. The message names it."""


class PathNotAllowedError(ForbiddenWriteError):
    """The repository's configuration doesn't let the bot write a path: a person's decision, told as such."""


_BRANCH_ENDING = re.compile(r"[a-z0-9][a-z0-9._-]{0,100}")
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_.\-]+(/[A-Za-z0-9_.\-]+)*")
_FORBIDDEN_NAMES = frozenset(
    {
        "conftest.py",
        "setup.py",
        "setup.cfg",
        "pyproject.toml",
        "makefile",
        "dockerfile",
        "tox.ini",
        "noxfile.py",
        "pytest.ini",
        "sitecustomize.py",
        "usercustomize.py",
    }
)
_FORBIDDEN_ENDINGS = (".pth", ".sh", ".yml", ".yaml", ".toml", ".cfg")


def branch_name(op_name: str, request_id: str, attempt: int, prefix: str = BRANCH_PREFIX) -> str:
    """The branch for one attempt of a request; the same whenever it's asked."""
    slug = re.sub(r"[^a-z0-9]+", "-", op_name.lower()).strip("-")[:40] or "op"
    ending = f"-{attempt}" if attempt > 1 else ""
    return f"{prefix}{slug}-{request_id}{ending}"


def check_branch(name: str, prefix: str = BRANCH_PREFIX) -> None:
    """Raises ForbiddenWriteError unless the branch is one of ours."""
    ours = name.startswith(prefix) and _BRANCH_ENDING.fullmatch(name.removeprefix(prefix))
    if not ours or ".." in name or name.endswith((".lock", ".")):
        raise ForbiddenWriteError(f"branch {name!r} is not under {prefix}")


def check_allowed(paths: Iterable[str], patterns: Iterable[str]) -> None:
    """Raises PathNotAllowedError for a path that fits none of the repository's patterns; no pattern: nothing to check."""
    allowed = [_pattern(one) for one in patterns]
    for path in paths:
        if allowed and not any(one.fullmatch(path) for one in allowed):
            raise PathNotAllowedError(
                f"{path} fits no pattern of `allowed_paths` in {CONFIG_PATH}: add one, or revise the profile"
            )


def _pattern(glob: str) -> re.Pattern[str]:
    """A path pattern: `*` and `?` stay within a folder, `**` crosses folders."""
    words = {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", glob)
    return re.compile("".join(words.get(part, re.escape(part)) for part in parts))


def check_paths(paths: Iterable[str], listed: Iterable[str], links: Iterable[str] = ()) -> None:
    """Raises ForbiddenWriteError unless every path was listed in the approved profile and is plain source.

    links: paths that are symbolic links in the target repository.
    """
    allowed, symlinks = set(listed), set(links)
    for path in paths:
        parts = path.split("/")
        if _PLAIN_PATH.fullmatch(path) is None or any(
            part in {".", ".."} or part.startswith(".") for part in parts
        ):
            raise ForbiddenWriteError(f"{path!r} is not a plain path inside the repository")
        if parts[-1].lower() in _FORBIDDEN_NAMES or path.lower().endswith(_FORBIDDEN_ENDINGS):
            raise ForbiddenWriteError(
                f"{path} decides how the repository is built or tested; the bot never writes it"
            )
        if path not in allowed:
            raise ForbiddenWriteError(f"{path} is not among the files of the approved profile")
        if any("/".join(parts[: depth + 1]) in symlinks for depth in range(len(parts))):
            raise ForbiddenWriteError(f"{path} is, or lies behind, a symbolic link")
