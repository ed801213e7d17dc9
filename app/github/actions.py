"""GitHub Actions of one repository: start a workflow, find its run, read what the run left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote

from githubkit import GitHub

from app.github.errors import GitHubError, RejectedError, ask

RUNS_LOOKED_AT = 100
CANCELLING_TOO_LATE = 409


@dataclass(frozen=True)
class Run:
    """A run of a workflow as GitHub tells of it now."""

    id: int
    title: str
    url: str
    path: str
    event: str
    branch: str
    actor: str
    status: str  # queued, in_progress, completed, …
    conclusion: str | None
    started_at: datetime | None = None  # when a runner took its job


@dataclass(frozen=True)
class Artifact:
    """A file that a run left; `size` is that of the zip."""

    id: int
    name: str
    size: int
    expired: bool


class TooLargeError(GitHubError):
    """An artifact is larger than what is read."""


class Actions:
    """Actions of a repository, with the rights of the App's installation."""

    def __init__(self, github: GitHub[Any], owner: str, name: str):
        self._github, self._root = github, f"repos/{owner}/{name}/actions"

    async def dispatch(self, workflow: str, ref: str, inputs: Mapping[str, str]) -> int | None:
        """Start a workflow of a branch; the run's id where GitHub tells it (older versions and Enterprise don't).

        Raises NotFoundError when the workflow isn't on the default branch, RejectedError when the inputs don't fit it.
        """
        answer = await ask(
            self._github.arequest(
                "POST",
                f"{self._root}/workflows/{quote(workflow)}/dispatches",
                json={"ref": ref, "inputs": dict(inputs)},
            ),
            f"start {workflow}",
        )
        if answer.status_code == 204:
            return None
        return int(answer.json()["workflow_run_id"])

    async def find_run(self, workflow: str, words: str) -> Run | None:
        """The newest run of a workflow whose name holds `words`, among the last hundred."""
        answer = await ask(
            self._github.arequest(
                "GET",
                f"{self._root}/workflows/{quote(workflow)}/runs",
                params={"event": "workflow_dispatch", "per_page": RUNS_LOOKED_AT},
            ),
            f"look for a run of {workflow}",
        )
        for raw in answer.json()["workflow_runs"]:
            if words in (raw.get("display_title") or ""):
                return _run(raw)
        return None

    async def run(self, run_id: int) -> Run:
        """A run as it stands. Raises NotFoundError when it was deleted."""
        answer = await ask(self._github.arequest("GET", f"{self._root}/runs/{run_id}"), "read a run")
        return _run(answer.json())

    async def started_at(self, run_id: int) -> datetime | None:
        """When a runner took the run's job; None while none has. A run that is queued has a start time of its own."""
        answer = await ask(
            self._github.arequest("GET", f"{self._root}/runs/{run_id}/jobs", params={"per_page": 10}),
            "read a run's jobs",
        )
        times = [
            datetime.fromisoformat(one["started_at"])
            for one in answer.json()["jobs"]
            if one.get("started_at") and one.get("runner_name")
        ]
        return min(times) if times else None

    async def cancel(self, run_id: int) -> None:
        """Cancel a run; one that has ended already is left."""
        try:
            await ask(self._github.arequest("POST", f"{self._root}/runs/{run_id}/cancel"), "cancel a run")
        except RejectedError as error:
            if error.status != CANCELLING_TOO_LATE:
                raise

    async def artifacts(self, run_id: int, name: str) -> list[Artifact]:
        """The artifacts of that name that a run left."""
        answer = await ask(
            self._github.arequest(
                "GET", f"{self._root}/runs/{run_id}/artifacts", params={"name": name, "per_page": 10}
            ),
            "list a run's artifacts",
        )
        return [
            Artifact(int(raw["id"]), raw["name"], int(raw["size_in_bytes"]), bool(raw["expired"]))
            for raw in answer.json()["artifacts"]
            if raw["name"] == name  # Enterprise servers of some age don't filter
        ]

    async def download(self, artifact_id: int, limit: int) -> bytes:
        """The zip, read no further than `limit` bytes. Raises TooLargeError, and NotFoundError when it has expired."""
        return await ask(self._download(artifact_id, limit), "read an artifact")

    async def _download(self, artifact_id: int, limit: int) -> bytes:
        answer = await self._github.arequest("GET", f"{self._root}/artifacts/{artifact_id}/zip", stream=True)
        read = bytearray()
        try:
            async for chunk in answer.aiter_bytes():
                read += chunk
                if len(read) > limit:
                    raise TooLargeError(f"an artifact holds more than {limit:,} bytes")
        finally:
            await answer.raw_response.aclose()
        return bytes(read)


def _run(raw: Mapping[str, Any]) -> Run:
    return Run(
        id=int(raw["id"]),
        title=raw.get("display_title") or "",
        url=raw["html_url"],
        path=(raw.get("path") or "").partition("@")[0],
        event=raw["event"],
        branch=raw.get("head_branch") or "",
        actor=(raw.get("actor") or {}).get("login") or "",
        status=raw["status"] or "",
        conclusion=raw.get("conclusion"),
    )
