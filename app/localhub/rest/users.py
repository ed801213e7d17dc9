"""Routes of users, rate limits and the server itself."""

import time
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response

from app.localhub.errors import ApiError
from app.localhub.payloads import accounts
from app.localhub.rest.dependencies import Read

router = APIRouter()
API_VERSIONS = ("2022-11-28", "2026-03-10")


@router.get("/user")
def get_authenticated_user(tx: Read) -> dict[str, Any]:
    if tx.actor.kind == "installation":
        raise ApiError(403, "Resource not accessible by integration")
    account = tx.actor.signed_in()
    return accounts.public_user(tx, account) | {
        "private_gists": 0,
        "total_private_repos": 0,
        "owned_private_repos": 0,
        "disk_usage": 0,
        "collaborators": 0,
        "two_factor_authentication": False,
    }


@router.get("/users/{login}")
def get_user(tx: Read, login: str) -> dict[str, Any]:
    return accounts.public_user(tx, tx.account(login))


@router.get("/rate_limit")
def get_rate_limit(tx: Read, request: Request) -> dict[str, Any]:
    limits = request.app.state.rate_limits
    core = limits.peek(tx.actor.rate_key, tx.actor.kind)
    idle = {"limit": 30, "remaining": 30, "reset": int(time.time()) + 60, "used": 0}
    reply: dict[str, Any] = {"resources": {"core": core, "search": idle, "graphql": core}}
    if tx.legacy:
        reply["rate"] = core
    return reply


@router.get("/versions")
def list_versions() -> list[str]:
    return list(API_VERSIONS)


@router.get("/meta")
def get_meta() -> dict[str, Any]:
    return {"verifiable_password_authentication": False, "installed_version": "3.21.0"}


@router.get("/zen")
def get_zen() -> Response:
    return PlainTextResponse("Keep it logically awesome.")
