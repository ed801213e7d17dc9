"""Workflow runs: dispatched, moved on by their jobs or by whoever plays the runner, cancelled."""

import hashlib
from typing import Any

import yaml
from sqlalchemy import func, select, update

from app.localhub.changes import jobs, runs
from app.localhub.clock import stamp_in
from app.localhub.errors import ApiError
from app.localhub.expressions import text_of
from app.localhub.tables import Artifact, Repository, WorkflowRun
from app.localhub.transaction import Transaction

FOLDER = ".github/workflows"
INPUT_LIMIT = 25
INPUT_CHARACTERS = 65_535
ARTIFACT_SECONDS = 90 * 24 * 3600


def workflow_files(tx: Transaction, repository: Repository, commit: str) -> dict[str, dict[str, Any]]:
    """The workflow files of a commit: path to parsed YAML (a file that doesn't parse is an empty mapping)."""
    folder = tx.git.entry(repository.id, commit, FOLDER)
    if folder is None or folder.type != "tree":
        return {}
    found: dict[str, dict[str, Any]] = {}
    for entry in tx.git.tree(repository.id, folder.sha, recursive=False) or []:
        if entry.type == "blob" and entry.path.endswith((".yml", ".yaml")):
            try:
                parsed = yaml.safe_load(tx.git.blob(repository.id, entry.sha) or b"")
            except yaml.YAMLError:
                parsed = None
            found[f"{FOLDER}/{entry.path}"] = parsed if isinstance(parsed, dict) else {}
    return found


def _triggers(workflow: dict[str, Any]) -> dict[str, Any]:
    # YAML 1.1 reads the key `on` as true.
    declared = workflow.get("on", workflow.get(True))  # type: ignore[call-overload]
    if isinstance(declared, str):
        return {declared: None}
    if isinstance(declared, list):
        return dict.fromkeys(declared)
    return declared if isinstance(declared, dict) else {}


def _inputs(workflow: dict[str, Any], given: dict[str, Any], limit: int) -> dict[str, str]:
    declared = (_triggers(workflow).get("workflow_dispatch") or {}).get("inputs") or {}
    if len(given) > limit:
        raise ApiError(
            422,
            f"Invalid request.\n\nNo more than {limit} properties are allowed; {len(given)} were supplied.",
        )
    unexpected = [name for name in given if name not in declared]
    if unexpected:
        raise ApiError(422, f"Unexpected inputs provided: {unexpected}")
    if sum(len(str(value)) for value in given.values()) > INPUT_CHARACTERS:
        raise ApiError(422, "inputs are too large.")
    values = {name: str(value) for name, value in given.items()}
    for name, rules in declared.items():
        if name in values:
            continue
        if (rules or {}).get("default") is not None:
            values[name] = str(rules["default"])
        elif (rules or {}).get("required"):
            raise ApiError(422, f"Required input '{name}' not provided")
    return values


def _title(workflow: dict[str, Any], name: str, inputs: dict[str, str]) -> str:
    template = str(workflow.get("run-name") or name)
    return text_of(template.replace("github.event.inputs.", "inputs."), {"inputs": inputs})


def dispatch(
    tx: Transaction,
    repository: Repository,
    path: str,
    ref: str,
    given: dict[str, Any],
    *,
    input_limit: int = INPUT_LIMIT,
) -> WorkflowRun:
    """Start a run of a workflow file. Raises ApiError 404 or 422 as GitHub does."""
    head_sha = tx.git.resolve(repository.id, ref.removeprefix("refs/"))
    default_sha = tx.git.ref(repository.id, f"refs/heads/{repository.default_branch}")
    if default_sha is None or path not in workflow_files(tx, repository, default_sha):
        raise ApiError(404, "Not Found")
    if head_sha is None:
        raise ApiError(422, f"No ref found for: {ref}")
    workflow = workflow_files(tx, repository, head_sha).get(path)
    if workflow is None or "workflow_dispatch" not in _triggers(workflow):
        raise ApiError(422, "Workflow does not have 'workflow_dispatch' trigger")
    inputs = _inputs(workflow, given, input_limit)
    name = str(workflow.get("name") or path)
    earlier = tx.session.scalar(
        select(func.count())
        .select_from(WorkflowRun)
        .where(WorkflowRun.repository_id == repository.id, WorkflowRun.path == path)
    )
    run = WorkflowRun(
        repository_id=repository.id,
        path=path,
        name=name,
        display_title=_title(workflow, name, inputs),
        run_number=(earlier or 0) + 1,
        event="workflow_dispatch",
        head_branch=ref.removeprefix("refs/heads/"),
        head_sha=head_sha,
        inputs=inputs,
        actor_id=tx.actor.signed_in().id,
    )
    tx.session.add(run)
    tx.session.flush()
    runs.send(tx, run, "requested")
    jobs.queue_jobs(tx, run, workflow)
    return run


def expire_artifacts(tx: Transaction) -> None:
    """Make every artifact look older than its retention."""
    tx.session.execute(update(Artifact).values(expires_at=stamp_in(-1)))


def add_artifact(tx: Transaction, run: WorkflowRun, name: str, data: bytes) -> Artifact:
    """Store a zip that a run uploaded."""
    row = Artifact(
        run_id=run.id,
        name=name,
        size=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        expires_at=stamp_in(ARTIFACT_SECONDS),
    )
    tx.session.add(row)
    tx.session.flush()
    tx.context.artifacts.mkdir(parents=True, exist_ok=True)
    (tx.context.artifacts / f"{row.id}.zip").write_bytes(data)
    return row
