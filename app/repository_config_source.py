"""Reads `.github/liger-bot.yml` where it counts: the default branch of the repository, else of its organisation's `.github`."""

from __future__ import annotations

import logging
import time

from app.github import (
    ForbiddenError,
    GitHubApp,
    GitHubError,
    GitHubRepository,
    NotFoundError,
    RejectedError,
)
from app.policy import among
from app.repository_config import CONFIG_PATH, ConfigMistake, RepositoryConfig, Who, parse_config
from app.settings import Settings

log = logging.getLogger(__name__)

SHARED_REPOSITORY = ".github"
_NOT_INSTALLED = 422  # a token for a repository that the App is not installed on


class RepositoryConfigs:
    """The configurations of the repositories that the App is installed on; each is read again after `fresh_for_s`."""

    def __init__(self, github: GitHubApp, defaults: RepositoryConfig, fresh_for_s: float):
        self._github, self.defaults, self._fresh_for_s = github, defaults, fresh_for_s
        self._kept: dict[str, tuple[float, RepositoryConfig | ConfigMistake]] = {}

    @classmethod
    def of_settings(cls, settings: Settings, github: GitHubApp) -> RepositoryConfigs:
        """What a file doesn't say is as the service's settings have it."""
        defaults = RepositoryConfig(
            approval_days=settings.approval_days,
            requester_may_approve=settings.requester_may_approve,
            model_usd_per_request=settings.model_max_usd,
        )
        return cls(github, defaults, fresh_for_s=1.0 if settings.github_is_local else 60.0)

    async def of(self, installation_id: int, full_name: str) -> RepositoryConfig:
        """The configuration that holds now. Raises ConfigMistake when its file can't be used, and GitHubError."""
        kept = self._kept.get(full_name)
        if kept is None or time.monotonic() - kept[0] > self._fresh_for_s:
            kept = (time.monotonic(), await self._read(installation_id, full_name))
            self._kept[full_name] = kept
        if isinstance(kept[1], ConfigMistake):
            raise kept[1]
        return kept[1]

    async def for_show(self, installation_id: int, full_name: str) -> RepositoryConfig:
        """The same for what is only shown: the defaults stand in while the file can't be read or used."""
        try:
            return await self.of(installation_id, full_name)
        except (ConfigMistake, GitHubError) as error:
            log.warning("%s: the defaults are shown: %s", full_name, error)
            return self.defaults

    async def _read(self, installation_id: int, full_name: str) -> RepositoryConfig | ConfigMistake:
        where = f"`{CONFIG_PATH}`"
        try:
            text = await self._own(installation_id, full_name)
            if text is None:
                shared = f"{full_name.split('/', 1)[0]}/{SHARED_REPOSITORY}"
                where = f"`{CONFIG_PATH}` of {shared}"
                text = await self._shared(installation_id, full_name, shared)
            return self.defaults if text is None else parse_config(text, self.defaults)
        except ConfigMistake as mistake:
            return ConfigMistake(f"{where}, {mistake}")

    async def _own(self, installation_id: int, full_name: str) -> str | None:
        return await _text(self._github.repository(installation_id, full_name))

    async def _shared(self, installation_id: int, full_name: str, shared: str) -> str | None:
        if full_name == shared:
            return None
        try:
            return await _text(self._github.repository(installation_id, shared))
        except RejectedError as error:
            if error.status != _NOT_INSTALLED:
                raise
        # not installed there: a public one can be read with any token
        return await _text(self._github.repository(installation_id, full_name).beside(shared))


async def _text(repository: GitHubRepository) -> str | None:
    """The file's text on the default branch; None when there is none. Raises ConfigMistake when it isn't text."""
    try:
        return await repository.read_file(CONFIG_PATH)
    except NotFoundError:
        return None
    except RejectedError as error:
        if error.status:  # GitHub's own refusal
            raise
        raise ConfigMistake(f"line 1: {error}") from None


async def is_among(who: Who, repository: GitHubRepository, login: str, permission: str) -> bool:
    """Whether a person is among those whom a configuration names; `permission`: as read just now."""
    if among(who, permission, login):
        return True
    for team in who.teams:
        try:
            if await repository.in_team(team, login):
                return True
        except ForbiddenError as error:
            log.warning("team %s of %s doesn't count: %s", team, repository.owner, error)
    return False
