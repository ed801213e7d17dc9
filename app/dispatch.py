"""Job -> runner -> report: here, by a runner process on this machine."""

from __future__ import annotations

import asyncio
import ctypes
import json
import logging
import os
import signal
import sys
from collections import deque
from contextlib import suppress

from pydantic import ValidationError

from agents.ports import OnProgress
from app.settings import child_environment
from runners.protocol import Job, Progress, Report, Status

log = logging.getLogger(__name__)

MAX_REPORT_BYTES = 64 * 1024 * 1024
MAX_LINE_BYTES = 1024 * 1024
# The runner kills its own child at the job's deadline and still has to write the report.
GRACE_S = 30.0
LOG_TAIL_LINES = 80
_PROGRESS = "progress "
_PR_SET_PDEATHSIG = 1


# A runner that is killed from outside is started again so often; one that eats all memory would be killed each time.
RUNS_AGAIN = 3


class BenchError(Exception):
    """No runner could be started."""


class LocalBench:
    """Runs each job in a process of its own on this machine: `python -m runners`, JSON in, JSON out."""

    def __init__(
        self,
        python: str = "",
        target_python: str = "",
        slots: int = 1,
        *,
        niceness: int = 0,
        transformers_sites: str = "",
        must_confine: bool = False,
    ):
        """niceness: how far the jobs stand back behind other processes, as for nice(1).

        transformers_sites: folders with other versions of transformers, os.pathsep between two.
        must_confine: run nothing where limits alone could be put around it; the report is then a fault that says so.
        """
        first = ["nice", "-n", str(niceness)] if niceness else []
        self._command = [*first, python or sys.executable, "-m", "runners"]
        if target_python:
            self._command += ["--target-python", target_python]
        if transformers_sites:
            self._command += ["--transformers-sites", transformers_sites]
        if must_confine:
            self._command += ["--require-confinement"]
        self._slots = asyncio.Semaphore(slots)

    async def run(self, job: Job, on_progress: OnProgress | None = None) -> Report:
        """The job's report. Raises BenchError when no process could be started; cancelling kills the process."""
        async with self._slots:
            return await self._run(job, on_progress)

    async def _run(self, job: Job, on_progress: OnProgress | None, *, again: int = RUNS_AGAIN) -> Report:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=child_environment(),
                start_new_session=True,
                preexec_fn=die_with_parent if sys.platform == "linux" else None,
                limit=MAX_LINE_BYTES,
            )
        except OSError as error:
            raise BenchError(f"can't start {self._command[0]}: {error.strerror}") from error
        tail: deque[str] = deque(maxlen=LOG_TAIL_LINES)
        try:
            async with asyncio.timeout(job.deadline_s + GRACE_S):
                stdout, _, _ = await asyncio.gather(
                    _read_capped(process.stdout),
                    _follow(process.stderr, job, on_progress, tail),
                    _send(process.stdin, job),
                )
                code = await process.wait()
        except TimeoutError:
            return _no_report(job, Status.timeout, f"no report within {job.deadline_s + GRACE_S:.0f} s", tail)
        finally:
            await _end(process)
        if again and code == -signal.SIGKILL and not _is_json(stdout):
            log.warning("job %s: its runner was killed by someone; it runs again", job.id)
            return await self._run(job, on_progress, again=again - 1)
        return _read_report(job, stdout, code, tail)


def die_with_parent() -> None:
    """Runs in the child: ask the kernel to kill it when the service dies, so that no orphan goes on computing."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill what is left of the runner's session."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


async def _send(stdin: asyncio.StreamWriter | None, job: Job) -> None:
    assert stdin is not None  # noqa: S101 - a pipe was asked for
    with suppress(BrokenPipeError, ConnectionResetError):  # the exit code and the log tell why it went away
        stdin.write(job.model_dump_json().encode())
        await stdin.drain()
        stdin.close()


async def _read_capped(stdout: asyncio.StreamReader | None) -> bytes:
    assert stdout is not None  # noqa: S101
    chunks: list[bytes] = []
    size = 0
    while chunk := await stdout.read(65_536):
        size += len(chunk)
        if size <= MAX_REPORT_BYTES:
            chunks.append(chunk)
    return b"".join(chunks) if size <= MAX_REPORT_BYTES else b""


async def _follow(
    stderr: asyncio.StreamReader | None, job: Job, on_progress: OnProgress | None, tail: deque[str]
) -> None:
    assert stderr is not None  # noqa: S101
    while True:
        try:
            raw = await stderr.readline()
        except ValueError:  # one line longer than the limit: drop it, the reader goes on after it
            continue
        if not raw:
            return
        line = raw.decode("utf-8", "replace").rstrip()
        if not line.startswith(_PROGRESS):
            tail.append(line)
            continue
        if on_progress is None:
            continue
        try:
            progress = Progress.model_validate_json(line[len(_PROGRESS) :])
        except ValidationError:
            tail.append(line)
            continue
        if progress.job_id == job.id:
            await on_progress(progress)


def _is_json(stdout: bytes) -> bool:
    """Whether a reply came whole: of a runner that is killed while it writes, the beginning is there."""
    try:
        json.loads(stdout)
    except ValueError:
        return False
    return True


def _read_report(job: Job, stdout: bytes, code: int, tail: deque[str]) -> Report:
    """The validated report; a reply that isn't one, or isn't this job's, becomes a report of our fault."""
    try:
        report = Report.model_validate(json.loads(stdout))
    except (ValueError, ValidationError):
        log.exception("job %s: the runner ended with code %s and no valid report", job.id, code)
        return _no_report(job, Status.error, f"the runner ended with code {code} and no valid report", tail)
    if report.job_id != job.id or report.nonce != job.nonce:
        log.error("job %s: the report carries another job's id or nonce", job.id)
        return _no_report(job, Status.error, "the report was not for this job", tail)
    return report


def _no_report(job: Job, status: Status, why: str, tail: deque[str]) -> Report:
    lines = "\n".join([*tail, why])
    return Report(
        job_id=job.id, nonce=job.nonce, kind=job.payload.kind, status=status, log_tail=lines[-8000:]
    )
