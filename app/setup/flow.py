"""Registers the App: serves the page, waits for the browser to come back, exchanges the code, writes the files."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import socket
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import uvicorn
from rich.console import Console

from app.github import GitHubError, NotFoundError
from app.github.manifest import RegisteredApp, convert_manifest
from app.settings import LOOPBACK_HOSTS
from app.setup.files import require_room, write_app
from app.setup.manifest import MAX_NAME_CHARS, api_url, manifest
from app.setup.server import CALLBACK, setup_pages
from app.usage import EXIT_FAILED, UsageMistake

log = logging.getLogger(__name__)

HOUR_S = 3600.0  # for so long does GitHub keep a manifest
_URL = re.compile(r"https?://[^\s/?#]+[^\s?#]*")
_ORG = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,38})")


@dataclass(frozen=True)
class Wanted:
    """What a person asked to be set up."""

    name: str
    web_url: str  # of GitHub
    public_url: str  # of the service
    org: str = ""
    into: Path = Path()
    api_version: str = "2026-03-10"
    port: int = 0
    replace: bool = False
    teams: bool = False
    runner_status: bool = False
    open_browser: bool = True


def check_wanted(wanted: Wanted) -> None:
    """Raises UsageMistake for what can't work, before anything is registered."""
    for option, url in (("--github", wanted.web_url), ("--public-url", wanted.public_url)):
        if not url and option == "--public-url":
            raise UsageMistake("say where GitHub reaches the service: --public-url https://bot.example.org")
        if not _URL.fullmatch(url):
            raise UsageMistake(f"{option} must be an address such as https://bot.example.org, not {url!r}")
    local = urlsplit(wanted.web_url).hostname in LOOPBACK_HOSTS
    if urlsplit(wanted.public_url).hostname in LOOPBACK_HOSTS and not local:
        raise UsageMistake(
            "--public-url must be an address that GitHub can reach; it refuses to deliver to this machine's own name"
        )
    if wanted.org and not _ORG.fullmatch(wanted.org):
        raise UsageMistake(f"--org must be the name of an organisation, not {wanted.org!r}")
    if not 0 < len(wanted.name) <= MAX_NAME_CHARS:
        raise UsageMistake(
            f"--name must have at most {MAX_NAME_CHARS} characters; it is unique on all of GitHub"
        )


async def run_setup(wanted: Wanted, console: Console, *, wait_s: float = HOUR_S) -> int:
    """Set the App up; returns the exit code. Raises UsageMistake."""
    check_wanted(wanted)
    require_room(wanted.into, replace=wanted.replace)
    registered: asyncio.Future[RegisteredApp] = asyncio.get_running_loop().create_future()

    async def on_code(code: str) -> tuple[int, str]:
        try:
            app = await convert_manifest(api_url(wanted.web_url), wanted.api_version, code)
        except NotFoundError:
            return 400, "GitHub doesn't know this code; it lives an hour. Start again from the setup page."
        except GitHubError as error:
            log.warning("the App isn't registered: %s", error)
            return 502, f"GitHub didn't register the App: {error}"
        try:
            write_app(wanted.into, app, _others(wanted))
        except OSError as error:
            why = f"the App {app.slug} is registered, but its secrets can't be written ({error.strerror}): delete it at {app.url} and start again"
            registered.set_exception(UsageMistake(why))
            return 500, why
        if not registered.done():
            registered.set_result(app)
        return 200, f"The App {app.slug} is registered. Go back to the terminal for what is next."

    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", wanted.port))
        except OSError as error:
            raise UsageMistake(f"port {wanted.port} can't be used: {error.strerror}") from None
        here = f"http://127.0.0.1:{listener.getsockname()[1]}"
        asked = manifest(
            wanted.name,
            wanted.public_url,
            here + CALLBACK,
            teams=wanted.teams,
            runner_status=wanted.runner_status,
        )
        pages = setup_pages(asked, wanted.web_url, wanted.org, secrets.token_urlsafe(32), on_code)
        server = uvicorn.Server(uvicorn.Config(pages, log_level="warning", lifespan="off", access_log=False))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        console.print(
            f"Open {here} in a browser on this machine and press the button.", highlight=False, soft_wrap=True
        )
        if wanted.open_browser:
            await asyncio.to_thread(webbrowser.open, here)
        try:
            done, _ = await asyncio.wait(
                {registered, serving}, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            server.should_exit = True
            await serving
    if registered not in done:
        console.print("Nothing came back from GitHub; nothing was written.", style="red")
        return EXIT_FAILED
    _say_next(console, wanted, registered.result())
    return 0


def _others(wanted: Wanted) -> dict[str, str]:
    return {
        "LIGER_BOT_GITHUB_URL": api_url(wanted.web_url),
        "LIGER_BOT_GITHUB_WEB_URL": wanted.web_url.rstrip("/"),
        "LIGER_BOT_GITHUB_API_VERSION": wanted.api_version,
        "LIGER_BOT_PUBLIC_URL": wanted.public_url.rstrip("/"),
    }


def _say_next(console: Console, wanted: Wanted, app: RegisteredApp) -> None:
    lines = [
        f"The App {app.slug} is registered; its secrets are in {wanted.into / '.liger-bot' / 'secrets'}, its settings in {wanted.into / '.env'}.",
        "Next:",
        f"  1. install it on a repository: {app.url}/installations/new",
        "  2. start the service here: liger-bot serve",
        "  3. see that all is well: liger-bot doctor",
    ]
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True, markup=False)
