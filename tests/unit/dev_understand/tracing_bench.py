"""A Bench that answers analyze jobs in this process with the real tracer: only for references that the tests wrote."""

from __future__ import annotations

import linecache

from agents.ports import OnProgress
from kernels.derivation import Unsupported
from kernels.trace import trace
from runners.protocol import AnalyzePayload, AnalyzeResult, Environment, Job, Refusal, Report, Status


class TracingBench:
    """Keeps the jobs it was sent."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []

    async def run(self, job: Job, on_progress: OnProgress | None = None) -> Report:
        self.jobs.append(job)
        assert isinstance(job.payload, AnalyzePayload)
        op = job.payload.op
        report = Report(job_id=job.id, nonce=job.nonce, kind="analyze", status=Status.completed)
        report.environment = Environment(python="3", platform="test", torch="2")
        filename = f"<reference {op.name}>"
        linecache.cache[filename] = (len(op.source), None, op.source.splitlines(keepends=True), filename)
        namespace: dict = {}
        exec(compile(op.source, filename, "exec"), namespace)  # noqa: S102
        try:
            traced = trace(op, namespace[op.entry])
        except Unsupported as unsupported:
            report.status = Status.refused
            report.refusal = Refusal(
                reason=unsupported.reason,
                node=unsupported.node,
                where=unsupported.where,
                needed=unsupported.needed,
            )
            return report
        report.result = AnalyzeResult(op=traced.op, traced=traced.model_dump(mode="json"))
        return report


class FixedBench:
    """A Bench that gives one report, whatever the job; its id and nonce are the job's unless `forged`."""

    def __init__(self, report: Report, *, forged: bool = False):
        self.report = report
        self.forged = forged

    async def run(self, job: Job, on_progress: OnProgress | None = None) -> Report:
        return (
            self.report
            if self.forged
            else self.report.model_copy(update={"job_id": job.id, "nonce": job.nonce})
        )
