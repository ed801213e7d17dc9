"""The one file inside an artifact's zip. Pure; the zip comes from a machine that ran a candidate, so nothing in it is believed."""

from __future__ import annotations

import io
import stat
import zipfile
import zlib

REPORT_NAME = "report.json"
MAX_ZIP_BYTES = 8 * 1024 * 1024
MAX_REPORT_BYTES = 32 * 1024 * 1024
_ENCRYPTED = 0x1
_METHODS = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})


class ArtifactError(ValueError):
    """The zip isn't one report; the message says what it is."""


class OversizeError(ArtifactError):
    """The zip, or what it holds, is larger than a report can be."""


def report_in(data: bytes) -> bytes:
    """The bytes of the report in a zip. Raises ArtifactError; never writes a file and never unpacks beyond the limit."""
    if len(data) > MAX_ZIP_BYTES:
        raise OversizeError(f"the zip has {len(data):,} bytes, at most {MAX_ZIP_BYTES:,} are read")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entry = _only_entry(archive)
            with archive.open(entry) as stream:
                # what the zip says of its sizes is not believed either
                report = stream.read(MAX_REPORT_BYTES + 1)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError, OSError) as error:
        if isinstance(error, ArtifactError):
            raise
        raise ArtifactError(f"not a zip that can be read: {type(error).__name__}") from None
    if len(report) > MAX_REPORT_BYTES:
        raise OversizeError(f"the report unpacks to more than {MAX_REPORT_BYTES:,} bytes")
    return report


def _only_entry(archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    entries = archive.infolist()
    if len(entries) != 1:
        raise ArtifactError(f"the zip holds {len(entries)} files, a report is one")
    entry = entries[0]
    if entry.filename != REPORT_NAME:
        raise ArtifactError(f"the file in the zip is not called {REPORT_NAME}")
    mode = entry.external_attr >> 16
    if stat.S_IFMT(mode) not in {0, stat.S_IFREG}:
        raise ArtifactError("the file in the zip is a link or no plain file")
    if entry.flag_bits & _ENCRYPTED or entry.compress_type not in _METHODS:
        raise ArtifactError("the zip is encrypted or packed in a way that is not read")
    return entry
