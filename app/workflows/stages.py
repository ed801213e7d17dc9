"""The three stages as durable workflows: lists of named steps, each recorded when it has run.

After a crash a workflow is run again from the top; steps that are recorded are not run again, and the step that was
running is. So every step may run twice, and nothing but steps touches the world.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from dbos import DBOS, SetWorkflowID, StepOptions
from sqlalchemy.exc import InterfaceError, OperationalError

from agents.conventions import NotAKernelLibrary
from agents.dev.analysis import AnalysisFault
from agents.formatting import ActFailed
from app.dispatch import BenchError
from app.github import ForbiddenError, LimitedError, UnreachableError, redact
from app.logs import log_fields
from app.policy import REPAIR_ROUNDS, ForbiddenWriteError, PathNotAllowedError
from app.ports import Ports
from app.repository import BranchMovedError, RepositoryBusyError, RepositoryError
from app.repository_config import ConfigMistake
from app.stages import act as act_steps
from app.stages import target as target_steps
from app.stages import understand as understand_steps
from app.stages import verify as verify_steps
from app.states import ENDED, IllegalMoveError, Stage, State
from runners.protocol import Gate

log = logging.getLogger(__name__)

# A run that brings the process down every time must not do so for ever; a verify stage has some ten steps, and the
# process may be killed by others at each of them.
MAX_RECOVERY_ATTEMPTS = 20
# Waits of 2, 4, 8, 16, 32 seconds: longer than GitHub's minute for secondary limits.
_RETRIES = 6
_TRANSIENT = (UnreachableError, LimitedError, BenchError, RepositoryBusyError)
# A step waits this long for a database that is away: a restart takes seconds, moving it to another machine minutes.
DATABASE_PATIENCE_S = 1800.0
DATABASE_AGAIN_S = 3.0
# Stages from the database, when others run them than who starts them.
QUEUE = "stages"
QUEUE_POLL_S = 0.5
STAGES_A_WORKER = 16  # most of them wait: for GitHub, for git, for a free slot
# What a person can change: told plainly. Everything else is our fault.
_MISTAKES = (
    ActFailed,
    BranchMovedError,
    ConfigMistake,
    ForbiddenError,
    NotAKernelLibrary,
    PathNotAllowedError,
)


class _Held:
    """DBOS is one a process, and so is what its workflows reach the world through."""

    ports: Ports | None = None


def hold(ports: Ports | None) -> None:
    """Set what the workflows of this process use."""
    _Held.ports = ports


def workflow_id(request_id: str, stage: str, attempt: int, pass_: int = 0) -> str:
    """A stage's workflow. pass_: how often verification was taken up again after it had waited for runners."""
    return f"{request_id}:{stage}:{attempt}" + (f":{pass_}" if pass_ else "")


def _is_transient(error: BaseException) -> bool:
    return isinstance(error, _TRANSIENT)


class SupersededError(Exception):
    """The request was stopped, or is at another attempt: this workflow's word doesn't count any more."""


async def _step(
    name: str,
    attempt: int,
    function: Callable[..., Awaitable[Any]],
    request_id: str,
    *args: Any,
    preemptible: bool = False,
    last: bool = False,
) -> Any:
    """Run a step of an attempt and record it.

    preemptible: cancelling the request cancels it. last: it may itself end the request, and run again after that.
    """
    ports = _Held.ports
    if ports is None:
        raise RuntimeError("the engine is not started")
    options: StepOptions = {
        "name": name,
        "retries_allowed": True,
        "interval_seconds": 2.0,
        "max_attempts": _RETRIES,
        "backoff_rate": 2.0,
        "should_retry": _is_transient,
        "preemptible": preemptible,
    }

    async def run() -> Any:
        end = time.monotonic() + DATABASE_PATIENCE_S
        with log_fields(request=request_id, step=name):
            while True:
                try:
                    return await work()
                except (OperationalError, InterfaceError) as error:
                    if time.monotonic() > end:
                        raise
                    log.warning("the database is away; the step begins again: %s", error.orig)
                await asyncio.sleep(DATABASE_AGAIN_S)

    async def work() -> Any:
        request = ports.store.request(request_id)
        if request.attempt != attempt or (State(request.state) in ENDED and not last):
            raise SupersededError(f"request {request_id} is {request.state} at attempt {request.attempt}")
        return await function(ports, request_id, *args)

    return await DBOS.run_step_async(options, run)


async def _guarded(stage: Stage, request_id: str, attempt: int, body: Awaitable[None]) -> None:
    """Run a stage; whatever stops it becomes the request's failure, shown to people."""
    try:
        await body
    except (IllegalMoveError, SupersededError) as error:
        # cancelled or closed meanwhile, or another process was faster: its word stands
        log.info("request %s: %s ends: %s", request_id, stage, error)
    except Exception as error:
        cause = _cause(error)
        log.exception("request %s: stage %s failed", request_id, stage)
        try:
            await _step(
                f"{stage} failed",
                attempt,
                understand_steps.stop,
                request_id,
                str(stage),
                _failure(cause),
                last=True,
            )
        except (IllegalMoveError, SupersededError) as late:
            log.info("request %s: %s ends: %s", request_id, stage, late)


