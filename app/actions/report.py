"""Whether a file is the report of the job that was dispatched. Pure."""

from __future__ import annotations

import hmac
import json

from pydantic import ValidationError

from runners.envelope import DispatchedReport
from runners.protocol import PROTOCOL_VERSION, Report

# Gate and payload are called the same, but for the one that judges a model patch.
KINDS_OF_GATE = {
    "style": {"style"},
    "correctness": {"correctness", "verify_model"},
    "compile": {"compile"},
    "benchmark": {"benchmark"},
}


class ForgedError(ValueError):
    """Not the report of this job; the message says what doesn't fit."""


class OpenNetworkError(ForgedError):
    """The report says that the candidate could reach a network."""


def read_report(data: bytes, *, job_id: str, gate: str, nonce: str, sha: str) -> Report:
    """The report in a file. Raises ForgedError unless schema, nonce, commit, job and kind are those of the dispatch."""
    try:
        body = json.loads(data, parse_constant=_no_constant)
        sent = DispatchedReport.model_validate(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the document"
        raise ForgedError(f"not a report: {where}: {first['msg']}") from None
    except (ValueError, RecursionError) as error:
        raise ForgedError(f"not a report: {type(error).__name__}") from None
    report = sent.report
    if sent.version != PROTOCOL_VERSION or report.version != PROTOCOL_VERSION:
        raise ForgedError(
            f"the runner's harness speaks version {report.version}, this service {PROTOCOL_VERSION}"
        )
    if not hmac.compare_digest(sent.nonce.encode(), nonce.encode()) or not hmac.compare_digest(
        report.nonce.encode(), nonce.encode()
    ):
        raise ForgedError("it carries another dispatch's nonce")
    if sent.sha != sha:
        raise ForgedError("it was made on another commit")
    if report.job_id != job_id or report.kind not in KINDS_OF_GATE[gate]:
        raise ForgedError("it is about another job")
    if any(verdict.gate.value != gate for verdict in report.verdicts if report.kind != "verify_model"):
        raise ForgedError("it judges another gate")
    if report.isolation is not None and report.isolation.network:
        raise OpenNetworkError("the sandbox left a network open")
    return report


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number that JSON knows")
