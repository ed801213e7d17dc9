"""Starts the workflow for a job, once for each architecture: what is meant is kept before it is done."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import Mapping, Sequence
from datetime import timedelta

from agents.command_agent import Payload
from app.actions.faults import Fault
from app.actions.workflow import WORKFLOW_FILE
from app.github import ForbiddenError, GitHubError, NotFoundError, RejectedError
from app.ports import Ports
from app.store import now
from app.store.dispatches import SETTLED
from app.tables import Request, StoredDispatch, StoredJob
from runners.envelope import EnvelopeError, pack
from runners.protocol import Job

log = logging.getLogger(__name__)

INTENDED, SENT, RUNNING = "intended", "sent", "running"


async def dispatch_job(
    ports: Ports,
    request: Request,
    job: StoredJob,
    payload: Payload,
    architectures: Mapping[str, Sequence[str]],
) -> None:
    """Send a gate's job to every architecture that hasn't got it. Raises GitHubError when GitHub can't be asked now.

    architectures: architecture -> labels of its runners.
    """
    for architecture, labels in architectures.items():
        nonce = secrets.token_hex(16)
        fault, packed = "", ""
        try:
            packed = pack(
                Job(id=job.id, nonce=nonce, deadline_s=ports.settings.job_deadline_seconds, payload=payload)
            )
        except EnvelopeError as error:
            fault = str(error)
        meant = StoredDispatch(
            id=f"{job.id}-{architecture}",
            job_id=job.id,
            request_id=request.id,
            repository=request.repository,
            architecture=architecture,
            labels=list(labels),
            nonce=nonce,
            head_sha=job.head_sha,
            packed=packed,
            state=INTENDED,
            run_id=None,
            run_url="",
            fault="",
            detail="",
            report=None,
            created_at=now(),
            sent_at=None,
            started_at=None,
            settled_at=None,
        )
        kept = ports.store.start_dispatch(meant)
        if kept.state != INTENDED:
            continue
        if fault:
            ports.store.settle_dispatch(kept.id, fault=Fault.too_large, detail=fault)
        elif spent := await _spent(ports, request):
            ports.store.settle_dispatch(kept.id, fault=Fault.budget, detail=spent)
        else:
            # kept by an earlier try: that one may have got as far as GitHub
            await send(ports, request, kept, look_first=kept.nonce != nonce)


async def send(ports: Ports, request: Request, dispatch: StoredDispatch, *, look_first: bool) -> None:
    """Start the run of a dispatch. Raises GitHubError when GitHub can't be asked now."""
    # whoever cancels the step must not come between GitHub's answer and our note of it
    await asyncio.shield(_send(ports, request, dispatch, look_first))


async def _send(ports: Ports, request: Request, dispatch: StoredDispatch, look_first: bool) -> None:
    actions = ports.repository(request).actions
    if look_first and (run := await actions.find_run(WORKFLOW_FILE, dispatch.nonce)) is not None:
        await _sent(ports, request, dispatch, run.id, run.url)
        return
    inputs = {
        "job_id": dispatch.job_id,
        "nonce": dispatch.nonce,
        "sha": dispatch.head_sha,
        "architecture": dispatch.architecture,
        "labels": json.dumps(dispatch.labels),
        "job": dispatch.packed,
    }
    try:
        run_id = await actions.dispatch(WORKFLOW_FILE, request.default_branch, inputs)
    except NotFoundError:
        ports.store.settle_dispatch(dispatch.id, fault=Fault.no_workflow)
    except ForbiddenError as error:
        ports.store.settle_dispatch(dispatch.id, fault=Fault.forbidden, detail=str(error))
    except RejectedError as error:
        ports.store.settle_dispatch(dispatch.id, fault=Fault.refused, detail=str(error))
    else:
        await _sent(ports, request, dispatch, run_id)


async def _sent(
    ports: Ports, request: Request, dispatch: StoredDispatch, run_id: int | None, url: str = ""
) -> None:
    """Note that a run was started; one that was withdrawn meanwhile is cancelled."""
    kept = ports.store.update_dispatch(dispatch.id, state=SENT, run_id=run_id, run_url=url, sent_at=now())
    if kept.state == SETTLED:
        await _cancel_run(ports, request, dispatch.nonce, run_id)
    else:
        ports.store.note(request.id, "gate", f"{dispatch.job_id} sent to {dispatch.architecture}")


async def withdraw(ports: Ports, request: Request) -> None:
    """Take back what a request has out there: its runs are cancelled, their reports no longer count."""
    for dispatch in ports.store.open_dispatches(request.id):
        ports.store.settle_dispatch(dispatch.id, fault=Fault.withdrawn)
        await _cancel_run(ports, request, dispatch.nonce, dispatch.run_id)


async def _cancel_run(ports: Ports, request: Request, nonce: str, run_id: int | None) -> None:
    """Cancel a run, known or found by its nonce. It costs minutes and nothing else, so a failure is noted only."""
    actions = ports.repository(request).actions
    try:
        if run_id is None and (run := await actions.find_run(WORKFLOW_FILE, nonce)) is not None:
            run_id = run.id
        if run_id is not None:
            await actions.cancel(run_id)
    except GitHubError as error:
        log.warning("request %s: a run could not be cancelled: %s", request.id, error)
        ports.store.note(request.id, "error", f"a run could not be cancelled: {error}")


async def _spent(ports: Ports, request: Request) -> str:
    """Which budget of GPU minutes is used up, in words; empty while there is some left."""
    config = await ports.config(request)
    today = now() - timedelta(days=1)
    for limit, spent, whose in (
        (
            config.gpu_minutes_per_request,
            ports.store.gpu_minutes(request.repository, request.created_at, request.id),
            "this request",
        ),
        (config.gpu_minutes_per_day, ports.store.gpu_minutes(request.repository, today), "one day"),
    ):
        if spent >= limit:
            return f"{spent:.0f} of {limit:g} minutes for {whose} are used"
    return ""


def all_settled(dispatches: Sequence[StoredDispatch]) -> bool:
    """Whether nothing is waited for any more."""
    return all(one.state == SETTLED for one in dispatches)
