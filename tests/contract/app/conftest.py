"""A local GitHub with one small repository, the App installed on it, and people with and without write access."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from app.github import GitHubApp, GitHubRepository
from app.localhub import LocalHub, RegisteredApp, ServedHub
from app.store import Store

FULL_NAME = "acme/kernels"


@dataclass
class Place:
    """What a test needs of the local GitHub."""

    hub: LocalHub
    served: ServedHub
    app: RegisteredApp
    installation_id: int
    tokens: dict[str, str]

    def as_user(self, login: str) -> httpx.Client:
        """A client that acts as a person."""
        return httpx.Client(
            base_url=f"{self.served.url}/api/v3",
            headers={"Authorization": f"Bearer {self.tokens[login]}"},
            timeout=60,
        )

    def open_issue(self, login: str = "maintainer", title: str = "A new op") -> int:
        with self.as_user(login) as client:
            answer = client.post(f"/repos/{FULL_NAME}/issues", json={"title": title})
            answer.raise_for_status()
            return answer.json()["number"]

    def comment(self, issue: int, body: str, login: str = "maintainer") -> int:
        with self.as_user(login) as client:
            answer = client.post(f"/repos/{FULL_NAME}/issues/{issue}/comments", json={"body": body})
            answer.raise_for_status()
            return answer.json()["id"]

    def react(self, comment_id: int, content: str, login: str = "maintainer") -> None:
        with self.as_user(login) as client:
            client.post(
                f"/repos/{FULL_NAME}/issues/comments/{comment_id}/reactions", json={"content": content}
            ).raise_for_status()


@contextmanager
def made_place(folder: Path) -> Iterator[Place]:
    """A place in a folder of its own."""
    files = folder / "files"
    (files / "src").mkdir(parents=True)
    (files / "README.md").write_text("# Kernels\n")
    (files / "src" / "ops.py").write_text("one = 1\n")
    (files / "link").symlink_to("README.md")
    hub = LocalHub(folder / "hub")
    with hub.serve() as served:
        tokens = {login: hub.create_user(login) for login in ("maintainer", "stranger", "reader")}
        hub.create_repository("acme", "kernels", files)
        hub.set_collaborator(FULL_NAME, "maintainer", "write")
        hub.set_collaborator(FULL_NAME, "reader", "read")
        app = hub.register_app("liger-bot", "acme", webhook_secret="s3cret")
        installation = hub.install_app("liger-bot", "acme", ["kernels"])
        yield Place(hub, served, app, installation, tokens)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with made_place(tmp_path) as made:
        yield made


@pytest.fixture
async def github(place: Place) -> AsyncIterator[GitHubApp]:
    app = GitHubApp(place.app.id, place.app.private_key, place.served.api_url)
    yield app
    await app.close()


@pytest.fixture
def repository(place: Place, github: GitHubApp) -> GitHubRepository:
    return github.repository(place.installation_id, FULL_NAME)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(f"sqlite:///{tmp_path}/test.sqlite")
    yield store
    store.close()
