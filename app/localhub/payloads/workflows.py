"""Actions workflows, runs, jobs and artifacts as JSON."""

import zlib
from typing import Any
from urllib.parse import quote

from app.localhub.clock import stamp
from app.localhub.links import node_id
from app.localhub.payloads.accounts import user
from app.localhub.payloads.git_data import simple_commit
from app.localhub.payloads.pulls import minimal_pulls
from app.localhub.payloads.repositories import api_path, minimal
from app.localhub.tables import Artifact, Repository, WorkflowJob, WorkflowRun
from app.localhub.transaction import Transaction


def workflow_id(repository: Repository, path: str) -> int:
    """A workflow's id, a function of its repository and path: the hub keeps no row for one."""
    return 100_000_000 + zlib.crc32(f"{repository.id}:{path}".encode())


def workflow(tx: Transaction, repository: Repository, path: str, name: str) -> dict[str, Any]:
    """`workflow`."""
    number = workflow_id(repository, path)
    return {
        "id": number,
        "node_id": node_id("workflow", number),
        "name": name,
        "path": path,
        "state": "active",
        "created_at": repository.created_at,
        "updated_at": repository.updated_at,
        "url": tx.links.api(f"{api_path(repository)}/actions/workflows/{number}"),
        "html_url": tx.links.page(f"{repository.full_name}/blob/{quote(repository.default_branch)}/{path}"),
        "badge_url": tx.links.page(f"{repository.full_name}/workflows/{quote(name)}/badge.svg"),
    }


def workflow_run(tx: Transaction, run: WorkflowRun) -> dict[str, Any]:
    """`workflow-run`."""
    repository = run.repository
    api = tx.links.api(f"{api_path(repository)}/actions/runs/{run.id}")
    record = tx.git.commit(repository.id, run.head_sha)
    return {
        "id": run.id,
        "name": run.name,
        "node_id": node_id("workflow_run", run.id),
        "check_suite_id": run.id,
        "check_suite_node_id": node_id("check_suite", run.id),
        "head_branch": run.head_branch,
        "head_sha": run.head_sha,
        "path": run.path,
        "display_title": run.display_title,
        "run_number": run.run_number,
        "run_attempt": 1,
        "event": run.event,
        "status": run.status,
        "conclusion": run.conclusion,
        "workflow_id": workflow_id(repository, run.path),
        "url": api,
        "html_url": tx.links.page(f"{repository.full_name}/actions/runs/{run.id}"),
        "pull_requests": minimal_pulls(tx, repository, run.head_sha),
        "created_at": run.created_at,
        "updated_at": run.updated_at,
        "actor": user(tx, run.actor),
        "triggering_actor": user(tx, run.actor),
        "run_started_at": run.created_at,
        "jobs_url": f"{api}/jobs",
        "logs_url": f"{api}/logs",
        "check_suite_url": tx.links.api(f"{api_path(repository)}/check-suites/{run.id}"),
        "artifacts_url": f"{api}/artifacts",
        "cancel_url": f"{api}/cancel",
        "rerun_url": f"{api}/rerun",
        "previous_attempt_url": None,
        "workflow_url": tx.links.api(
            f"{api_path(repository)}/actions/workflows/{workflow_id(repository, run.path)}"
        ),
        "head_commit": simple_commit(record) if record else None,
        "repository": minimal(tx, repository),
        "head_repository": minimal(tx, repository),
    }


def workflow_job(tx: Transaction, row: WorkflowJob) -> dict[str, Any]:
    """`job`."""
    run = row.run
    repository = run.repository
    api = tx.links.api(f"{api_path(repository)}/actions")
    return {
        "id": row.id,
        "run_id": run.id,
        "run_url": f"{api}/runs/{run.id}",
        "run_attempt": 1,
        "node_id": node_id("check_run", row.id),
        "head_sha": run.head_sha,
        "head_branch": run.head_branch,
        "workflow_name": run.name,
        "url": f"{api}/jobs/{row.id}",
        "html_url": tx.links.page(f"{repository.full_name}/actions/runs/{run.id}/job/{row.id}"),
        "status": row.status,
        "conclusion": row.conclusion,
        "created_at": row.created_at,
        # a queued job has a start time of its own on GitHub, too
        "started_at": row.started_at or row.created_at,
        "completed_at": row.completed_at,
        "name": row.name,
        "steps": [
            {
                "name": str(step.get("name", "")),
                "status": "completed" if step.get("conclusion") else "in_progress",
                "conclusion": step.get("conclusion"),
                "number": number,
                "started_at": row.started_at,
                "completed_at": row.completed_at,
            }
            for number, step in enumerate(row.steps, 1)
        ],
        "check_run_url": tx.links.api(f"{api_path(repository)}/check-runs/{row.id}"),
        "labels": [str(label) for label in row.labels],
        "runner_id": 1 if row.runner_name else None,
        "runner_name": row.runner_name,
        "runner_group_id": 1 if row.runner_name else None,
        "runner_group_name": "Default" if row.runner_name else None,
    }


def artifact(tx: Transaction, row: Artifact) -> dict[str, Any]:
    """`artifact`."""
    repository = row.run.repository
    api = tx.links.api(f"{api_path(repository)}/actions/artifacts/{row.id}")
    return {
        "id": row.id,
        "node_id": node_id("artifact", row.id),
        "name": row.name,
        "size_in_bytes": row.size,
        "url": api,
        "archive_download_url": f"{api}/zip",
        "expired": row.expires_at <= stamp(),
        "created_at": row.created_at,
        "updated_at": row.created_at,
        "expires_at": row.expires_at,
        "digest": f"sha256:{row.sha256}",
        "workflow_run": {
            "id": row.run_id,
            "repository_id": repository.id,
            "head_repository_id": repository.id,
            "head_branch": row.run.head_branch,
            "head_sha": row.run.head_sha,
        },
    }
