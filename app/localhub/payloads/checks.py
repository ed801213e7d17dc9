"""Check suites and check runs as JSON."""

from typing import Any

from sqlalchemy import select

from app.localhub.clock import stamp_in
from app.localhub.links import node_id
from app.localhub.payloads.accounts import integration
from app.localhub.payloads.git_data import simple_commit
from app.localhub.payloads.pulls import minimal_pulls
from app.localhub.payloads.repositories import api_path, minimal
from app.localhub.tables import CheckRun, CheckSuite
from app.localhub.transaction import Transaction

STALE_AFTER_SECONDS = 14 * 24 * 3600
# Worst first: a suite's conclusion is that of its worst run.
_SEVERITY = ("action_required", "cancelled", "timed_out", "failure", "stale", "neutral", "skipped", "success")


def run_state(run: CheckRun) -> tuple[str, str | None]:
    """Status and conclusion; a run left incomplete for 14 days has become stale."""
    if run.status != "completed" and run.started_at < stamp_in(-STALE_AFTER_SECONDS):
        return "completed", "stale"
    return run.status, run.conclusion


def suite_state(suite: CheckSuite) -> tuple[str, str | None]:
    """Status and conclusion of a suite, from its runs."""
    states = [run_state(run) for run in suite.runs]
    if not states:
        return "queued", None
    if any(status != "completed" for status, _ in states):
        return ("in_progress" if any(status != "queued" for status, _ in states) else "queued"), None
    conclusions = {conclusion for _, conclusion in states}
    return "completed", next(name for name in _SEVERITY if name in conclusions)


def check_run(tx: Transaction, run: CheckRun) -> dict[str, Any]:
    """`check-run`."""
    suite = run.suite
    repository = suite.repository
    api = tx.links.api(f"{api_path(repository)}/check-runs/{run.id}")
    status, conclusion = run_state(run)
    return {
        "id": run.id,
        "name": run.name,
        "node_id": node_id("check_run", run.id),
        "head_sha": suite.head_sha,
        "external_id": run.external_id,
        "url": api,
        "html_url": tx.links.page(f"{repository.full_name}/runs/{run.id}"),
        "details_url": run.details_url or tx.links.page(f"{repository.full_name}/runs/{run.id}"),
        "status": status,
        "conclusion": conclusion,
        "started_at": run.started_at,
        "completed_at": run.completed_at,
        "output": {
            "title": run.title,
            "summary": run.summary,
            "text": run.text,
            "annotations_count": len(run.annotations),
            "annotations_url": f"{api}/annotations",
        },
        "check_suite": {"id": suite.id},
        "app": integration(tx, suite.app),
        "pull_requests": minimal_pulls(tx, repository, suite.head_sha),
    }


def latest_runs(suite: CheckSuite) -> list[CheckRun]:
    """The newest run of each name, oldest name first."""
    newest = {run.name: run for run in suite.runs}
    return sorted(newest.values(), key=lambda run: run.id)


def check_suite(tx: Transaction, suite: CheckSuite) -> dict[str, Any]:
    """`check-suite`."""
    record = tx.git.commit(suite.repository_id, suite.head_sha)
    api = tx.links.api(f"{api_path(suite.repository)}/check-suites/{suite.id}")
    status, conclusion = suite_state(suite)
    return {
        "id": suite.id,
        "node_id": node_id("check_suite", suite.id),
        "head_branch": suite.head_branch,
        "head_sha": suite.head_sha,
        "status": status,
        "conclusion": conclusion,
        "url": api,
        "before": suite.before,
        "after": suite.head_sha,
        "pull_requests": minimal_pulls(tx, suite.repository, suite.head_sha),
        "app": integration(tx, suite.app),
        "repository": minimal(tx, suite.repository),
        "created_at": suite.created_at,
        "updated_at": suite.updated_at,
        "head_commit": simple_commit(record) if record else None,
        "latest_check_runs_count": len(latest_runs(suite)),
        "check_runs_url": f"{api}/check-runs",
        "rerequestable": True,
        "runs_rerequestable": True,
    }


def suites_of(tx: Transaction, repository_id: int, sha: str) -> list[CheckSuite]:
    """The suites of a commit, oldest first."""
    query = select(CheckSuite).where(CheckSuite.repository_id == repository_id, CheckSuite.head_sha == sha)
    return list(tx.session.scalars(query.order_by(CheckSuite.id)))
