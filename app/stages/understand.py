"""Understand: from the command's words to a profile that waits for a person's answer."""

from __future__ import annotations

from typing import Any

from agents.dev.github_url import FetchedReference, GitHubUrl
from agents.dev.inputs import OpInput, classify
from agents.dev.refused import Refused
from agents.dev.revise import revise
from agents.dev.understand import understand
from agents.ports import ModelError
from agents.profiles import KernelProfile
from app.comments import replies
from app.github import ForbiddenError, NotFoundError, RejectedError
from app.ports import Ports
from app.replies import answer
from app.stages.progress import on_progress
from app.stages.target import base_tree
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


async def _understood(ports: Ports, request: Request) -> KernelProfile | Refused:
    fetched = None
    found = classify(request.op_text, request.block, host=ports.web_host)
    if isinstance(found, OpInput) and found.url is not None:
        answer = await _fetch(ports, request, found.url)
        if isinstance(answer, Refused):
            return answer
        fetched = answer
    try:
        return await understand(
            request.op_text,
            request.block,
            await base_tree(ports, request),
            ports.bench,
            ports.model,
            fetched,
            request.base_sha,
            on_progress(ports, request.id),
            host=ports.web_host,
        )
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
    profile = KernelProfile.model_validate(before.body)
    tree = await base_tree(ports, request)
    outcome = await revise(profile, request.changes or {}, tree, ports.bench, on_progress(ports, request.id))
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