def _cause(error: Exception) -> Exception:
    """What went wrong: of a step that was retried in vain, its last error."""
    tries = getattr(error, "errors", None)
    return tries[-1] if isinstance(tries, list) and tries and isinstance(tries[-1], Exception) else error


def _failure(error: Exception) -> dict[str, Any]:
    if isinstance(error, _MISTAKES):
        return {"kind": "mistake", "reason": redact(str(error)).rstrip(".")[:500]}
    known = isinstance(
        error,
        (UnreachableError, LimitedError, BenchError, AnalysisFault, RepositoryError, ForbiddenWriteError),
    )
    # an error that was recorded before a crash comes back with its name, not its type
    name = getattr(error, "name", type(error).__name__)
    reason = redact(str(error))[:500] if known else f"{name} in the service"
    return {"kind": "fault", "reason": reason.rstrip(".")}


@DBOS.workflow(name="understand", max_recovery_attempts=MAX_RECOVERY_ATTEMPTS)
async def understand(request_id: str, attempt: int) -> None:
    """From the command's words to a profile that waits for an answer."""

    async def stage() -> None:
        await _step("show the start", attempt, understand_steps.begin, request_id)
        await _step("fetch the base", attempt, target_steps.fetch_base, request_id)
        failure = await _step("decide", attempt, understand_steps.decide, request_id, preemptible=True)
        if failure is not None:
            await _step(
                "show the refusal",
                attempt,
                understand_steps.stop,
                request_id,
                Stage.understand.value,
                failure,
                last=True,
            )
            return
        await _step("show the profile", attempt, understand_steps.show, request_id)
        await _step(
            "compile the schedules", attempt, understand_steps.compile_schedules, request_id, preemptible=True
        )

    await _guarded(Stage.understand, request_id, attempt, stage())


@DBOS.workflow(name="act", max_recovery_attempts=MAX_RECOVERY_ATTEMPTS)
async def act(request_id: str, attempt: int) -> None:
    """From the approved profile to a draft pull request."""

    async def stage() -> None:
        await _step("check the approval", attempt, act_steps.begin, request_id)
        await _step("write the candidate", attempt, act_steps.write, request_id, preemptible=True)
        await _step("push the branch", attempt, act_steps.push, request_id)
        await _step("open the pull request", attempt, act_steps.open_pull, request_id)
        await start(Stage.verify, request_id, attempt)

    await _guarded(Stage.act, request_id, attempt, stage())


@DBOS.workflow(name="verify", max_recovery_attempts=MAX_RECOVERY_ATTEMPTS)
async def verify(request_id: str, attempt: int) -> None:
    """Every gate, and repair while something is known to try.

    Ends without handing over when runners elsewhere still have to answer. The next pass, another workflow of the same
    attempt, finds done what is done: nothing waits for runners inside a workflow.
    """

    async def gate(which: Gate) -> str:
        return await _step(
            f"gate {which}", attempt, verify_steps.run_gate, request_id, which.value, preemptible=True
        )

    async def repaired(round_: int) -> bool:
        if round_ > REPAIR_ROUNDS or not await _step(
            "repair", attempt, verify_steps.repair, request_id, round_, preemptible=True
        ):
            return False
        await _step("push the repair", attempt, act_steps.push, request_id)
        await _step("show the repair", attempt, verify_steps.begin, request_id)
        return True

    async def stage() -> None:
        done = await _step("show the start", attempt, verify_steps.begin, request_id) or 0
        for round_ in range(done + 1, REPAIR_ROUNDS + 2):
            conclusions = {Gate.style: await gate(Gate.style)}
            if verify_steps.waits(conclusions):
                return
            if verify_steps.blocks(conclusions) and await repaired(round_):
                continue
            # started in this order, so that a replay finds the same step numbers
            correctness, compiled = await asyncio.gather(gate(Gate.correctness), gate(Gate.compile))
            conclusions |= {Gate.correctness: correctness, Gate.compile: compiled}
            if verify_steps.waits(conclusions):
                return
            if verify_steps.blocks(conclusions) and await repaired(round_):
                continue
            if verify_steps.waits({Gate.benchmark: await gate(Gate.benchmark)}):
                return
            break
        await _step("hand over", attempt, verify_steps.finish, request_id, last=True)

    await _guarded(Stage.verify, request_id, attempt, stage())


_WORKFLOWS = {Stage.understand: understand, Stage.act: act, Stage.verify: verify}


async def start(stage: Stage, request_id: str, attempt: int, pass_: int = 0) -> None:
    """Start a stage once: starting the same attempt again finds the one that runs, or ran."""
    with SetWorkflowID(workflow_id(request_id, stage, attempt, pass_)):
        await DBOS.start_workflow_async(_WORKFLOWS[stage], request_id, attempt)


async def register_queue() -> None:
    """Say how stages are handed to workers. Safe to repeat, by every process."""
    await DBOS.register_queue_async(
        QUEUE, worker_concurrency=STAGES_A_WORKER, polling_interval_sec=QUEUE_POLL_S
    )


async def enqueue(stage: Stage, request_id: str, attempt: int, pass_: int = 0) -> None:
    """Have a worker start a stage, once."""
    with SetWorkflowID(workflow_id(request_id, stage, attempt, pass_)):
        await DBOS.enqueue_workflow_async(QUEUE, _WORKFLOWS[stage], request_id, attempt)
