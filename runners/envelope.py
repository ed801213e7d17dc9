"""A job as text that fits into a workflow's inputs, and the report as it comes back. Pure but for reading candidate files.

The texts of a candidate's files don't travel: the runner reads them from the commit that it checks out, so what is
judged is what would be merged.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from pathlib import Path

from pydantic import Field

from runners.checkout import inside
from runners.protocol import (
    PROTOCOL_VERSION,
    AnalyzePayload,
    Job,
    Record,
    Report,
    StylePayload,
    VerifyModelPayload,
)

# GitHub takes 65,535 characters for all inputs together.
MAX_CHARACTERS = 60_000
MAX_JOB_BYTES = 4 * 1024 * 1024
_HERE = "."


class EnvelopeError(ValueError):
    """The job is too large to be sent, or what arrived isn't one."""


class DispatchedReport(Record):
    """What a dispatched runner leaves as its one file: the report, and the commit that it was made on."""

    version: int = PROTOCOL_VERSION
    nonce: str = Field(description="of the dispatch, as it came in the inputs")
    sha: str = Field(description="the commit that was checked out, read from the checkout itself")
    report: Report


def pack(job: Job) -> str:
    """The job as printable text. Raises EnvelopeError when it is larger than a dispatch takes."""
    payload = job.payload
    changes: dict[str, object] = {} if isinstance(payload, AnalyzePayload) else {"checkout": _HERE}
    if isinstance(payload, StylePayload | VerifyModelPayload):
        changes["files"] = dict.fromkeys(payload.files, "")
    sent = job.model_copy(update={"payload": payload.model_copy(update=changes)})
    raw = sent.model_dump_json().encode()
    packed = base64.b64encode(zlib.compress(raw, 9)).decode()
    if len(packed) > MAX_CHARACTERS:
        raise EnvelopeError(f"the job takes {len(packed):,} characters, a dispatch {MAX_CHARACTERS:,}")
    return packed


def unpack(packed: str, checkout: Path) -> Job:
    """The job, with the candidate's files read from `checkout`. Raises EnvelopeError."""
    try:
        opener = zlib.decompressobj()
        raw = opener.decompress(base64.b64decode(packed, validate=True), MAX_JOB_BYTES)
        if opener.unconsumed_tail or not opener.eof:
            raise EnvelopeError("the job is larger than any that is sent, or cut off")
        body = json.loads(raw)
        payload = body["payload"]
        if "checkout" in payload:
            payload["checkout"] = str(checkout)
        if "files" in payload:
            payload["files"] = {path: _text(checkout, path) for path in payload["files"]}
        return Job.model_validate(body)
    except (binascii.Error, zlib.error, KeyError, TypeError, AttributeError) as error:
        raise EnvelopeError(f"not a packed job: {type(error).__name__}") from None
    except ValueError as error:
        raise EnvelopeError(f"not a packed job: {str(error).splitlines()[0]}") from None


def _text(checkout: Path, path: str) -> str:
    try:
        return inside(checkout, path).read_text(encoding="utf-8")
    except OSError as error:
        raise EnvelopeError(f"{path} can't be read from the commit: {error.strerror}") from None
