"""Everything the service can be told from outside: one class, read from the environment and a .env file."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, StringConstraints, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

LOOPBACK_HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})
GATES = frozenset({"style", "correctness", "compile", "benchmark"})
SECRETS = ("webhook_secret", "private_key", "client_secret", "metrics_token", "model_api_key", "database_url")

Url = Annotated[str, StringConstraints(pattern=r"^https?://[^\s]+$")]


class Settings(BaseSettings):
    """Settings of the service. Each is an environment variable LIGER_BOT_<NAME>; docs/settings.md explains them.

    A secret may also be given as the path of a file holding it: LIGER_BOT_<NAME>_FILE.
    """

    model_config = SettingsConfigDict(
        env_prefix="LIGER_BOT_", env_file=".env", extra="ignore", frozen=True, hide_input_in_errors=True
    )

    webhook_secret: SecretStr = Field(
        default=SecretStr(""),
        description="secret that GitHub signs deliveries with; the service refuses to start without it",
    )
    webhook_secret_file: Path | None = Field(default=None, description="file holding the webhook secret")
    app_id: int = Field(default=0, description="numeric id of the GitHub App")
    private_key: SecretStr = Field(default=SecretStr(""), description="the App's private key, PEM text")
    private_key_file: Path | None = Field(default=None, description="file holding the private key")
    client_id: str = Field(
        default="",
        description="the App's client id, for signing in on the pages; empty: pages of private repositories stay closed",
    )
    client_secret: SecretStr = Field(
        default=SecretStr(""),
        description="the App's client secret; also what browser sessions are sealed with",
    )
    client_secret_file: Path | None = Field(default=None, description="file holding the client secret")

    github_url: Url = Field(
        default="https://api.github.com", description="base of the REST API; Enterprise: https://HOST/api/v3"
    )
    github_web_url: Url = Field(
        default="https://github.com",
        description="base of the web pages and of git over HTTPS; Enterprise: https://HOST",
    )
    github_api_version: str = Field(
        default="2026-03-10",
        description="value of X-GitHub-Api-Version; empty sends none (older Enterprise servers)",
    )

    data_dir: Path = Field(
        default=Path(".liger-bot/data"), description="databases, git mirrors and checkouts live here"
    )
    database_url: SecretStr = Field(
        default=SecretStr(""),
        description="SQLAlchemy URL of the database; empty: SQLite files under data_dir",
    )
    database_url_file: Path | None = Field(
        default=None, description="file holding the URL, which holds a password"
    )

    host: str = Field(default="127.0.0.1", description="address to listen on")
    port: int = Field(default=8000, ge=0, le=65535, description="port to listen on")
    public_url: str = Field(
        default="", description="address under which people reach our pages; empty: http://host:port"
    )

    metrics_token: SecretStr = Field(
        default=SecretStr(""), description="bearer token that /metrics asks for; empty: it is open"
    )
    metrics_token_file: Path | None = Field(default=None, description="file holding that token")

    executor_id: str = Field(
        default_factory=socket.gethostname,
        description="name of this process among those that share a database: unique, and the same after a restart",
    )
    stages: Literal["here", "workers"] = Field(
        default="here",
        description="who runs the stages of requests: here, the service itself; workers, processes of `liger-bot worker` that share its Postgres",
    )
    worker_slots: int = Field(
        default=1, ge=1, le=64, description="jobs that run on this machine at the same time"
    )
    runner_python: str = Field(default="", description="interpreter that runs jobs; empty: the service's own")
    allow_unconfined: bool = Field(
        default=False,
        description="run jobs also where this machine can put nothing but limits around them: they could then read the service's secrets",
    )
    target_python: str = Field(
        default="",
        description="interpreter that runs the target repository's own tests; empty: the runner's own",
    )
    compile_schedules: bool = Field(
        default=True,
        description="compile every schedule that a profile weighs, one profile at a time and behind all other work, once it is shown",
    )
    transformers_sites: str = Field(
        default="",
        description="folders with other versions of transformers, under which a model patch is imported; ':' between two",
    )
    job_deadline_seconds: float = Field(
        default=600.0, gt=0, description="wall clock after which a job is killed"
    )

    actions_gates: str = Field(
        default="correctness,benchmark",
        description="gates that GPU runners judge through GitHub Actions where a repository names its `runners`, comma separated: style, correctness, compile, benchmark",
    )
    actions_queue_minutes: float = Field(
        default=120.0,
        gt=0,
        description="minutes after which a dispatched job that no runner took is given up",
    )

    poll_seconds: float = Field(
        default=0.0,
        ge=0,
        description="seconds between two readings of a fresh profile's reactions; 0: 2 for a GitHub on this machine, 15 otherwise",
    )
    status_edit_seconds: float = Field(
        default=0.0,
        ge=0,
        description="least seconds between two live edits of a status comment; 0: 1 for a GitHub on this machine, 10 otherwise",
    )
    approval_days: float = Field(
        default=14.0, gt=0, description="days after which an unanswered profile expires"
    )
    requester_may_approve: bool = Field(
        default=True,
        description="whether the person who asked may also approve; false asks for a second person",
    )

    reconcile_minutes: float = Field(
        default=15.0,
        gt=0,
        description="minutes between two looks for deliveries that failed and comments that no delivery told of",
    )
    keep_days: float = Field(
        default=30.0,
        ge=4,
        description="days that deliveries, and the jobs' reports of ended requests, are kept",
    )

    model: str = Field(
        default="", description="language model, in litellm's naming; empty: none, the rules alone"
    )
    model_base_url: str = Field(
        default="", description="base URL of an OpenAI-compatible server; empty: the provider's own"
    )
    model_api_key: SecretStr = Field(default=SecretStr(""), description="key for the model's API")
    model_api_key_file: Path | None = Field(default=None, description="file holding the model's key")
    model_timeout_seconds: float = Field(
        default=120.0, gt=0, description="wall clock of one question to the model"
    )
    model_max_usd: float = Field(
        default=1.0, ge=0, description="most that one process may spend on the model, US dollars"
    )

    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        default="INFO", description="DEBUG, INFO, WARNING or ERROR"
    )
    log_format: Literal["text", "json"] = Field(
        default="text", description="text for people, json for machines: one object a line"
    )
    shutdown_seconds: float = Field(
        default=10.0,
        ge=0,
        le=600,
        description="seconds that work in progress gets to finish after SIGTERM; what is left goes on at the next start",
    )

    @model_validator(mode="before")
    @classmethod
    def _read_secret_files(cls, values: dict) -> dict:
        for name in SECRETS:
            path = values.get(f"{name}_file")
            if path and not _text(values.get(name)):
                try:
                    values = {**values, name: Path(path).read_text(encoding="utf-8").strip()}
                except OSError as error:
                    raise ValueError(
                        f"LIGER_BOT_{name.upper()}_FILE: can't read {path}: {error.strerror}"
                    ) from None
        return values

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if not self.webhook_secret.get_secret_value().strip():
            raise ValueError(
                "LIGER_BOT_WEBHOOK_SECRET (or _FILE) is missing: deliveries could not be told from forgeries, so the service doesn't start"
            )
        if not self.app_id or not self.private_key.get_secret_value().strip():
            raise ValueError(
                "LIGER_BOT_APP_ID and LIGER_BOT_PRIVATE_KEY (or _FILE) are needed to act as a GitHub App"
            )
        if self.stages == "workers" and not self.database_url.get_secret_value().startswith("postgresql"):
            raise ValueError(
                "LIGER_BOT_STAGES=workers needs a Postgres that the processes share: set LIGER_BOT_DATABASE_URL (or _FILE), or leave the stages here"
            )
        if bool(self.client_id) != bool(self.client_secret.get_secret_value()):
            raise ValueError(
                "LIGER_BOT_CLIENT_ID and LIGER_BOT_CLIENT_SECRET (or _FILE) go together: set both to let people sign in on the pages, or neither"
            )
        return self

    @field_validator("actions_gates")
    @classmethod
    def _known_gates(cls, value: str) -> str:
        unknown = {one.strip() for one in value.split(",") if one.strip()} - GATES
        if unknown:
            raise ValueError(
                f"{', '.join(sorted(unknown))}: not a gate; there are {', '.join(sorted(GATES))}"
            )
        return value

    @property
    def gates_on_actions(self) -> frozenset[str]:
        """Gates that runners of GitHub Actions judge, where a repository has some."""
        return frozenset(one.strip() for one in self.actions_gates.split(",") if one.strip())

    @property
    def github_is_local(self) -> bool:
        """True when GitHub's API is on this machine: then it may be asked often."""
        return (urlsplit(self.github_url).hostname or "") in LOOPBACK_HOSTS

    @property
    def fresh_poll_seconds(self) -> float:
        """Seconds between two readings of a fresh profile's reactions."""
        return self.poll_seconds or (2.0 if self.github_is_local else 15.0)

    @property
    def live_edit_seconds(self) -> float:
        """Least seconds between two live edits of one status comment."""
        return self.status_edit_seconds or (1.0 if self.github_is_local else 10.0)

    @property
    def pages_url(self) -> str:
        """Address of our pages, without a trailing slash."""
        return (self.public_url or f"http://{self.host}:{self.port}").rstrip("/")

    @property
    def store_url(self) -> str:
        """SQLAlchemy URL of our tables."""
        return self.database_url.get_secret_value() or f"sqlite:///{self.data_dir.resolve()}/liger-bot.sqlite"

    @property
    def workflows_url(self) -> str:
        """SQLAlchemy URL of the workflow engine's tables: its own file on SQLite, its own schema on Postgres."""
        return self.database_url.get_secret_value() or f"sqlite:///{self.data_dir.resolve()}/workflows.sqlite"


def _text(value: object) -> str:
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value or "")


def documented_names() -> list[str]:
    """The environment variables that docs/settings.md must explain."""
    return [f"LIGER_BOT_{name.upper()}" for name in Settings.model_fields]


def child_environment() -> dict[str, str]:
    """What a runner process inherits from ours: nothing that could hold a credential."""
    kept = (
        "PATH",
        "HOME",
        "LANG",
        "LC_ALL",
        "TMPDIR",
        "LD_LIBRARY_PATH",
        "CUDA_VISIBLE_DEVICES",
        "CUDA_HOME",
        "ROCM_PATH",
    )
    return {name: os.environ[name] for name in kept if name in os.environ}
