"""Understand: from the command's words to a profile that waits for a person's answer."""

from __future__ import annotations

import logging
from typing import Any

from agents.command_agent import AnyProfile, read_profile
from agents.dev.analysis import derivation_of
from agents.dev.github_url import FetchedReference, GitHubUrl
from agents.dev.refused import Refused
from agents.dev.schedule_table import ScheduleTable
from agents.ports import ModelError
from agents.profiles import KernelProfile
from agents.registry import agent_of
from app.comments import replies
from app.derive_compile import compiled_schedules
from app.github import ForbiddenError, GitHubError, NotFoundError, RejectedError
from app.policy import PathNotAllowedError, check_allowed
from app.ports import Ports
from app.replies import answer
from app.stages.progress import on_progress
from app.stages.target import place
from app.states import Stage, State
from app.tables import Request
from runners.protocol import Progress

log = logging.getLogger(__name__)


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
        outcome = await agent.understand(request.op_text, request.block, here, fetched)
        return outcome if isinstance(outcome, Refused) else await _allowed(ports, request, outcome)
    except ModelError as error:
        return Refused(
            reason=f"The language model could not be used: {error}",
            needed="a known name, an expression, or a python block, which need none",
        )


async def _allowed(ports: Ports, request: Request, profile: AnyProfile) -> AnyProfile | Refused:
    """The profile, unless it plans a file that the repository doesn't let the bot write."""
    try:
        check_allowed((one.path for one in profile.files), (await ports.config(request)).allowed_paths)
    except PathNotAllowedError as error:
        return Refused(reason=str(error), needed="a pattern that takes in the planned files")
    return profile


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


async def compile_schedules(ports: Ports, request_id: str) -> None:
    """Compile what the shown profile weighed and add the table to its comment; whatever comes of it, the profile stands."""
    request = ports.store.request(request_id)
    stored = ports.store.profile(request_id, request.attempt)
    if ports.spare_bench is None or stored is None or not _waits(ports, request):
        return
    profile = read_profile(stored.body)
    if not isinstance(profile, KernelProfile):
        return

    async def on_progress(_: Progress) -> None:
        if not _waits(ports, request):
            raise _AnsweredError

    try:
        table = await compiled_schedules(*derivation_of(profile), ports.spare_bench, on_progress)
    except _AnsweredError:
        log.info("request %s: answered before its schedules were compiled", request_id)
        return
    except Exception:
        log.exception("request %s: its schedules were not compiled", request_id)
        table = ScheduleTable(note="the service failed at it, which is our fault")
    ports.store.schedules_compiled(request_id, request.attempt, table.model_dump(mode="json"))
    try:
        await ports.status.extend_profile(request_id)
    except GitHubError as error:
        log.warning("request %s: the compiled schedules are not shown: %s", request_id, error)


class _AnsweredError(Exception):
    """Someone answered the profile: what was compiled for it is not wanted any more."""


def _waits(ports: Ports, request: Request) -> bool:
    now = ports.store.request(request.id)
    return State(now.state) is State.awaiting_approval and now.attempt == request.attempt


async def stop(ports: Ports, request_id: str, stage: str, failure: dict[str, Any]) -> None:
    """End a request that can't go on, and say why."""
    request = ports.store.request(request_id)
    if State(request.state) not in {State.failed, State.rejected}:
        if failure["kind"] == "refused":
            ports.store.move(request_id, State.rejected, failure["reason"], failure=failure)
        else:
            ports.store.fail(request_id, Stage(stage), failure)
    await ports.status.put(request_id)
