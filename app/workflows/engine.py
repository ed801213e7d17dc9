"""Starts and stops the workflow engine, and keeps requests going when processes die."""

from __future__ import annotations

import asyncio
import logging
import os
import socket

from dbos import DBOS, DBOSConfig, DBOSPortableJSONSerializer

from app.database import use_write_ahead_log
from app.ports import Ports
from app.stages.understand import stop as stop_request
from app.states import LIVE, RUNNING, Stage, State
from app.store import now
from app.tables import Request
from app.workflows import stages

log = logging.getLogger(__name__)

# Version of the workflows' steps, not of the code: raised when steps are renamed, reordered or removed.
WORKFLOWS_VERSION = "1"
HEARTBEAT_S = 10.0
SILENT_S = 60.0
SWEEP_S = 15.0
_DEAD = {
    "ERROR": "the stage ended without saying why",
    "MAX_RECOVERY_ATTEMPTS_EXCEEDED": "the stage brought its process down several times",
}
# Settings of the engine's own that would make it talk to its vendor.
_PHONE_HOME = ("DBOS_CONDUCTOR_KEY", "DBOS_CONDUCTOR_URL", "DBOS__CLOUD", "DBOS__CONDUCTOR_KEY")


class ExecutorTakenError(Exception):
    """Another live process uses the same executor id."""


class Engine:
    """The workflow engine of this process. Start it inside the event loop that the workflows shall run on."""

    def __init__(self, ports: Ports):
        self._ports = ports
        self._process = f"{socket.gethostname()}:{os.getpid()}"
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Launch the engine; it takes up what this executor left unfinished. Raises ExecutorTakenError."""
        settings = self._ports.settings
        self._claim(settings.executor_id)
        url = settings.workflows_url
        use_write_ahead_log(url)
        stages.hold(self._ports)
        for name in _PHONE_HOME:
            if os.environ.get(name):
                raise RuntimeError(f"{name} is set: workflow data would leave this machine; unset it")
        config: DBOSConfig = {
            "name": "liger-bot",
            "system_database_url": url,
            "executor_id": settings.executor_id,
            "application_version": WORKFLOWS_VERSION,
            "serializer": DBOSPortableJSONSerializer(),
            "log_level": "WARNING",
            "enable_otlp": False,
        }
        DBOS(config=config)
        DBOS.launch()
        await self.sweep()
        self._tasks = [asyncio.create_task(self._beat()), asyncio.create_task(self._sweep_forever())]

    async def stop(self) -> None:
        """Stop; what is unfinished goes on at the next start."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.to_thread(DBOS.destroy)
        self._ports.store.forget_executor(self._ports.settings.executor_id)
        stages.hold(None)

    async def start_stage(self, stage: Stage, request_id: str, attempt: int) -> None:
        """Start a stage of a request; starting the same attempt twice is once."""
        await stages.start(stage, request_id, attempt)

    async def cancel(self, request: Request) -> None:
        """Stop whatever runs for a request."""
        for stage in Stage:
            identifier = stages.workflow_id(request.id, stage, request.attempt)
            status = await DBOS.get_workflow_status_async(identifier)
            if status is not None and status.status in {"PENDING", "ENQUEUED"}:
                await DBOS.cancel_workflow_async(identifier)

    async def sweep(self) -> None:
        """Take up what dead processes left, and start every stage that should be running and isn't."""
        for executor_id in self._ports.store.silent_executors(SILENT_S):
            await self._rescue(executor_id)
        for request in self._ports.store.requests_in(LIVE):
            await self._ensure(request)

    async def _ensure(self, request: Request) -> None:
        state = State(request.state)
        if state is State.awaiting_approval:
            # a crash between an approval and what follows from it
            profile = self._ports.store.profile(request.id, request.attempt)
            if profile is None or self._ports.store.approval(request.id, profile.sha256) is None:
                return
            self._ports.store.move(request.id, State.acting)
            state = State.acting
        stage = RUNNING.get(state)
        if stage is None:
            return
        status = await DBOS.get_workflow_status_async(stages.workflow_id(request.id, stage, request.attempt))
        if status is None:
            log.info("request %s: starting stage %s, which should be running", request.id, stage)
            await stages.start(stage, request.id, request.attempt)
        elif status.status in _DEAD:
            log.error("request %s: stage %s ended as %s", request.id, stage, status.status)
            failure = {"kind": "fault", "reason": _DEAD[status.status]}
            await stop_request(self._ports, request.id, stage, failure)

    async def _rescue(self, executor_id: str) -> None:
        if executor_id == self._ports.settings.executor_id:
            return
        left = await DBOS.list_workflows_async(status="PENDING", executor_id=executor_id)
        for workflow in left:
            log.warning("executor %s is silent: taking up %s", executor_id, workflow.workflow_id)
            await DBOS.resume_workflow_async(workflow.workflow_id)
        if not left:
            self._ports.store.forget_executor(executor_id)

    def _claim(self, executor_id: str) -> None:
        holder = self._ports.store.executor(executor_id)
        if holder is not None and holder.process != self._process:
            silent_s = (now() - holder.heartbeat_at).total_seconds()
            if silent_s < SILENT_S and _may_live(holder.process):
                raise ExecutorTakenError(
                    f"another process ({holder.process}) is running as executor {executor_id!r}; give this one its own LIGER_BOT_EXECUTOR_ID"
                )
        self._ports.store.heartbeat(executor_id, self._process)

    async def _beat(self) -> None:
        while True:
            await asyncio.to_thread(
                self._ports.store.heartbeat, self._ports.settings.executor_id, self._process
            )
            await asyncio.sleep(HEARTBEAT_S)

    async def _sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            try:
                await self.sweep()
            except Exception:
                log.exception("the sweep failed; it runs again in %s s", SWEEP_S)


def _may_live(process: str) -> bool:
    """Whether a process named host:pid could still be running; on another host that can't be known."""
    host, _, pid = process.rpartition(":")
    if host != socket.gethostname():
        return True
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
