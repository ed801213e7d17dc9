"""Zips as an artifact comes: one file, or what a hostile runner could make of it."""

from __future__ import annotations

import io
import stat
import zipfile
from collections.abc import Iterable


def zipped(
    data: bytes, name: str = "report.json", mode: int = stat.S_IFREG | 0o644, others: Iterable[str] = ()
) -> bytes:
    """A zip of one entry with that name and Unix mode; `others` are entries beside it."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        entry = zipfile.ZipInfo(name)
        entry.external_attr = mode << 16
        archive.writestr(entry, data, zipfile.ZIP_DEFLATED)
        for other in others:
            archive.writestr(other, b"{}")
    return target.getvalue()
