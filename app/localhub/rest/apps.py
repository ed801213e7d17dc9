"""Routes of Apps: themselves, their installations, tokens, and webhook deliveries."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from sqlalchemy import func, select

from app.localhub.actor import LEVELS, issue_installation_token
from app.localhub.errors import ApiError, not_found
from app.localhub.payloads import accounts, deliveries, repositories
from app.localhub.rest.dependencies import Paged, Read, Write
from app.localhub.tables import (
    Account,
    App,
    HookDelivery,
    Installation,
    InstallationRepository,
    Repository,
)
from app.localhub.transaction import Transaction

router = APIRouter()


def _app(tx: Transaction) -> App:
    if tx.actor.kind != "app" or tx.actor.app is None:
        raise ApiError(401, "A JSON web token could not be decoded")
    return tx.actor.app


def _installation(tx: Transaction, number: int) -> Installation:
    app = _app(tx)
    row = tx.session.get(Installation, number)
    if row is None or row.app_id != app.id:
        raise not_found()
    return row


@router.get("/app")
def get_app(tx: Read) -> dict[str, Any]:
    app = _app(tx)
    count = tx.session.scalar(
        select(func.count()).select_from(Installation).where(Installation.app_id == app.id)
    )
    return accounts.integration(tx, app) | {"installations_count": count}


@router.get("/apps/{slug}")
def get_app_by_slug(tx: Read, slug: str) -> dict[str, Any]:
    row = tx.session.scalar(select(App).where(App.slug == slug))
    if row is None:
        raise not_found()
    return accounts.integration(tx, row)


@router.get("/app/installations")
def list_installations(tx: Read, page: Paged) -> JSONResponse:
    query = select(Installation).where(Installation.app_id == _app(tx).id).order_by(Installation.id)
    return page.of(tx.session.scalars(query).all(), lambda row: accounts.installation(tx, row))


@router.get("/app/installations/{installation_id}")
def get_installation(tx: Read, installation_id: int) -> dict[str, Any]:
    return accounts.installation(tx, _installation(tx, installation_id))


def _account_installation(tx: Transaction, account: Account) -> Installation:
    query = select(Installation).where(
        Installation.app_id == _app(tx).id, Installation.account_id == account.id
    )
    row = tx.session.scalar(query)
    if row is None:
        raise not_found()
    return row


@router.get("/orgs/{login}/installation")
@router.get("/users/{login}/installation")
def get_account_installation(tx: Read, login: str) -> dict[str, Any]:
    return accounts.installation(tx, _account_installation(tx, tx.account(login)))


@router.get("/repos/{owner}/{repo}/installation")
def get_repository_installation(tx: Read, owner: str, repo: str) -> dict[str, Any]:
    _app(tx)
    account = tx.account(owner)
    repository = tx.session.scalar(
        select(Repository).where(Repository.owner_id == account.id, Repository.name == repo)
    )
    if repository is None:
        raise not_found()
    row = _account_installation(tx, account)
    chosen = tx.session.get(InstallationRepository, (row.id, repository.id))
    if row.repository_selection == "selected" and chosen is None:
        raise not_found()
    return accounts.installation(tx, row)


class TokenRequest(BaseModel):
    """What a token is narrowed to."""

    repositories: list[str] | None = None
    repository_ids: list[int] | None = None
    permissions: dict[str, str] | None = None


def _reachable(tx: Transaction, row: Installation) -> list[Repository]:
    query = select(Repository).where(Repository.owner_id == row.account_id).order_by(Repository.id)
    if row.repository_selection == "selected":
        query = query.join(InstallationRepository, InstallationRepository.repository_id == Repository.id)
        query = query.where(InstallationRepository.installation_id == row.id)
    return list(tx.session.scalars(query))


def _narrowed(tx: Transaction, row: Installation, body: TokenRequest) -> list[Repository] | None:
    if body.repositories is None and body.repository_ids is None:
        return None
    reachable = _reachable(tx, row)
    by_name = {item.name.lower(): item for item in reachable}
    by_id = {item.id: item for item in reachable}
    found = [by_name.get(name.lower()) for name in body.repositories or []]
    found += [by_id.get(number) for number in body.repository_ids or []]
    if None in found:
        raise ApiError(
            422,
            "There is at least one repository that does not exist or is not accessible to the parent installation.",
        )
    return list({item.id: item for item in found if item is not None}.values())


def _granted(row: Installation, wanted: dict[str, str] | None) -> dict[str, str]:
    if not wanted:  # PyGithub sends an empty object for "all"
        return dict(row.permissions)
    for name, access in wanted.items():
        if access not in LEVELS or LEVELS.index(access) > LEVELS.index(row.permissions.get(name, "none")):
            raise ApiError(422, "The permissions requested are not granted to this installation.")
    return {"metadata": "read", **wanted}


@router.post("/app/installations/{installation_id}/access_tokens", status_code=201)
def create_installation_token(
    tx: Write, installation_id: int, body: TokenRequest | None = None
) -> dict[str, Any]:
    row = _installation(tx, installation_id)
    if row.suspended_at is not None:
        raise ApiError(403, "This installation has been suspended")
    body = body or TokenRequest()
    chosen = _narrowed(tx, row, body)
    permissions = _granted(row, body.permissions)
    ids = None if chosen is None else [item.id for item in chosen]
    token, expires_at = issue_installation_token(tx.session, row, permissions, ids, tx.context.signing_key)
    reply: dict[str, Any] = {
        "token": token,
        "expires_at": expires_at,
        "permissions": permissions,
        "repository_selection": row.repository_selection if chosen is None else "selected",
    }
    if chosen is not None:
        reply["repositories"] = [repositories.repository(tx, item) for item in chosen]
    return reply


@router.get("/installation/repositories")
def list_installation_repositories(tx: Read, page: Paged) -> JSONResponse:
    row = tx.actor.installation
    if row is None:
        raise ApiError(
            403,
            "You must authenticate with an installation access token in order to list repositories for an installation.",
        )
    ids = tx.actor.repository_ids
    items = [item for item in _reachable(tx, row) if ids is None or item.id in ids]
    return page.of(items, lambda item: repositories.repository(tx, item), key="repositories")


def _hook_config(app: App) -> dict[str, Any]:
    return {"content_type": "json", "insecure_ssl": "0", "secret": "********", "url": app.webhook_url}


@router.get("/app/hook/config")
def get_hook_config(tx: Read) -> dict[str, Any]:
    return _hook_config(_app(tx))


class HookConfig(BaseModel):
    """Where webhooks go, and what signs them."""

    url: str | None = None
    secret: str | None = None


@router.patch("/app/hook/config")
def update_hook_config(tx: Write, body: HookConfig) -> dict[str, Any]:
    app = _app(tx)
    if body.url is not None:
        app.webhook_url = body.url
    if body.secret is not None:
        app.webhook_secret = body.secret
    return _hook_config(app)


@router.get("/app/hook/deliveries")
def list_deliveries(
    tx: Read,
    per_page: Annotated[int, Query(ge=1, le=100)] = 30,
    cursor: str | None = None,
    status: str | None = None,
) -> JSONResponse:
    query = (
        select(HookDelivery)
        .where(HookDelivery.app_id == _app(tx).id, HookDelivery.outcome.in_(("delivered", "failed")))
        .order_by(HookDelivery.id.desc())
    )
    if status is not None:
        query = query.where(HookDelivery.outcome == ("delivered" if status == "success" else "failed"))
    if cursor is not None:
        if not cursor.isdecimal():
            raise ApiError(422, "Invalid cursor")
        query = query.where(HookDelivery.id < int(cursor))
    rows = tx.session.scalars(query.limit(per_page + 1)).all()
    headers = {}
    if len(rows) > per_page:
        following = tx.links.api(f"app/hook/deliveries?per_page={per_page}&cursor={rows[per_page - 1].id}")
        headers["Link"] = f'<{following}>; rel="next"'
    return JSONResponse([deliveries.item(row) for row in rows[:per_page]], headers=headers)


def _delivery(tx: Transaction, number: int) -> HookDelivery:
    row = tx.session.get(HookDelivery, number)
    if row is None or row.app_id != _app(tx).id or row.outcome not in ("delivered", "failed"):
        raise not_found()
    return row


@router.get("/app/hook/deliveries/{delivery_id}")
def get_delivery(tx: Read, delivery_id: int) -> dict[str, Any]:
    return deliveries.delivery(_delivery(tx, delivery_id))


@router.post("/app/hook/deliveries/{delivery_id}/attempts", status_code=202)
def redeliver(tx: Write, delivery_id: int) -> dict[str, Any]:
    row = _delivery(tx, delivery_id)
    tx.session.add(
        HookDelivery(
            app_id=row.app_id,
            guid=row.guid,
            event=row.event,
            action=row.action,
            installation_id=row.installation_id,
            repository_id=row.repository_id,
            payload=row.payload,
            redelivery=True,
        )
    )
    return {}
