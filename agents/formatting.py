"""The one job that an act stage sends: the target's own ruff formats what the candidate brings, and moves nothing else."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping

from agents.ports import Bench, Tree
from runners.protocol import Job, Report, Status, StylePayload, StyleResult

DEADLINE_S = 120.0


class ActFailed(Exception):  # noqa: N818 - the stage's outcome, told to a person
    """The candidate could not be made; the message says why in one sentence. `report` is the job's, when there was one."""

    def __init__(self, reason: str, report: Report | None = None):
        super().__init__(reason)
        self.report = report


async def format_candidate(
    files: Mapping[str, str],
    created: Iterable[str],
    tree: Tree,
    bench: Bench,
    *,
    job_id: str,
    checkout: str,
    ruff: str | None,
) -> tuple[dict[str, str], list[str]]:
    """The files as the target's ruff leaves them, and those edited ones that it found fault with before the change.

    files: path -> text, of which `created` are new · checkout: the runner's path of the target checkout · ruff: its requirement.
    Where an edited file was clean before, the formatter moves only what we added; where it wasn't, the rest is not ours to
    touch. Only Python is formatted. Raises ActFailed when the job could not be done.
    """
    python = {path: text for path, text in files.items() if path.endswith(".py")}
    style = StylePayload(checkout=checkout, files=python, fix=True, ruff=ruff)
    formatted = {**files, **await _formatted(job_id, style, bench)}
    new = set(created)
    changed = [path for path, text in files.items() if path not in new and formatted[path] != text]
    unclean: list[str] = []
    if changed:
        originals = {path: tree.read(path) or "" for path in changed}
        before = await _formatted(f"{job_id}-before", style.model_copy(update={"files": originals}), bench)
        unclean = [path for path in changed if before[path] != originals[path]]
    return {path: files[path] if path in unclean else formatted[path] for path in files}, unclean


async def _formatted(job_id: str, style: StylePayload, bench: Bench) -> dict[str, str]:
    """These paths and no others, whatever the report says."""
    job = Job(id=job_id, nonce=secrets.token_hex(16), deadline_s=DEADLINE_S, payload=style)
    report = await bench.run(job)
    if report.status is not Status.completed or not isinstance(report.result, StyleResult):
        why = report.refusal.reason if report.refusal else f"the job ended as {report.status.value}"
        raise ActFailed(f"The new files could not be formatted with the target's rules: {why}.", report)
    return {path: report.result.files.get(path, text) for path, text in style.files.items()}
