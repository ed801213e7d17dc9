"""Understand: from the command's words to a profile that waits for a person's answer."""

from __future__ import annotations

from typing import Any

from agents.command_agent import AnyProfile, read_profile
from agents.dev.github_url import FetchedReference, GitHubUrl
from agents.dev.refused import Refused
from agents.ports import ModelError
from agents.registry import agent_of
from app.comments import replies
from app.github import ForbiddenError, NotFoundError, RejectedError
from app.ports import Ports
from app.replies import answer
from app.stages.progress import on_progress
from app.stages.target import place
from app.states import Stage, State
from app.tables import Request


async def begin(ports: Ports, request_id: str) -> None:
    """Show that work has started."""
    request = ports.store.request(request_id)
    if State(request.state) is not State.revising:
        ports.store.move(request_id, State.understanding)
    await ports.status.put(request_id)


async def decide(ports: Ports, request_id: str) -> dict[str, Any] | None:
    """Make the profile and keep it. Returns the refusal instead, when there can't be one."""
    request = ports.store.request(request_id)
    if request.changes:
        return await _revise(ports, request)
    outcome = await _understood(ports, request)
    if isinstance(outcome, Refused):
        return {"kind": "refused", "reason": outcome.reason, "refused": outcome.model_dump(mode="json")}
    ports.store.save_profile(request_id, request.attempt, outcome)
    return None


async def _understood(ports: Ports, request: Request) -> AnyProfile | Refused:
    agent = agent_of(request.verb)
    wanted = agent.wanted(request.op_text, request.block, ports.web_host)
    if isinstance(wanted, Refused):
        return wanted
    fetched = None
    if wanted.url is not None:
        fetched = await _fetch(ports, request, wanted.url)
        if isinstance(fetched, Refused):
            return fetched
    here = await place(ports, request, on_progress=on_progress(ports, request.id))
    try:
        return await agent.understand(request.op_text, request.block, here, fetched)
    except ModelError as error:
        return Refused(
            reason=f"The language model could not be used: {error}",
            needed="a known name, an expression, or a python block, which need none",
        )


async def _fetch(ports: Ports, request: Request, url: GitHubUrl) -> FetchedReference | Refused:
    try:
        text, commit = await ports.repository(request).read_public_file(
            f"{url.owner}/{url.repo}", url.path, url.ref
        )
    except (NotFoundError, ForbiddenError, RejectedError) as error:
        return Refused(
            reason=f"{url.path} at {url.ref} in {url.owner}/{url.repo} can't be read",
            where=url.url,
            needed=f"a file that this bot can read, or its code in a python block below the command ({error})",
        )
    return FetchedReference(url=url, text=text, commit=commit)


async def _revise(ports: Ports, request: Request) -> None:
    """Change the profile as asked; when that can't be, say why and let the old one stand."""
    before = ports.store.profile(request.id)
    if before is None:
        raise LookupError(f"request {request.id} has no profile to revise")
    profile = read_profile(before.body)
    here = await place(ports, request, on_progress=on_progress(ports, request.id))
    outcome = await agent_of(request.verb).revise(profile, request.changes or {}, here)
    if isinstance(outcome, Refused):
        text = replies.revise_mistake(request.changed_by or request.requester, outcome)
        await answer(ports.repository(request), request.issue_number, request.followed_comment_id or 0, text)
        outcome = profile
    ports.store.save_profile(request.id, request.attempt, outcome)


async def show(ports: Ports, request_id: str) -> None:
    """Put the profile before people and wait for their answer."""
    await ports.status.show_profile(request_id)
    ports.store.move(request_id, State.awaiting_approval, changes=None)


async def stop(ports: Ports, request_id: str, stage: str, failure: dict[str, Any]) -> None:
    """End a request that can't go on, and say why."""
    request = ports.store.request(request_id)
    if State(request.state) not in {State.failed, State.rejected}:
        if failure["kind"] == "refused":
            ports.store.move(request_id, State.rejected, failure["reason"], failure=failure)
        else:
            ports.store.fail(request_id, Stage(stage), failure)
    await ports.status.put(request_id)
