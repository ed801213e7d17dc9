"""A job's progress -> the status comment."""

from __future__ import annotations

from agents.ports import OnProgress
from app.ports import Ports
from runners.protocol import Progress


def on_progress(ports: Ports, request_id: str, what: str = "") -> OnProgress:
    """Tell people, now and then, how far a job is."""

    async def tell(progress: Progress) -> None:
        count = f"{progress.done} of {progress.total}" if progress.total else ""
        note = " · ".join(part for part in (what, count, progress.note[:120]) if part)
        await ports.status.progress(request_id, note)

    return tell
