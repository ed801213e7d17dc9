"""Who is calling: the Authorization header read as GitHub reads it, and what that caller may do."""

import base64
import binascii
import hashlib
import secrets
import time
from dataclasses import dataclass, field
from typing import Any, Literal

import jwt
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.localhub.clock import stamp, stamp_in
from app.localhub.errors import ApiError, not_accessible, not_found
from app.localhub.tables import (
    Account,
    App,
    Collaborator,
    Installation,
    InstallationRepository,
    Repository,
    Token,
)

INSTALLATION_TOKEN_SECONDS = 3600
APP_JWT_SECONDS = 600
CLOCK_DRIFT_SECONDS = 60
LEVELS = ("none", "read", "write", "admin")
ROLE_LEVEL = {"read": "read", "triage": "read", "write": "write", "maintain": "write", "admin": "admin"}
WORKFLOWS = "workflows"


@dataclass(frozen=True)
class Actor:
    """The caller of one request.

    `account` is None for anonymous callers and for an App that speaks for itself (a JWT).
    `permissions` and `repository_ids` limit an installation's token; a user's token is limited by the user alone.
    """

    kind: Literal["anonymous", "user", "installation", "app"]
    account: Account | None = None
    app: App | None = None
    installation: Installation | None = None
    permissions: dict[str, str] = field(default_factory=dict)
    repository_ids: frozenset[int] | None = None
    credential: str = ""  # digest that tells callers apart; never the token itself

    @property
    def rate_key(self) -> str:
        """Whose rate limit a request counts against."""
        if self.installation is not None:
            return f"installation-{self.installation.id}"
        return f"user-{self.account.id}" if self.account is not None else self.kind

    def signed_in(self) -> Account:
        """The account that acts. Raises ApiError 401 or 403 when there is none."""
        if self.account is not None:
            return self.account
        if self.kind == "app":
            raise ApiError(401, "Bad credentials")
        raise ApiError(401, "Requires authentication")


ANONYMOUS = Actor("anonymous")


