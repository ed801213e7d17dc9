"""Follows dispatched jobs to their end: told by GitHub's events, and by asking now and then because events get lost.

Events are only a hint to look: what counts is read from GitHub's API, with our own credentials.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from datetime import timedelta

from app.actions.artifact import MAX_ZIP_BYTES, ArtifactError, OversizeError, report_in
from app.actions.faults import Fault
from app.actions.report import ForgedError, OpenNetworkError, read_report
from app.actions.sending import INTENDED, RUNNING, SENT, send
from app.actions.workflow import WORKFLOW_FILE, WORKFLOW_PATH
from app.github import Actions, GitHubError, NotFoundError, Run, TooLargeError
from app.ports import Engine, Ports
from app.stages.verify import show_gate
from app.store import now
from app.store.dispatches import SETTLED
from app.tables import Request, StoredDispatch

log = logging.getLogger(__name__)

# A step that is just sending has this long before someone else looks whether it got through.
SENDING_S = 60.0
APPEARS_WITHIN = timedelta(minutes=10)
# The workflow's own limit is 60 minutes.
RUNS_AT_MOST = timedelta(minutes=90)
GITHUB_QUEUES_FOR = timedelta(hours=23)


class Follower:
    """Looks at dispatches until each has its report or a fault, and has the verification go on."""

    def __init__(self, ports: Ports, engine: Engine):
        self._ports, self._engine = ports, engine
        self._looking: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._due: dict[str, float] = {}
        self._ready: set[str] = set()

    async def follow_forever(self) -> None:
        """Look at what is due, again and again."""
        while True:
            try:
                await self.look_at_due()
            except Exception:
                log.exception("dispatched jobs can't be looked at; trying again")
            await asyncio.sleep(self._ports.settings.fresh_poll_seconds)

    async def look_at_due(self) -> None:
        """Look at every open dispatch whose turn it is."""
        clock = time.monotonic()
        for dispatch in await asyncio.to_thread(self._ports.store.open_dispatches):
            if self._due.get(dispatch.id, 0.0) <= clock:
                age = now() - dispatch.created_at
                self._due[dispatch.id] = clock + _interval_s(age, self._ports.settings.fresh_poll_seconds)
                await self._look_safely(dispatch)
        for request_id in sorted(self._ready):
            if await self._engine.go_on(request_id):
                self._ready.discard(request_id)

    async def hint(self, repository: str, run_id: int, title: str) -> str:
        """Something happened to a run: look at the dispatch that it belongs to. Raises GitHubError."""
        nonce = title.rsplit(" ", 1)[-1]
        dispatch = self._ports.store.dispatch_of_run(repository, run_id, nonce)
        if dispatch is None:
            return "not a run of ours"
        await self.look(dispatch.id)
        return f"looked at {dispatch.id}"

    async def _look_safely(self, dispatch: StoredDispatch) -> None:
        try:
            await self.look(dispatch.id)
        except GitHubError as error:
            log.warning("dispatch %s can't be looked at now: %s", dispatch.id, error)

    async def look(self, dispatch_id: str) -> None:
        """Bring one dispatch up to date. Raises GitHubError."""
        async with self._looking[dispatch_id]:
            dispatch = self._ports.store.dispatch(dispatch_id)
            if dispatch is None or dispatch.state == SETTLED:
                return
            request = self._ports.store.request(dispatch.request_id)
            await self._look(request, dispatch)
            after = self._ports.store.dispatch(dispatch_id)
        if after is not None and after.state == SETTLED:
            del self._looking[dispatch_id]
            self._due.pop(dispatch_id, None)
            said = after.fault or "report received"
            self._ports.store.note(request.id, "gate", f"{after.job_id} on {after.architecture}: {said}")
            await show_gate(self._ports, after.job_id)
            if not await self._engine.go_on(request.id):
                self._ready.add(request.id)
        elif after is not None and after.state != dispatch.state:
            await show_gate(self._ports, after.job_id)
            await self._ports.status.progress(request.id, f"{after.architecture}: {after.state}")

    async def _look(self, request: Request, dispatch: StoredDispatch) -> None:
        actions = self._ports.repository(request).actions
        age = now() - dispatch.created_at
        if dispatch.state == INTENDED:
            if age.total_seconds() > SENDING_S:
                await send(self._ports, request, dispatch, look_first=True)
            return
        run = await self._run(actions, dispatch)
        if run is None:
            if dispatch.run_id is not None or age > APPEARS_WITHIN:
                self._settle(dispatch, Fault.vanished)
            return
        strange = await self._strange(request, dispatch, run)
        if strange:
            self._settle(dispatch, Fault.forged, strange)
        elif run.status == "completed":
            await self._collect(actions, dispatch, run)
        else:
            await self._wait(actions, dispatch, run)

    async def _run(self, actions: Actions, dispatch: StoredDispatch) -> Run | None:
        if dispatch.run_id is None:
            run = await actions.find_run(WORKFLOW_FILE, dispatch.nonce)
        else:
            try:
                run = await actions.run(dispatch.run_id)
            except NotFoundError:
                return None
        if run is not None and (dispatch.run_id, dispatch.run_url) != (run.id, run.url):
            self._ports.store.update_dispatch(dispatch.id, run_id=run.id, run_url=run.url)
        return run

    async def _strange(self, request: Request, dispatch: StoredDispatch, run: Run) -> str:
        """Why a run isn't the one that we started; empty when it is."""
        us = (await self._ports.github.identity()).login
        expected = {
            "workflow": (run.path, WORKFLOW_PATH),
            "event": (run.event, "workflow_dispatch"),
            "branch": (run.branch, request.default_branch),
            "actor": (run.actor, us),
        }
        wrong = [f"its {what} is {got!r}" for what, (got, wanted) in expected.items() if got != wanted]
        if dispatch.nonce not in run.title:
            wrong.append("its name lacks the nonce")
        return ", ".join(wrong)

    async def _wait(self, actions: Actions, dispatch: StoredDispatch, run: Run) -> None:
        """Still on its way: note that a runner has it, or that none came in time."""
        queued = timedelta(minutes=self._ports.settings.actions_queue_minutes)
        if run.status == "in_progress":
            started = dispatch.started_at or await actions.started_at(run.id)
            if started is not None:
                self._ports.store.update_dispatch(dispatch.id, state=RUNNING, started_at=started)
                if now() - started > RUNS_AT_MOST:
                    await actions.cancel(run.id)
                    self._settle(dispatch, Fault.lost, f"it ran for more than {RUNS_AT_MOST}")
        elif dispatch.state == SENT and now() - (dispatch.sent_at or dispatch.created_at) > queued:
            await actions.cancel(run.id)
            waited = f"it waited {queued.total_seconds() / 60:g} minutes for: {', '.join(dispatch.labels)}"
            self._settle(dispatch, Fault.no_runner, waited)

    async def _collect(self, actions: Actions, dispatch: StoredDispatch, run: Run) -> None:
        """A run has ended: read its report, or say why there is none."""
        if dispatch.started_at is None and (started := await actions.started_at(run.id)) is not None:
            dispatch = self._ports.store.update_dispatch(dispatch.id, started_at=started)
        found = await actions.artifacts(run.id, f"liger-bot-report-{dispatch.nonce}")
        if not found:
            self._settle(dispatch, *_without_report(dispatch, run))
            return
        if len(found) > 1:
            self._settle(dispatch, Fault.forged, f"the run left {len(found)} reports")
            return
        (artifact,) = found
        if artifact.expired:
            self._settle(dispatch, Fault.expired)
            return
        if artifact.size > MAX_ZIP_BYTES:
            self._settle(dispatch, Fault.oversize, f"the artifact has {artifact.size:,} bytes")
            return
        try:
            data = await actions.download(artifact.id, MAX_ZIP_BYTES)
            await asyncio.to_thread(self._keep, dispatch, data)
        except NotFoundError:
            self._settle(dispatch, Fault.expired)
        except (TooLargeError, OversizeError) as error:
            self._settle(dispatch, Fault.oversize, str(error))
        except OpenNetworkError as error:
            self._settle(dispatch, Fault.open_network, str(error))
        except (ArtifactError, ForgedError) as error:
            self._settle(dispatch, Fault.forged, str(error))

    def _keep(self, dispatch: StoredDispatch, data: bytes) -> None:
        job = self._ports.store.job(dispatch.job_id)
        if job is None:
            raise LookupError(f"dispatch {dispatch.id} has no job")
        report = read_report(
            report_in(data), job_id=job.id, gate=job.gate, nonce=dispatch.nonce, sha=dispatch.head_sha
        )
        self._ports.store.settle_dispatch(dispatch.id, report=report.model_dump(mode="json"))

    def _settle(self, dispatch: StoredDispatch, fault: Fault, detail: str = "") -> None:
        log.warning("dispatch %s: %s %s", dispatch.id, fault, detail)
        self._ports.store.settle_dispatch(dispatch.id, fault=fault, detail=detail)


def _without_report(dispatch: StoredDispatch, run: Run) -> tuple[Fault, str]:
    if run.conclusion == "cancelled":
        if dispatch.started_at is None and now() - dispatch.created_at > GITHUB_QUEUES_FOR:
            return Fault.no_runner, f"GitHub gave up after a day: {', '.join(dispatch.labels)}"
        return Fault.cancelled, ""
    if dispatch.started_at is None and run.conclusion in {"failure", "startup_failure"}:
        return Fault.lost, f"it ended as {run.conclusion} and no runner had taken it"
    return Fault.lost, f"it ended as {run.conclusion}"


def _interval_s(age: timedelta, fresh_s: float) -> float:
    """Seconds until a dispatch is looked at again: often while it's fresh, seldom when it waits for hours."""
    if age < timedelta(minutes=10):
        return fresh_s
    return max(fresh_s, 30.0 if age < timedelta(hours=2) else 120.0)
