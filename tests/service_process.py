"""The service as a process of its own beside a local GitHub: what end-to-end tests start, stop, kill and talk to."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from app.localhub import LocalHub, ServedHub

SECRET = "a secret for tests"
START_S = 120.0
SERVE = "from app.main import serve; from app.settings import Settings; serve(Settings())"
WORK = "import asyncio, sys; from app.worker import work; from app.settings import Settings; asyncio.run(work(Settings(), sys.argv[1]))"

PATIENCE_S = 120.0


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_for(what: Callable[[], Any], seconds: float, why: str) -> Any:
    """The first true answer; fails the test with `why` when there is none in time.

    It never gives up before PATIENCE_S: a step of seconds takes a minute on a machine that is busy.
    """
    seconds = max(seconds, PATIENCE_S)
    end = time.monotonic() + seconds
    while True:
        answer = what()
        if answer:
            return answer
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds:g} s: {why}")
        time.sleep(0.1)


@dataclass
class ServiceProcess:
    """The service, configured for one App of a local GitHub."""

    environment: dict[str, str]
    port: int
    log: Path
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def start(self) -> None:
        """Start it and wait until it answers."""
        self.launch()
        wait_for(self._answers, START_S, f"the service came up; its log: {self.log.read_text()[-2000:]}")

    def launch(self) -> None:
        """Start it; it answers some seconds later."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", SERVE],
                env=self.environment,
                stdout=log,
                stderr=log,
                cwd=self.log.parent,
            )

    def _answers(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError(f"the service ended: {self.log.read_text()[-3000:]}")
        return self.answers()

    def answers(self) -> bool:
        """Whether it is up."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2) as connection:
                connection.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
                return b" 200 " in connection.recv(64)
        except OSError:
            return False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        """End it politely."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a power cut would."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait(30)


@dataclass
class WorkerProcess:
    """A worker beside the service, sharing its database."""

    name: str
    environment: dict[str, str]
    log: Path
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def start(self) -> None:
        """Start it; it is at work some seconds later."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", WORK, self.name],
                env=self.environment,
                stdout=log,
                stderr=log,
                cwd=self.log.parent,
            )

    def wait(self) -> None:
        """Until it is at work."""

        def up() -> bool:
            assert self.process is not None
            if self.process.poll() is not None:
                raise AssertionError(f"the worker ended: {self.log.read_text()[-3000:]}")
            return f"worker {self.name} is up" in self.log.read_text()

        wait_for(up, START_S, f"{self.name} came up; its log: {self.log}")

    def kill(self) -> None:
        """End it as a power cut would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it politely."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait(30)


@dataclass
class Scene:
    """A local GitHub with a target repository, people, and the service."""

    hub: LocalHub
    served: ServedHub
    service: ServiceProcess
    repository: str
    installation_id: int
    tokens: dict[str, str]
    workers: list[WorkerProcess] = field(default_factory=list)
    # one for all calls: making one reads the machine's certificates, which takes longer than a call
    client: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=60, trust_env=False))

    def call(self, method: str, path: str, login: str = "maintainer", **arguments: Any) -> Any:
        """Ask the local GitHub's API about the target repository, as a person."""
        answer = self.client.request(
            method,
            f"{self.served.url}/api/v3/repos/{self.repository}{path}",
            headers={"Authorization": f"Bearer {self.tokens[login]}"},
            **arguments,
        )
        answer.raise_for_status()
        return answer.json() if answer.content else None

    def open_issue(self, title: str = "A new op") -> int:
        return self.call("POST", "/issues", json={"title": title})["number"]

    def comment(self, issue: int, body: str, login: str = "maintainer") -> int:
        return self.call("POST", f"/issues/{issue}/comments", login, json={"body": body})["id"]

    def react(self, comment_id: int, content: str = "+1", login: str = "maintainer") -> None:
        """A second later, as a person would: one in the second of the last edit is taken for one that was there before."""
        time.sleep(1.0)
        self.call("POST", f"/issues/comments/{comment_id}/reactions", login, json={"content": content})

    def comments(self, issue: int) -> list[dict[str, Any]]:
        return self.call("GET", f"/issues/{issue}/comments", params={"per_page": 100})

    def bot_comments(self, issue: int) -> list[dict[str, Any]]:
        return [one for one in self.comments(issue) if one["user"]["type"] == "Bot"]

    def wait_for_comment(self, issue: int, text: str, seconds: float = 120.0) -> dict[str, Any]:
        """The bot's first comment on an issue that holds a text."""

        def found() -> dict[str, Any] | None:
            return next((one for one in self.bot_comments(issue) if text in one["body"]), None)

        try:
            return wait_for(found, seconds, f"a comment with {text!r}")
        except AssertionError as error:
            bodies = "\n---\n".join(one["body"][:800] for one in self.bot_comments(issue))
            logs = "\n".join(
                f"{one.log.name}:\n{one.log.read_text()[-3000:]}" for one in (self.service, *self.workers)
            )
            raise AssertionError(f"{error}; comments:\n{bodies}\n{logs}") from None

    def wait_for_reaction(self, comment_id: int, content: str, seconds: float = 120.0) -> None:
        def found() -> bool:
            reactions = self.call("GET", f"/issues/comments/{comment_id}/reactions")
            return any(one["content"] == content and one["user"]["type"] == "Bot" for one in reactions)

        wait_for(found, seconds, f"{content} on comment {comment_id}")

    def check_runs(self, sha: str) -> dict[str, dict[str, Any]]:
        runs = self.call("GET", f"/commits/{sha}/check-runs")["check_runs"]
        return {run["name"]: run for run in runs}


