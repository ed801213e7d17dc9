"""What `liger-bot doctor` asks GitHub: only reading, and nothing that the service itself needs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from githubkit.utils import exclude_unset

from app.github.app import GitHubApp
from app.github.errors import NotFoundError, ask


@dataclass(frozen=True)
class AppRights:
    """What an App, or an installation of it, may do and hears of."""

    permissions: dict[str, str]
    events: list[str]
    url: str


@dataclass(frozen=True)
class SeenInstallation:
    id: int
    account: str
    suspended: bool
    rights: AppRights


@dataclass(frozen=True)
class SeenDelivery:
    """One attempt of GitHub's to hand an event over."""

    event: str
    delivered_at: datetime
    status_code: int
    status: str


@dataclass(frozen=True)
class SeenRunner:
    name: str
    online: bool
    labels: frozenset[str]


class Inspection(GitHubApp):
    """The App, looked at."""

    async def rights(self) -> AppRights:
        """What the App asks for. Raises ForbiddenError when the App's id and key don't belong together."""
        app = (await ask(self._github.rest.apps.async_get_authenticated(), "read the App")).parsed_data
        if app is None:
            raise NotFoundError("read the App: GitHub answered nothing", 404)
        return AppRights(_permissions(app.permissions), list(app.events), app.html_url)

    async def installations(self) -> list[SeenInstallation]:
        """Where the App is installed: the first hundred."""
        answer = await ask(
            self._github.rest.apps.async_list_installations(per_page=100), "list installations"
        )
        return [
            SeenInstallation(
                one.id,
                str(getattr(one.account, "login", None) or getattr(one.account, "slug", "?")),
                one.suspended_at is not None,
                AppRights(_permissions(one.permissions), list(one.events), one.html_url),
            )
            for one in answer.parsed_data
        ]

    async def repositories(self, installation_id: int) -> list[str]:
        """Full names of an installation's repositories: the first hundred."""
        github = self._github.with_auth(self._auth.as_installation(installation_id))
        answer = await ask(
            github.rest.apps.async_list_repos_accessible_to_installation(per_page=100), "list repositories"
        )
        return [one.full_name for one in answer.parsed_data.repositories]

    async def webhook_url(self) -> str:
        """Where GitHub delivers; empty when the App has no webhook."""
        answer = await ask(self._github.rest.apps.async_get_webhook_config_for_app(), "read the webhook")
        return answer.parsed_data.url or ""

    async def deliveries(self, count: int = 30) -> list[SeenDelivery]:
        """The newest attempts, newest first."""
        answer = await ask(
            self._github.rest.apps.async_list_webhook_deliveries(per_page=count), "list deliveries"
        )
        return [
            SeenDelivery(one.event, one.delivered_at, one.status_code, one.status)
            for one in answer.parsed_data
        ]

    async def workflow_files(self, installation_id: int, full_name: str) -> dict[str, str]:
        """Path and text of the workflows on the default branch."""
        folder = f"repos/{full_name}/contents/.github/workflows"
        repository = self.repository(installation_id, full_name)
        try:
            listing = (
                await ask(
                    self._installed(installation_id, full_name).arequest("GET", folder), "list workflows"
                )
            ).json()
        except NotFoundError:
            return {}
        paths = [
            one["path"]
            for one in listing
            if one["type"] == "file" and one["name"].endswith((".yml", ".yaml"))
        ]
        return {path: await repository.read_file(path) for path in paths}

    async def runners(self, installation_id: int, full_name: str) -> list[SeenRunner]:
        """The repository's own runners. Raises ForbiddenError without `administration: read`."""
        path = f"repos/{full_name}/actions/runners"
        installed = self._installed(installation_id, full_name)
        answer = await ask(installed.arequest("GET", path, params={"per_page": 100}), "list runners")
        return [
            SeenRunner(
                one["name"], one["status"] == "online", frozenset(label["name"] for label in one["labels"])
            )
            for one in answer.json()["runners"]
        ]

    def _installed(self, installation_id: int, full_name: str) -> Any:
        name = full_name.split("/", 1)[1]
        return self._github.with_auth(self._auth.as_installation(installation_id, repositories=[name]))


def _permissions(model: Any) -> dict[str, str]:
    """From githubkit's model, which has a field for each permission that there is."""
    found = exclude_unset(model.model_dump())
    return {name: str(level) for name, level in found.items() if level}
