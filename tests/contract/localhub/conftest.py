"""A served hub with a repository, people, an App that is installed, and an ear for its webhooks."""

import base64
import itertools
import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from githubkit import (
    AppAuthStrategy,
    AppInstallationAuthStrategy,
    GitHub,
    TokenAuthStrategy,
    UnauthAuthStrategy,
)
from githubkit.cache import MemCacheStrategy

from app.localhub import LocalHub, RegisteredApp, ServedHub

SECRET = "s3cret-of-the-hook"
OWNER, REPO = "acme", "kernels"


@dataclass
class Heard:
    """One webhook as it arrived."""

    event: str
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> dict[str, Any]:
        return json.loads(self.raw)

    @property
    def action(self) -> str | None:
        return self.body.get("action")


@dataclass
class Ear:
    """A webhook receiver that keeps what it hears and answers `status`."""

    url: str = ""
    status: int = 202
    slow: float = 0.0  # seconds before it answers
    heard: list[Heard] = field(default_factory=list)

    def of(self, event: str, action: str | None = None) -> list[Heard]:
        return [item for item in list(self.heard) if item.event == event and action in (None, item.action)]

    def wait_for(
        self, event: str, action: str | None = None, count: int = 1, seconds: float = 60.0
    ) -> list[Heard]:
        end = time.monotonic() + seconds
        while len(self.of(event, action)) < count:
            heard = [(item.event, item.action) for item in self.heard]
            assert time.monotonic() < end, f"no {count} x {event}.{action} within {seconds} s; heard {heard}"
            time.sleep(0.01)
        return self.of(event, action)


@contextmanager
def listening() -> Iterator[Ear]:
    """A receiver on a free port."""
    found = Ear()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["Content-Length"]))
            found.heard.append(Heard(self.headers["X-GitHub-Event"], dict(self.headers), raw))
            time.sleep(found.slow)
            self.send_response(found.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    found.url = f"http://127.0.0.1:{server.server_address[1]}/webhook"
    yield found
    server.shutdown()
    server.server_close()


@dataclass
class World:
    """The hub and everything that a test needs to use it as GitHub."""

    hub: LocalHub
    served: ServedHub
    app: RegisteredApp
    installation_id: int
    maintainer: str
    stranger: str
    root_sha: str
    ear: Ear

    def client(self, auth: Any) -> GitHub[Any]:
        return GitHub(
            auth,
            base_url=self.served.api_url,
            auto_retry=False,
            http_cache=False,
            cache_strategy=MemCacheStrategy(),
            timeout=60,
        )

    def as_app(self) -> GitHub[Any]:
        return self.client(AppAuthStrategy(self.app.id, self.app.private_key))

    def as_bot(self, **narrowed: Any) -> GitHub[Any]:
        return self.client(
            AppInstallationAuthStrategy(self.app.id, self.app.private_key, self.installation_id, **narrowed)
        )

    def as_user(self, token: str) -> GitHub[Any]:
        return self.client(TokenAuthStrategy(token))

    def as_maintainer(self) -> GitHub[Any]:
        return self.as_user(self.maintainer)

    def as_stranger(self) -> GitHub[Any]:
        return self.as_user(self.stranger)

    def as_nobody(self) -> GitHub[Any]:
        return self.client(UnauthAuthStrategy())

    def clone_url(self, token: str = "") -> str:
        credentials = f"x-access-token:{token}@" if token else ""
        return f"http://{credentials}127.0.0.1:{self.served.port}/{OWNER}/{REPO}.git"

    def bot_token(self, **narrowed: Any) -> str:
        app = self.as_app()
        reply = app.rest.apps.create_installation_access_token(self.installation_id, **narrowed)
        return reply.parsed_data.token


def write_source(folder: Path) -> Path:
    """The files of the repository's first commit."""
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "ops.py").write_text("def relu(x):\n    return x.clamp(min=0)\n")
    (folder / "README.md").write_text("# kernels\n\nFast ones.\n")
    (folder / "link").symlink_to("README.md")
    workflows = folder / ".github" / "workflows"
    workflows.mkdir(parents=True)
    (workflows / "verify.yml").write_text(
        "name: verify\n"
        "run-name: verify ${{ inputs.nonce }}\n"
        "on:\n"
        "  workflow_dispatch:\n"
        "    inputs:\n"
        "      nonce: {required: true}\n"
        "      sha: {default: main}\n"
        "jobs: {verify: {runs-on: [self-hosted, h100], steps: [{run: 'true'}]}}\n"
    )
    return folder


@contextmanager
def made_world(folder: Path, ear: Ear, **options: Any) -> Iterator[World]:
    """A hub in `folder` with a repository, a maintainer, a stranger, and the App installed."""
    source = write_source(folder / "source")
    hub = LocalHub(folder / "hub", **options)
    with hub.serve() as served:
        root_sha = hub.create_repository(OWNER, REPO, source)
        maintainer, stranger = hub.create_user("maintainer", "Mira Maintainer"), hub.create_user("stranger")
        hub.set_collaborator(f"{OWNER}/{REPO}", "maintainer", "write")
        app = hub.register_app("liger-bot", OWNER, ear.url, SECRET)
        installation_id = hub.install_app("liger-bot", OWNER, [REPO])
        yield World(hub, served, app, installation_id, maintainer, stranger, root_sha, ear)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A world of the test's own."""
    with listening() as ear, made_world(tmp_path, ear) as made:
        yield made


@pytest.fixture(scope="package")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A world that many tests use at once: a test looks only at what it made, and breaks nothing for the others."""
    with listening() as ear, made_world(tmp_path_factory.mktemp("shared"), ear, rate_limited=False) as made:
        yield made


def git(*arguments: str, cwd: Path | None = None) -> str:
    """What git prints; fails the test when git fails."""
    done = run_git(*arguments, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def run_git(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """git, without this machine's own settings and without asking for anything."""
    environment = {
        "PATH": os.environ["PATH"],
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "HOME": "/nonexistent",
    }
    return subprocess.run(
        ["git", *arguments], cwd=cwd, capture_output=True, text=True, timeout=60, env=environment, check=False
    )


def commit_file(folder: Path, path: str, text: str, message: str = "Change") -> str:
    """Commit one file in a clone; returns the sha."""
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_text(text)
    git("add", path, cwd=folder)
    git("-c", "user.name=bot", "-c", "user.email=bot@example.com", "commit", "-q", "-m", message, cwd=folder)
    return git("rev-parse", "HEAD", cwd=folder)


def branch_on(world: World, name: str, path: str, text: str) -> str:
    """A new branch off main with one more file, made through the API; returns its sha."""
    bot = world.as_bot()
    main = bot.rest.git.get_ref(OWNER, REPO, "heads/main").parsed_data.object_.sha
    bot.rest.git.create_ref(OWNER, REPO, ref=f"refs/heads/{name}", sha=main)
    encoded = base64.b64encode(text.encode()).decode()
    made = bot.rest.repos.create_or_update_file_contents(
        OWNER, REPO, path, message=f"Add {path}", content=encoded, branch=name
    )
    return made.parsed_data.commit.sha


@pytest.fixture(scope="package")
def numbers() -> Iterator[int]:
    """Numbers for names that must differ between tests of the shared world."""
    return itertools.count(1)
