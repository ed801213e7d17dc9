"""Starts and stops the workflow engine, and keeps requests going when processes die."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import socket
from datetime import timedelta
from enum import StrEnum

from dbos import DBOS, DBOSConfig, DBOSPortableJSONSerializer
from sqlalchemy.exc import SQLAlchemyError

from app.database import use_write_ahead_log
from app.ports import Ports
from app.stages.understand import stop as stop_request
from app.states import ENDED, RUNNING, Stage, State
from app.store import now
from app.tables import Request
from app.workflows import stages

log = logging.getLogger(__name__)

# Version of the workflows' steps, not of the code: raised when steps are renamed, reordered or removed.
WORKFLOWS_VERSION = "1"
# Each pass concludes a gate at least: four of them, in four rounds.
MAX_PASSES = 20
HEARTBEAT_S = 5.0
SILENT_S = 60.0
SWEEP_S = 15.0
# After an outage of the database everyone has been silent; who is still there has spoken again after so many heartbeats.
BEATS_BEFORE_RESCUE = 4
# Connections to the engine's tables, beside those to ours.
POOL_SIZE = 10
_DEAD = {
    "ERROR": "the stage ended without saying why",
    "MAX_RECOVERY_ATTEMPTS_EXCEEDED": "the stage brought its process down several times",
}
_ENDED = ["SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"]
FORGOTTEN_AT_ONCE = 1_000
_UNFINISHED = frozenset({"PENDING", "ENQUEUED"})
# Settings of the engine's own that would make it talk to its vendor.
_PHONE_HOME = ("DBOS_CONDUCTOR_KEY", "DBOS_CONDUCTOR_URL", "DBOS__CLOUD", "DBOS__CONDUCTOR_KEY")


class Role(StrEnum):
    """What a process does of the requests' work."""

    everything = "everything"
    app = "app"
    worker = "worker"


class ExecutorTakenError(Exception):
    """Another live process uses the same executor id."""


