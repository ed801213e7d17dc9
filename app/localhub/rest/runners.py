"""Routes of self-hosted runners, as far as asking which there are."""

from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from sqlalchemy import select

from app.localhub.errors import not_accessible
from app.localhub.rest.dependencies import Paged, Read
from app.localhub.tables import SelfHostedRunner

router = APIRouter(prefix="/repos/{owner}/{repo}/actions")


@router.get("/runners")
def list_runners(tx: Read, owner: str, repo: str, page: Paged) -> JSONResponse:
    repository = tx.repository(owner, repo, role="admin")
    if tx.actor.kind == "installation" and tx.actor.permissions.get("administration") not in (
        "read",
        "write",
    ):
        raise not_accessible("administration=read")
    rows = tx.session.scalars(
        select(SelfHostedRunner)
        .where(SelfHostedRunner.repository_id == repository.id)
        .order_by(SelfHostedRunner.id)
    ).all()
    return page.of(rows, _runner, key="runners")


def _runner(row: SelfHostedRunner) -> dict[str, Any]:
    return {
        "id": row.id,
        "name": row.name,
        "os": "linux",
        "status": row.status,
        "busy": False,
        "labels": [
            {"id": number, "name": name, "type": "custom"} for number, name in enumerate(row.labels, 1)
        ],
    }
