"""Act: from the approved profile to a branch and a draft pull request."""

from __future__ import annotations

import asyncio

from agents.command_agent import AnyCandidate, AnyProfile, read_profile
from agents.registry import agent_of
from app.comments.pull import pull_footer, pull_text
from app.github import GitHubError
from app.policy import MARKER_PREFIX, branch_name, check_allowed
from app.ports import Ports
from app.repository import Identity
from app.stages.target import place
from app.states import State
from app.tables import Request, StoredCandidate

LABEL = "liger-bot"


class NotApprovedError(Exception):
    """The act stage was started for a profile that nobody approved: our fault."""


async def begin(ports: Ports, request_id: str) -> None:
    """Make sure that the stored profile is the approved one, and show that work has started."""
    request = ports.store.request(request_id)
    approved_profile(ports, request)
    await ports.status.put(request_id)


def approved_profile(ports: Ports, request: Request) -> AnyProfile:
    """The request's profile. Raises NotApprovedError unless an approval is stored for exactly this one."""
    stored = ports.store.profile(request.id)
    if stored is None:
        raise NotApprovedError(f"request {request.id} has no profile")
    profile = read_profile(stored.body)
    if profile.sha256() != stored.sha256 or ports.store.approval(request.id, stored.sha256) is None:
        raise NotApprovedError(f"profile {stored.sha256[:12]} of request {request.id} is not approved")
    return profile


def candidate_of(request: Request, stored: StoredCandidate) -> AnyCandidate:
    """A stored candidate as its command's agent made it."""
    return agent_of(request.verb).candidate_type.model_validate(stored.body)


async def write(ports: Ports, request_id: str) -> None:
    """Write the candidate and keep it."""
    request = ports.store.request(request_id)
    profile = approved_profile(ports, request)
    config = await ports.config(request)
    # before the work, and again at the push for what a repair adds
    check_allowed((planned.path for planned in profile.files), config.allowed_paths)
    candidate = await agent_of(request.verb).act(profile, await place(ports, request))
    ports.store.save_candidate(request_id, request.attempt, 0, candidate)


async def push(ports: Ports, request_id: str) -> str:
    """Commit the newest candidate and push it to our branch; returns the commit."""
    request = ports.store.request(request_id)
    stored = ports.store.candidate(request_id)
    if stored is None:
        raise LookupError(f"request {request_id} has no candidate")
    candidate = candidate_of(request, stored)
    profile = approved_profile(ports, request)
    subject = agent_of(request.verb).subject(profile)
    config = await ports.config(request)
    check_allowed(candidate.files, config.allowed_paths)
    # a repair stays on its branch, whatever the prefix is by now
    known = request.branch if stored.round else ""
    branch = known or branch_name(subject, request_id, stored.attempt, config.branch_prefix)
    prefix = branch[: branch.rindex("/") + 1] if known else config.branch_prefix
    # a repair goes on top of what is there; pushed before, it is what is there, and committing it changes nothing
    parent = request.head_sha if stored.round else request.base_sha
    target = ports.target(request.repository)
    sha = await asyncio.to_thread(
        target.commit,
        parent,
        candidate.files,
        listed=[planned.path for planned in profile.files],
        message=f"{candidate.commit_message.rstrip()}\n\n{_trailers(request)}",
        author=await _bot(ports),
        at=stored.created_at,
    )
    token = await ports.repository(request).token(contents="write", metadata="read")
    await asyncio.to_thread(target.push, sha, branch, token, prefix)
    ports.store.candidate_pushed(request_id, stored.attempt, stored.round, sha)
    ports.store.update_request(request_id, branch=branch, head_sha=sha, round=stored.round)
    ports.store.note(request_id, "commit", f"{sha[:12]} on {branch}")
    if stored.round and request.pull_number:  # a repair may leave out what the pull request promises
        body = _pull_body(ports, request, candidate)
        await ports.repository(request).describe_pull(request.pull_number, body)
    return sha


def _pull_body(ports: Ports, request: Request, candidate: AnyCandidate) -> str:
    """The candidate's own words, and who asked for it and approved."""
    profile = ports.store.profile(request.id)
    sha256 = profile.sha256 if profile else ""
    approval = ports.store.approval(request.id, sha256)
    login = approval.login if approval else "nobody"
    footer = pull_footer(request.requester, request.id, sha256, login, ports.page_url(request.id))
    return pull_text(candidate.pull_body, footer)


async def open_pull(ports: Ports, request_id: str) -> int:
    """Open the draft pull request, or find the one that is open."""
    request = ports.store.request(request_id)
    stored = ports.store.candidate(request_id)
    if stored is None:
        raise LookupError(f"request {request_id} has no candidate")
    candidate = candidate_of(request, stored)
    body = _pull_body(ports, request, candidate)
    repository = ports.repository(request)
    pull = await repository.create_draft_pull(
        request.branch, request.default_branch, candidate.pull_title, body
    )
    try:
        await repository.add_labels(pull.number, [LABEL])
    except GitHubError as error:  # a label is a courtesy
        ports.store.note(request_id, "error", f"label not set: {error}")
    if request.pull_number not in {None, pull.number}:
        await _replace(ports, request, pull.number)
    ports.store.move(
        request_id,
        State.verifying,
        f"pull request #{pull.number}",
        pull_number=pull.number,
        pull_url=pull.url,
    )
    await ports.status.put(request_id)
    return pull.number


async def _replace(ports: Ports, request: Request, by: int) -> None:
    """Close the pull request of an earlier attempt, and say which one took its place."""
    repository, before = ports.repository(request), request.pull_number
    if before is None or (await repository.pull(before)).state == "closed":
        return
    marker = f"{MARKER_PREFIX}replaced={by} -->"
    if await repository.find_comment(before, marker) is None:
        await repository.create_comment(
            before, f"{marker}\nReplaced by #{by}, made from the revised profile."
        )
    await repository.close_pull(before)


async def _bot(ports: Ports) -> Identity:
    identity = await ports.github.identity()
    return Identity(identity.login, f"{identity.app_id}+{identity.login}@users.noreply.github.com")


def _trailers(request: Request) -> str:
    name = "".join(letter for letter in request.requester if letter.isalnum() or letter in "-_")
    return f"Co-authored-by: {name} <{request.requester_id}+{name}@users.noreply.github.com>"