class Engine:
    """The workflow engine of this process. Start it inside the event loop that the workflows shall run on.

    role: everything runs the stages that it starts; app leaves them to workers; worker runs what others start.
    """

    def __init__(self, ports: Ports, role: Role = Role.everything):
        self._ports, self._role = ports, role
        self._beats = 0
        self._process = f"{socket.gethostname()}:{os.getpid()}"
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Launch the engine; it takes up what this executor left unfinished. Raises ExecutorTakenError."""
        settings = self._ports.settings
        self._claim(settings.executor_id)
        self._ports.store.drop_writes_of([settings.executor_id])  # of the process that had this name before
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
            "sys_db_pool_size": POOL_SIZE,
        }
        DBOS(config=config)
        if self._role is Role.app:
            DBOS.listen_queues([])
        DBOS.launch()
        await stages.register_queue()
        await self.rescue(certain=True)
        await self.sweep()
        self._tasks = [asyncio.create_task(self._beat()), asyncio.create_task(self._sweep_forever())]

    async def stop(self, grace_s: float = 0.0) -> None:
        """Stop, after up to `grace_s` seconds for stages that run; what is unfinished goes on at the next start."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.to_thread(DBOS.destroy, workflow_completion_timeout_sec=math.ceil(grace_s))
        self._ports.store.forget_executor(self._ports.settings.executor_id)
        stages.hold(None)

    async def start_stage(self, stage: Stage, request_id: str, attempt: int) -> None:
        """Start a stage of a request; starting the same attempt twice is once."""
        await self._start(stage, request_id, attempt)

    async def _start(self, stage: Stage, request_id: str, attempt: int, pass_: int = 0) -> None:
        begin = stages.enqueue if self._role is Role.app else stages.start
        await begin(stage, request_id, attempt, pass_)

    async def cancel(self, request: Request) -> None:
        """Stop whatever runs for a request."""
        for stage in Stage:
            _, identifier, status = await self._newest(request, stage)
            if status in _UNFINISHED:
                await DBOS.cancel_workflow_async(identifier)

    async def go_on(self, request_id: str) -> bool:
        """Take verification up again when the runners that it waited for have answered.

        False: it can't be told yet, ask again.
        """
        request = self._ports.store.request(request_id)
        if State(request.state) not in {State.verifying, State.repairing} or not self._answered(request):
            return True
        pass_, identifier, status = await self._newest(request, Stage.verify)
        if status in _UNFINISHED:
            return False
        if status == "SUCCESS" and pass_ >= MAX_PASSES:
            failure = {"kind": "fault", "reason": "verification was taken up again too often"}
            await stop_request(self._ports, request_id, Stage.verify, failure)
        elif status == "SUCCESS":
            log.info("request %s: the runners have answered, after %s", request_id, identifier)
            await stages.start(Stage.verify, request_id, request.attempt, pass_ + 1)
        return True

    def _answered(self, request: Request) -> bool:
        """Whether this attempt has sent something to runners, and nothing is out any more."""
        store = self._ports.store
        jobs = store.jobs(request.id, request.attempt)
        return not store.open_dispatches(request.id) and any(store.dispatches_of_job(one.id) for one in jobs)

    async def _newest(self, request: Request, stage: Stage) -> tuple[int, str, str | None]:
        """(pass, id, status) of the newest workflow of a stage in this attempt; status None: there is none."""
        pass_, found = 0, None
        while True:
            identifier = stages.workflow_id(request.id, stage, request.attempt, pass_)
            status = await DBOS.get_workflow_status_async(identifier)
            if status is None:
                before = stages.workflow_id(request.id, stage, request.attempt, max(0, pass_ - 1))
                return max(0, pass_ - 1), before, found
            pass_, found = pass_ + 1, status.status

    async def sweep(self) -> None:
        """Start every stage that should be running and isn't. Workers leave that to who serves."""
        if self._role is Role.worker:
            return
        store = self._ports.store
        for request in await asyncio.to_thread(store.approved_and_waiting):
            store.move(request.id, State.acting)
        for request in await asyncio.to_thread(store.requests_in, frozenset(RUNNING)):
            await self._ensure(request)

    async def _ensure(self, request: Request) -> None:
        stage = RUNNING.get(State(request.state))
        if stage is None:
            return
        _, _, status = await self._newest(request, stage)
        if status is None:
            log.info("request %s: starting stage %s, which should be running", request.id, stage)
            await self._start(stage, request.id, request.attempt)
        elif status in _DEAD:
            log.error("request %s: stage %s ended as %s", request.id, stage, status)
            failure = {"kind": "fault", "reason": _DEAD[status]}
            await stop_request(self._ports, request.id, stage, failure)
        elif stage is Stage.verify:
            await self.go_on(request.id)

    async def rescue(self, *, certain: bool = False) -> None:
        """Take up what dead processes left: unfinished workflows whose executor doesn't live.

        certain: leave alone who has only been silent, as everyone was when the database comes back.
        """
        live, dead = {self._ports.settings.executor_id}, set[str]()
        for executor in await asyncio.to_thread(self._ports.store.executors):
            silent_s = (now() - executor.heartbeat_at).total_seconds()
            if not _may_live(executor.process):
                dead.add(executor.id)
            elif certain or silent_s < SILENT_S:
                live.add(executor.id)
        if dead - live:  # who has only been silent may be writing still: its claims run out by themselves
            await asyncio.to_thread(self._ports.store.drop_writes_of, dead - live)
        for workflow in await DBOS.list_workflows_async(
            status="PENDING", load_input=False, load_output=False
        ):
            if workflow.executor_id not in live:
                dead.discard(workflow.executor_id or "")
                log.warning("executor %s is gone: taking up %s", workflow.executor_id, workflow.workflow_id)
                queue = None if self._role is Role.everything else stages.QUEUE
                await DBOS.resume_workflow_async(workflow.workflow_id, queue_name=queue)
        for executor_id in dead - live:
            self._ports.store.forget_executor(executor_id)

    async def forget_workflows(self, older_than: timedelta) -> int:
        """Delete what the engine keeps of stages that ended long ago, of requests that have ended; returns how many."""
        before = (now() - older_than).isoformat()
        ended = await DBOS.list_workflows_async(
            status=_ENDED, end_time=before, limit=FORGOTTEN_AT_ONCE, load_input=False, load_output=False
        )
        old = []
        for workflow in ended:
            request = self._ports.store.find_request(workflow.workflow_id.split(":")[0])
            if request is None or State(request.state) in ENDED:
                old.append(workflow.workflow_id)
        if old:
            await DBOS.delete_workflows_async(old)
        return len(old)

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
            try:
                await asyncio.to_thread(
                    self._ports.store.heartbeat, self._ports.settings.executor_id, self._process
                )
                self._beats += 1
                if self._beats >= BEATS_BEFORE_RESCUE:
                    await self.rescue()
            except Exception as error:
                self._beats = 0
                known = isinstance(error, SQLAlchemyError)
                log.log(
                    logging.WARNING if known else logging.ERROR, "no heartbeat: %s", error, exc_info=not known
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
