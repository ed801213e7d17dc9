"""One `analyze` job through the Bench, and what came of it: a traced op with its derivation, or a refusal."""

from __future__ import annotations

import hashlib
import secrets

from pydantic import Field, ValidationError

from agents.dev.refused import Refused
from agents.ports import Bench, OnProgress
from agents.profiles import KernelProfile
from kernels.derivation import Derivation, Unsupported
from kernels.derive import derive
from kernels.op_spec import Frozen, OpSpec
from kernels.traced import TracedOp
from runners.protocol import AnalyzePayload, AnalyzeResult, Job, Report, Status

DEADLINE_S = 60.0  # tracing takes seconds, on a busy machine tens of them; what needs more never ends


class AnalysisFault(RuntimeError):  # noqa: N818 - a fault of ours, as against a refusal
    """The runner failed, not the reference: our fault, shown as ours."""


class Analysis(Frozen):
    """A traced op and what was derived from it."""

    traced: TracedOp
    derivation: Derivation
    environment: str = Field(description="where it was traced, for the profile's evidence")


async def analyze(
    op: OpSpec,
    bench: Bench,
    dotted_path: str | None = None,
    on_progress: OnProgress | None = None,
    *,
    wide_rows: bool = False,
    split_rows: bool = False,
) -> Analysis | Refused:
    """Trace `op` on a runner and derive its kernels; wide_rows, split_rows: as in kernels.derive. Raises AnalysisFault when the runner itself failed."""
    text = f"{op.model_dump_json()}{dotted_path or ''}"
    job = Job(
        id=f"analyze-{hashlib.sha256(text.encode()).hexdigest()[:16]}",
        nonce=secrets.token_hex(16),
        deadline_s=DEADLINE_S,
        payload=AnalyzePayload(op=op, dotted_path=dotted_path),
    )
    report = await bench.run(job, on_progress)
    if report.nonce != job.nonce or report.job_id != job.id:
        raise AnalysisFault(f"the report for {report.job_id} does not belong to the job {job.id}")
    refused = _not_completed(report)
    if refused is not None:
        return refused
    if not isinstance(report.result, AnalyzeResult):
        raise AnalysisFault(f"the runner answered an analyze job with a result of kind {report.result.kind}")
    try:
        traced = TracedOp.model_validate(report.result.traced)
    except ValidationError as error:
        # The trace comes from the process that ran a stranger's code; one that is malformed proves nothing about the op.
        raise AnalysisFault(f"the runner returned a malformed trace: {error.errors()[0]['msg']}") from error
    if traced.op != report.result.op:
        traced = traced.model_copy(update={"op": report.result.op})
    return derived(traced, _environment(report), wide_rows=wide_rows, split_rows=split_rows)


def derived(
    traced: TracedOp, environment: str, *, wide_rows: bool = False, split_rows: bool = False
) -> Analysis | Refused:
    """Derive the kernels of a traced op. Raises AnalysisFault when a rule itself failed."""
    try:
        derivation = derive(traced, wide_rows=wide_rows, split_rows=split_rows)
        return Analysis(traced=traced, derivation=derivation, environment=environment)
    except Unsupported as unsupported:
        return _unsupported(unsupported.reason, unsupported.node, unsupported.where, unsupported.needed)
    except Exception as error:
        # The trace was made by a process that ran a stranger's code: whatever the rules trip over, the service goes on.
        raise AnalysisFault(
            f"the rules failed on {traced.op.name}: {type(error).__name__}: {error}"
        ) from error


def row_options(rows: str) -> dict[str, bool]:
    """A profile's `rows` as what `kernels.derive` takes."""
    return {"wide_rows": rows == "blocks", "split_rows": rows == "split"}


def derivation_of(profile: KernelProfile) -> tuple[TracedOp, Derivation]:
    """A profile's traced op, derived again as the profile says. Raises Unsupported when the rules changed since."""
    traced = TracedOp.model_validate(profile.traced)
    return traced, derive(traced, **row_options(profile.rows))


def _not_completed(report: Report) -> Refused | None:
    match report.status:
        case Status.completed:
            return None
        case Status.refused:
            refusal = report.refusal
            if refusal is None:
                raise AnalysisFault("the runner refused the reference without a reason")
            return _unsupported(refusal.reason, refusal.node, refusal.where, refusal.needed)
        case Status.timeout:
            return Refused(
                reason=_said(
                    report,
                    f"The reference did not finish within {DEADLINE_S:g} s when it was traced at small sizes.",
                ),
                needed="A reference without loops that depend on sizes or on data.",
            )
        case Status.crashed:
            return Refused(
                reason=_said(
                    report,
                    "The reference crashed the process that traced it (out of memory, or it ended itself).",
                ),
                needed="A reference that allocates no more than a few times the size of its inputs.",
            )
    last = report.log_tail.strip().splitlines()[-1:] or [""]
    raise AnalysisFault(f"the analyze job ended as {report.status.value}: {last[0][:500]}")


def _said(report: Report, otherwise: str) -> str:
    return report.refusal.reason if report.refusal else otherwise


def _unsupported(reason: str, node: str | None, where: str | None, needed: str | None) -> Refused:
    where = f"reference {where}" if where and where.startswith("line ") else where
    return Refused(reason=reason, node=node, where=where, needed=needed, model_could_help=node is not None)


def _environment(report: Report) -> str:
    seen = report.environment
    versions = f"torch {seen.torch}, Python {seen.python}" if seen else "an unnamed environment"
    confined = f", confined by {report.isolation.method}" if report.isolation else ""
    return f"{versions}{confined}"  # no times: the same request makes the same profile