@contextmanager
def scene(
    folder: Path, files: Path, repository: str = "linkedin/Liger-Kernel", workers: int = 0, **settings: str
) -> Iterator[Scene]:
    """A local GitHub whose target repository holds `files`, and the service, started. settings: more LIGER_BOT_* values.

    workers: how many processes beside the service run the stages; with them goes a DATABASE_URL of a Postgres.
    """
    owner, name = repository.split("/")
    hub = LocalHub(folder / "hub")
    port = free_port()
    with hub.serve() as served:
        tokens = {login: hub.create_user(login) for login in ("maintainer", "second", "stranger")}
        hub.create_repository(owner, name, files)
        for writer in ("maintainer", "second"):
            hub.set_collaborator(repository, writer, "write")
        app = hub.register_app("liger-bot", owner, f"http://127.0.0.1:{port}/webhook", SECRET)
        installation_id = hub.install_app("liger-bot", owner)
        values = {
            "WEBHOOK_SECRET": SECRET,
            "APP_ID": str(app.id),
            "PRIVATE_KEY": app.private_key,
            "GITHUB_URL": served.api_url,
            "GITHUB_WEB_URL": served.url,
            "DATA_DIR": str(folder / "data"),
            "PORT": str(port),
            "EXECUTOR_ID": "test",
            "POLL_SECONDS": "0.3",
            "STATUS_EDIT_SECONDS": "0.3",
            "ALLOW_UNCONFINED": "true",  # what is tested here is tested on machines without a sandbox too
            "COMPILE_SCHEDULES": "false",  # two cores have enough to do; one test asks for it
        }
        values |= ({"STAGES": "workers"} if workers else {}) | settings
        environment = {key: value for key, value in os.environ.items() if not key.startswith("LIGER_BOT_")}
        environment |= {f"LIGER_BOT_{key}": value for key, value in values.items()}
        service = ServiceProcess(environment, port, folder / "service.log")
        names = [f"worker-{number}" for number in range(1, workers + 1)]
        beside = [WorkerProcess(name, environment, folder / f"{name}.log") for name in names]
        try:
            for one in beside:
                one.start()
            service.start()
            for one in beside:
                one.wait()
            running = Scene(hub, served, service, repository, installation_id, tokens, beside)
            with running.client:
                yield running
        finally:
            service.stop()
            for one in beside:
                one.stop()
