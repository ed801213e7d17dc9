"""What the demo runs in: the local GitHub, the service and a target repository, as processes on this machine."""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import shutil
import socket
import sys
import tarfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
from rich.console import Console

from app.confinement import LIMITS_ALONE, MEND, confinement
from app.dispatch import die_with_parent

TARGET_PACKAGE, TARGET_VERSION = "liger-kernel", "0.7.0"
# The archive as published; anything else is refused before it is unpacked.
TARGET_SHA256 = "48c25648974c7d07d47591117b94188d1059999b7fb652e89e8ba50b21183cb3"
OWNER, REPOSITORY, MAINTAINER = "demo", "Liger-Kernel", "maintainer"
START_TIMEOUT_S = 60.0


class WorldError(Exception):
    """The demo's surroundings couldn't be set up; the message says what to do."""


class World:
    """Starts everything on entering and stops it on leaving. REST calls act as the maintainer."""

    def __init__(self, data: Path, console: Console, sdists: Path | None = None):
        self._data, self._console = data, console
        self._sdists = sdists or data.parent / "sdists"
        self.logs = data / "logs"
        self.maintainer = MAINTAINER
        self.hub_url = self.app_url = ""
        self._app_environment: dict[str, str] = {}
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._client = httpx.AsyncClient(timeout=30.0)

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _value: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self._stop()

    @property
    def repository_url(self) -> str:
        return f"{self.hub_url}/{OWNER}/{REPOSITORY}"

    async def get(self, path: str) -> Any:
        """GET below the target repository's API address."""
        return await self._call("GET", f"{self.hub_url}/api/v3/repos/{OWNER}/{REPOSITORY}{path}")

    async def post(self, path: str, body: dict[str, Any]) -> Any:
        """POST below the target repository's API address."""
        return await self._call("POST", f"{self.hub_url}/api/v3/repos/{OWNER}/{REPOSITORY}{path}", body)

    def check_alive(self) -> None:
        """Raises WorldError when a server has ended."""
        for name, process in self._processes.items():
            if process.returncode is not None:
                raise WorldError(
                    f"the {name} ended with code {process.returncode}: see {self.logs / name}.log"
                )

    def app_pid(self) -> int:
        """Process id of the service."""
        return self._processes["service"].pid

    async def restart_app(self) -> None:
        """Start the service again after it ended, as an operator would: same data, same settings."""
        await self._processes["service"].wait()
        await self._serve_app()

    # set-up

    async def _start(self) -> None:
        say = self._console.print
        if self._data.exists():
            await asyncio.to_thread(shutil.rmtree, self._data)
        self.logs.mkdir(parents=True)
        with self._console.status(f"fetching {TARGET_PACKAGE} {TARGET_VERSION}, the target repository"):
            archive = await self._fetch_target()
            directory = await asyncio.to_thread(self._unpack, archive)
        port = _free_port()
        with self._console.status("starting the local GitHub"):
            self.hub_url = f"http://127.0.0.1:{port}"
            await self._spawn(
                "github", ["-m", "app.localhub", "--data", str(self._data / "github"), "--port", str(port)]
            )
            await self._wait_for("github", f"{self.hub_url}/_hub/health")
            await self._populate(directory)
        if await confinement() == "limits":
            say(f"careful: {LIMITS_ALONE}. {MEND}", style="yellow", highlight=False)
            self._app_environment["LIGER_BOT_ALLOW_UNCONFINED"] = "true"
        with self._console.status("starting liger-bot"):
            await self._serve_app()
        say(
            f"1. Local GitHub at {self.hub_url}, liger-bot at {self.app_url}, target repository {self.repository_url} ({TARGET_PACKAGE} {TARGET_VERSION}: no ReLU² yet)",
            highlight=False,
        )

    async def _fetch_target(self) -> Path:
        archive = self._sdists / f"{TARGET_PACKAGE.replace('-', '_')}-{TARGET_VERSION}.tar.gz"
        if not archive.exists():
            self._sdists.mkdir(parents=True, exist_ok=True)
            command = [
                "-m",
                "pip",
                "download",
                "--quiet",
                "--disable-pip-version-check",
                "--no-deps",
                "--no-build-isolation",
                "--no-binary",
                ":all:",
            ]
            process = await asyncio.create_subprocess_exec(
                sys.executable, *command, "--dest", str(self._sdists), f"{TARGET_PACKAGE}=={TARGET_VERSION}",
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            )  # fmt: skip
            output, _ = await process.communicate()
            if process.returncode or not archive.exists():
                last = output.decode("utf-8", "replace").strip().splitlines()[-1:] or ["no output"]
                raise WorldError(
                    f"pip couldn't download {TARGET_PACKAGE} {TARGET_VERSION} ({last[0]}); check pip's index, then run it again"
                )
        digest = hashlib.sha256(await asyncio.to_thread(archive.read_bytes)).hexdigest()
        if digest != TARGET_SHA256:
            raise WorldError(
                f"{archive} is not the published archive (sha256 {digest}); delete it and run the demo again"
            )
        return archive

    def _unpack(self, archive: Path) -> Path:
        with tarfile.open(archive) as tar:
            tar.extractall(self._data / "target", filter="data")
        (directory,) = (self._data / "target").iterdir()
        return directory

    async def _populate(self, directory: Path) -> None:
        hub = f"{self.hub_url}/_hub"
        user = await self._call("POST", f"{hub}/users", {"login": MAINTAINER, "name": "A maintainer"})
        self._client.headers["Authorization"] = f"Bearer {user['token']}"
        await self._call(
            "POST",
            f"{hub}/repositories",
            {
                "owner": OWNER,
                "name": REPOSITORY,
                "directory": str(directory),
                "description": "Efficient Triton kernels for LLM training",
                "message": f"Import {TARGET_PACKAGE} {TARGET_VERSION}",
            },
        )
        await self._call(
            "POST",
            f"{hub}/collaborators",
            {"repository": f"{OWNER}/{REPOSITORY}", "login": MAINTAINER, "role": "write"},
        )
        port, secret = _free_port(), secrets.token_hex(32)
        self.app_url = f"http://127.0.0.1:{port}"
        registered = await self._call(
            "POST",
            f"{hub}/apps",
            {
                "slug": "liger-bot",
                "owner": OWNER,
                "webhook_url": f"{self.app_url}/webhook",
                "webhook_secret": secret,
            },
        )
        await self._call("POST", f"{hub}/installations", {"slug": "liger-bot", "account": OWNER})
        key = self._data / "app.pem"
        key.touch(mode=0o600)
        key.write_text(registered["private_key"], encoding="utf-8")
        secret_file = self._data / "webhook.secret"
        secret_file.touch(mode=0o600)
        secret_file.write_text(secret, encoding="utf-8")
        self._app_environment = {
            "LIGER_BOT_APP_ID": str(registered["id"]),
            "LIGER_BOT_PRIVATE_KEY_FILE": str(key),
            "LIGER_BOT_WEBHOOK_SECRET_FILE": str(secret_file),
            "LIGER_BOT_GITHUB_URL": f"{self.hub_url}/api/v3/",
            "LIGER_BOT_GITHUB_WEB_URL": self.hub_url,
            "LIGER_BOT_DATA_DIR": str(self._data / "service"),
            "LIGER_BOT_EXECUTOR_ID": "demo",
            "LIGER_BOT_WORKER_SLOTS": "2",
            "LIGER_BOT_PORT": str(port),
        }

    async def _serve_app(self) -> None:
        await self._spawn("service", ["-m", "app.cli", "serve"], self._app_environment)
        await self._wait_for("service", f"{self.app_url}/healthz")

    # processes

    async def _spawn(
        self, name: str, arguments: list[str], environment: dict[str, str] | None = None
    ) -> None:
        with (self.logs / f"{name}.log").open("ab") as log:
            self._processes[name] = await asyncio.create_subprocess_exec(
                sys.executable, *arguments, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, **(environment or {})}, start_new_session=True,
                preexec_fn=die_with_parent if sys.platform == "linux" else None,
            )  # fmt: skip

    async def _wait_for(self, name: str, url: str) -> None:
        begun = time.monotonic()
        while True:
            try:
                if (await self._client.get(url)).status_code == httpx.codes.OK:
                    return
            except httpx.TransportError:
                pass  # not listening yet
            self.check_alive()
            if time.monotonic() - begun > START_TIMEOUT_S:
                raise WorldError(
                    f"the {name} didn't answer within {START_TIMEOUT_S:.0f} s: see {self.logs / name}.log"
                )
            await asyncio.sleep(0.1)

    async def _stop(self) -> None:
        for process in self._processes.values():
            if process.returncode is None:
                process.terminate()
        for process in self._processes.values():
            try:
                await asyncio.wait_for(process.wait(), 10.0)
            except TimeoutError:
                process.kill()
                await process.wait()
        await self._client.aclose()

    async def _call(self, method: str, url: str, body: dict[str, Any] | None = None) -> Any:
        try:
            response = await self._client.request(method, url, json=body)
        except httpx.TransportError as error:
            self.check_alive()
            raise WorldError(f"{method} {url}: {error or type(error).__name__}") from error
        if response.is_error:
            raise WorldError(f"{method} {url} answered {response.status_code}: {response.text[:300]}")
        return response.json() if response.content else None


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