def digest(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def issue_user_token(session: Session, account: Account) -> str:
    """A new token that acts as `account` and doesn't expire."""
    token = f"ghp_{secrets.token_hex(18)}"
    session.add(Token(sha256=digest(token), account_id=account.id))
    return token


def issue_installation_token(
    session: Session,
    installation: Installation,
    permissions: dict[str, str],
    repository_ids: list[int] | None,
    signing_key: str,
) -> tuple[str, str]:
    """A new token of an installation, and when it expires.

    Since April 2026 GitHub's are `ghs_<app id>_<JWT>`, several hundred characters: clients must not assume a length.
    """
    now = int(time.time())
    claims = {
        "iss": "local-github",
        "sub": f"installation:{installation.id}",
        "iat": now,
        "exp": now + INSTALLATION_TOKEN_SECONDS,
        "jti": secrets.token_hex(16),
        "permissions": permissions,
    }
    token = f"ghs_{installation.app_id}_{jwt.encode(claims, signing_key, algorithm='HS256')}"
    expires_at = stamp_in(INSTALLATION_TOKEN_SECONDS)
    session.add(
        Token(
            sha256=digest(token),
            account_id=installation.app.bot_id,
            installation_id=installation.id,
            permissions=permissions,
            repository_ids=list(repository_ids) if repository_ids is not None else None,
            expires_at=expires_at,
        )
    )
    return token, expires_at


def authenticate(session: Session, header: str | None) -> Actor:
    """The caller named by an Authorization header. Raises ApiError 401 for credentials that don't hold."""
    if not header:
        return ANONYMOUS
    scheme, _, value = header.partition(" ")
    value = value.strip()
    if scheme.lower() == "basic":
        value = _basic_password(value)
    elif scheme.lower() not in ("bearer", "token"):
        raise ApiError(401, "Bad credentials")
    if value.count(".") == 2 and not value.startswith("gh"):
        return _app_actor(session, value)
    return _token_actor(session, value)


def _basic_password(value: str) -> str:
    try:
        user, _, password = base64.b64decode(value, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError) as error:
        raise ApiError(401, "Bad credentials") from error
    return password if password and password != "x-oauth-basic" else user  # noqa: S105 - GitHub's own placeholder


def _token_actor(session: Session, value: str) -> Actor:
    token = session.get(Token, digest(value))
    if token is None or (token.expires_at is not None and token.expires_at <= stamp()):
        raise ApiError(401, "Bad credentials")
    account = session.get(Account, token.account_id)
    if token.installation_id is None:
        return Actor("user", account=account, credential=token.sha256)
    installation = session.get(Installation, token.installation_id)
    if installation is None:
        raise ApiError(401, "Bad credentials")
    if installation.suspended_at is not None:
        raise ApiError(403, "This installation has been suspended")
    chosen = None if token.repository_ids is None else frozenset(int(item) for item in token.repository_ids)
    return Actor(
        "installation",
        account=account,
        app=installation.app,
        installation=installation,
        permissions={"metadata": "read", **(token.permissions or {})},
        repository_ids=chosen,
        credential=token.sha256,
    )


def _app_actor(session: Session, value: str) -> Actor:
    try:
        claims = jwt.decode(value, options={"verify_signature": False})
    except jwt.InvalidTokenError as error:
        raise ApiError(401, "A JSON web token could not be decoded") from error
    app = _issuer(session, claims.get("iss"))
    if app is None:
        raise ApiError(404, "Integration not found")
    try:
        claims = jwt.decode(
            value,
            app.public_key,
            algorithms=["RS256"],
            options={"require": ["exp", "iat"], "verify_iat": False},
        )
    except jwt.ExpiredSignatureError as error:
        raise ApiError(
            401,
            "'Expiration time' claim ('exp') must be a numeric value representing the future time at which the assertion expires",
        ) from error
    except jwt.InvalidTokenError as error:
        raise ApiError(401, "A JSON web token could not be decoded") from error
    now = time.time()
    if claims["exp"] > now + APP_JWT_SECONDS + CLOCK_DRIFT_SECONDS:
        raise ApiError(401, "'Expiration time' claim ('exp') is too far in the future")
    if claims["iat"] > now + CLOCK_DRIFT_SECONDS:
        raise ApiError(
            401,
            "'Issued at' claim ('iat') must be an Integer representing the time that the assertion was issued",
        )
    return Actor("app", app=app, credential=f"app-{app.id}")


def _issuer(session: Session, issuer: Any) -> App | None:
    text = str(issuer)
    if text.isdecimal():
        return session.get(App, int(text))
    return session.scalar(select(App).where(App.client_id == text))


def role_of(session: Session, repository: Repository, account: Account) -> str | None:
    """The account's role on the repository; None when it has none of its own."""
    if account.id == repository.owner_id:
        return "admin"
    row = session.get(Collaborator, (repository.id, account.id))
    return row.role if row is not None else None


def covers(session: Session, actor: Actor, repository: Repository) -> bool:
    """Whether an installation's token reaches the repository."""
    installation = actor.installation
    if installation is None or installation.account_id != repository.owner_id:
        return False
    if actor.repository_ids is not None:
        return repository.id in actor.repository_ids
    if installation.repository_selection == "all":
        return True
    return session.get(InstallationRepository, (installation.id, repository.id)) is not None


def level(session: Session, actor: Actor, repository: Repository) -> str:
    """What a user or an anonymous caller may do: none, read, write or admin."""
    if actor.kind == "user" and actor.account is not None:
        role = role_of(session, repository, actor.account)
        if role is not None:
            return ROLE_LEVEL[role]
    return "none" if repository.private else "read"


def require(
    session: Session, actor: Actor, repository: Repository, needs: tuple[str, ...], wanted: str
) -> None:
    """Raise ApiError unless the caller may `read` or `write` through one of the permissions `needs`.

    An installation needs the permission in its token and the repository in its reach; anything it could see without
    a token, it still sees. A person needs read for reading and, for writing, what the caller of this asks of `level`.
    """
    if actor.kind == "app":
        raise ApiError(401, "Bad credentials")
    if actor.kind != "installation":
        if level(session, actor, repository) == "none":
            raise not_found()
        if wanted == "write":
            actor.signed_in()
        return
    if not covers(session, actor, repository):
        if repository.private:
            raise not_found()
        if wanted == "read":
            return
        raise not_accessible()
    held = max(LEVELS.index(actor.permissions.get(need, "none")) for need in needs)
    if held < LEVELS.index(wanted) and not (wanted == "read" and not repository.private):
        raise not_accessible("; ".join(f"{need}={wanted}" for need in needs))
