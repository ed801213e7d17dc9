"""What the stages reach the world through, put together once by app.main."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

from agents.ports import Bench, Model
from app.github import GitHubApp, GitHubRepository
from app.outbox import Outbox
from app.repository import TargetRepository
from app.repository_config import RepositoryConfig
from app.repository_config_source import RepositoryConfigs
from app.settings import Settings
from app.states import Stage
from app.status_comment import StatusComments
from app.store import Store
from app.tables import Request


class Engine(Protocol):
    """Runs the stages of requests durably."""

    async def start_stage(self, stage: Stage, request_id: str, attempt: int) -> None:
        """Start a stage; starting the same attempt again is nothing."""
        ...

    async def go_on(self, request_id: str) -> bool:
        """Take verification up again when the runners that it waited for have answered; False: ask again."""
        ...

    async def cancel(self, request: Request) -> None:
        """Stop whatever runs for a request."""
        ...


@dataclass(frozen=True)
class Ports:
    """Settings, our tables, GitHub, a bench for jobs, and a model when one is configured."""

    settings: Settings
    store: Store
    github: GitHubApp
    status: StatusComments
    bench: Bench
    model: Model | None = None
    spare_bench: Bench | None = (
        None  # for what can wait until nothing else is to be done; None: it isn't done
    )

    def repository(self, request: Request) -> GitHubRepository:
        """The request's repository on GitHub."""
        return self.github.repository(request.installation_id, request.repository)

    @property
    def configs(self) -> RepositoryConfigs:
        """What the repositories decide about the bot."""
        return self.status.configs

    @property
    def outbox(self) -> Outbox:
        """What is being made on GitHub just now."""
        return self.status.outbox

    async def config(self, request: Request) -> RepositoryConfig:
        """What the request's repository decides. Raises ConfigMistake when its file can't be used."""
        return await self.configs.of(request.installation_id, request.repository)

    def target(self, full_name: str) -> TargetRepository:
        """The repository's git mirror and checkouts here."""
        url = f"{self.settings.github_web_url.rstrip('/')}/{full_name}.git"
        return TargetRepository(self.settings.data_dir, full_name, url)

    @property
    def web_host(self) -> str:
        """Host, with port, of the GitHub that links may point to."""
        return urlsplit(self.settings.github_web_url).netloc

    def page_url(self, request_id: str) -> str:
        return f"{self.settings.pages_url}/requests/{request_id}"
