"""Routes of repositories, collaborators' permissions and labels."""

from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from sqlalchemy import select

from app.localhub.actor import ROLE_LEVEL, role_of
from app.localhub.changes.repositories import set_collaborator
from app.localhub.errors import ApiError, not_found
from app.localhub.payloads import accounts, repositories
from app.localhub.rest.dependencies import Paged, Read, Write
from app.localhub.tables import Account, Collaborator

router = APIRouter(prefix="/repos/{owner}/{repo}")


@router.get("")
def get_repository(tx: Read, owner: str, repo: str) -> dict[str, Any]:
    return repositories.full_repository(tx, tx.repository(owner, repo))


@router.get("/collaborators/{login}/permission")
def get_permission(tx: Read, owner: str, repo: str, login: str) -> dict[str, Any]:
    repository = tx.repository(owner, repo, role="write")
    tx.actor.signed_in()
    account = tx.session.scalar(select(Account).where(Account.login == login))
    if account is None or account.type != "User":
        raise ApiError(404, f"{login} is not a user")
    role = role_of(tx.session, repository, account) or ("none" if repository.private else "read")
    permission = ROLE_LEVEL.get(role, "none")
    flags = (
        repositories.permission_flags(role)
        if role != "none"
        else dict.fromkeys(("admin", "maintain", "push", "triage", "pull"), False)
    )
    user = accounts.user(tx, account) | {"permissions": flags, "role_name": role}
    return {"permission": permission, "role_name": role, "user": user}


@router.get("/collaborators")
def list_collaborators(tx: Read, owner: str, repo: str, page: Paged) -> JSONResponse:
    repository = tx.repository(owner, repo, role="write")
    tx.actor.signed_in()
    rows = tx.session.execute(
        select(Account, Collaborator.role)
        .join(Collaborator, Collaborator.account_id == Account.id)
        .where(Collaborator.repository_id == repository.id)
        .order_by(Account.id)
    ).all()
    return page.of(
        rows,
        lambda row: (
            accounts.user(tx, row[0])
            | {"permissions": repositories.permission_flags(row[1]), "role_name": row[1]}
        ),
    )


@router.get("/collaborators/{login}", status_code=204)
def check_collaborator(tx: Read, owner: str, repo: str, login: str) -> Response:
    repository = tx.repository(owner, repo, role="write")
    if role_of(tx.session, repository, tx.account(login)) is None:
        raise not_found()
    return Response(status_code=204)


class RoleRequest(BaseModel):
    """The role to give: pull, triage, push, maintain or admin."""

    permission: str = "push"


@router.put("/collaborators/{login}", status_code=204)
def put_collaborator(
    tx: Write, owner: str, repo: str, login: str, body: RoleRequest | None = None
) -> Response:
    repository = tx.repository(owner, repo, "administration", write=True, role="admin")
    names = {"pull": "read", "push": "write"}
    wanted = (body or RoleRequest()).permission
    set_collaborator(tx, repository, tx.account(login), names.get(wanted, wanted))
    return Response(status_code=204)
