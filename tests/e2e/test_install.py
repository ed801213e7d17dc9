"""From nothing to a service that GitHub reaches: setup in a browser, the App installed, the service started from the
files that setup wrote, and doctor content; then one thing after the other is broken, and doctor names it."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from rich.console import Console

from app.doctor import report
from app.localhub import LocalHub, ServedHub
from tests.service_process import ServiceProcess, free_port, wait_for

REPOSITORY = "acme/kernels"
RISKY = """\
name: gpu tests
on: [push, pull_request]
jobs:
  test:
    runs-on: [self-hosted, h100]
    steps: [{run: pytest}]
"""


def environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith("LIGER_BOT_")}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "app.cli", *arguments]


@pytest.fixture(scope="module")
def github(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalHub, ServedHub]]:
    folder = tmp_path_factory.mktemp("github")
    files = folder / "files"
    files.mkdir()
    (files / "README.md").write_text("# Kernels\n")
    hub = LocalHub(folder / "hub")
    with hub.serve() as served:
        hub.create_user("owner")
        hub.create_repository("acme", "kernels", files)
        yield hub, served


@contextmanager
def setup_running(served: ServedHub, into: Path, public_url: str, *more: str) -> Iterator[tuple[str, Any]]:
    """`liger-bot setup`, waiting for a browser; yields the address of its page."""
    into.mkdir(exist_ok=True)
    arguments = ["--github", served.url, "--public-url", public_url, "--org", "acme", "--no-browser", *more]
    process = subprocess.Popen(
        command("setup", *arguments), cwd=into, env=environment() | {"PYTHONPATH": str(Path.cwd())},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+", line)
        assert address is not None, line + process.stdout.read()
        yield address[0], process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(10)


class Form:
    """The one form of a page that holds a text, as a browser would send it."""

    def __init__(self, page: str, holds: str):
        forms = re.findall(r"<form[^>]*>.*?</form>", page, flags=re.DOTALL)
        form = next(one for one in forms if holds in one)
        action = re.search(r'action="([^"]+)"', form)
        assert action is not None
        self.action = unescape(action[1])
        self.fields = {
            name: unescape(value) for name, value in re.findall(r'name="([^"]+)"[^>]*?value="([^"]*)"', form)
        } | {
            name: unescape(value)
            for name, value in re.findall(r'name="([^"]+)" aria-label="name" value="([^"]*)"', form)
        }


def agree(served: ServedHub, page_url: str) -> tuple[httpx.Response, str]:
    """What a person does in the browser; returns the last page and where GitHub sent the browser."""
    with httpx.Client(base_url=served.url) as browser:
        home = Form(browser.get("/").text, 'action="/_viewer"')
        browser.post("/_viewer", data={**home.fields, "login": "owner"})
        start = httpx.get(page_url)
        form = Form(start.text, 'name="manifest"')
        assert "form-action " + served.url in start.headers["content-security-policy"]
        confirm = Form(browser.post(form.action, data=form.fields).text, 'name="manifest"')
        sent = browser.post(confirm.action, data=confirm.fields)
        assert sent.status_code == 302, sent.text
        back = sent.headers["location"]
    return httpx.get(back), back


def doctor(folder: Path, repository: str = "") -> tuple[int, dict[str, Any]]:
    """What doctor says in the service's folder of GitHub, without a process of its own for each question."""
    text = StringIO()
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("LIGER_BOT_")]:
            patch.delenv(name)
        patch.chdir(folder)
        asked = report(Console(file=text), repository=repository, as_json=True, github_only=True)
        code = asyncio.run(asked)
    return code, json.loads(text.getvalue())


def doctor_process(folder: Path, *more: str) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        command("doctor", "--json", *more), cwd=folder, env=environment() | {"PYTHONPATH": str(Path.cwd())},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def failures(found: dict[str, Any], outcome: str = "failed") -> dict[str, str]:
    return {
        one["name"]: f"{one['text']} → {one['fix']}" for one in found["findings"] if one["outcome"] == outcome
    }


def test_an_answer_that_is_not_ours_registers_nothing(github: tuple[LocalHub, ServedHub], tmp_path: Path):
    _, served = github
    with setup_running(served, tmp_path, "http://127.0.0.1:9", "--name", "other") as (page_url, process):
        assert httpx.get(page_url, headers={"Host": "evil.example"}).status_code == 400
        assert httpx.get(f"{page_url}/callback?code=abc&state=guess").status_code == 403
        form = Form(httpx.get(page_url).text, 'name="manifest"')
        state = urlsplit(form.action).query.removeprefix("state=")
        unknown = httpx.get(f"{page_url}/callback", params={"code": "a1", "state": state})
        assert unknown.status_code == 400
        assert "know this code" in unknown.text
        assert process.poll() is None
    assert list(tmp_path.rglob("*.pem")) == []
    assert not (tmp_path / ".env").exists()


def test_from_nothing_to_a_service_that_github_reaches(github: tuple[LocalHub, ServedHub], tmp_path: Path):
    hub, served = github
    port = free_port()
    folder = tmp_path / "bot"
    folder.mkdir()
    (folder / ".env").write_text("LIGER_BOT_MODEL=\nLIGER_BOT_APP_ID=1\n")
    with setup_running(served, folder, f"http://127.0.0.1:{port}", "--runner-status") as (page_url, process):
        last, back = agree(served, page_url)
        assert (last.status_code, "is registered" in last.text) == (200, True)
        said, _ = process.communicate(timeout=60)
        assert process.returncode == 0, said
    key = (folder / ".liger-bot/secrets/private-key.pem").read_text()
    secret = (folder / ".liger-bot/secrets/webhook-secret").read_text()
    settings = (folder / ".env").read_text()
    for path in (
        ".env",
        *(f".liger-bot/secrets/{name}" for name in ("private-key.pem", "webhook-secret", "client-secret")),
    ):
        assert (folder / path).stat().st_mode & 0o777 == 0o600, path
    for shown in (said, last.text, settings, back):
        assert "PRIVATE KEY-----" not in shown
        assert secret not in shown
    assert "LIGER_BOT_MODEL=\n" in settings
    assert settings.count("LIGER_BOT_APP_ID=") == 1
    assert key.startswith("-----BEGIN RSA PRIVATE KEY-----")
    # the code is spent, and a second setup here would lose the App
    assert (
        httpx.post(f"{served.api_url}app-manifests/{back.partition('code=')[2][:40]}/conversions").status_code
        == 404
    )
    again = subprocess.run(
        command("setup", "--github", served.url, "--public-url", f"http://127.0.0.1:{port}"), cwd=folder,
        env=environment() | {"PYTHONPATH": str(Path.cwd())}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (again.returncode, "--replace" in again.stderr) == (2, True)

    code, found = doctor(folder)
    assert code == 1
    assert "install it on a repository" in failures(found)["installations"]
    assert "see that `liger-bot serve` runs" in failures(found)["deliveries"]

    hub.install_app("liger-bot-acme", "acme", ["kernels"])
    hub.set_collaborator(REPOSITORY, "owner", "admin")
    service = ServiceProcess(
        environment()
        | {"LIGER_BOT_PORT": str(port), "LIGER_BOT_LOG_FORMAT": "json", "PYTHONPATH": str(Path.cwd())},
        port,
        folder / "service.log",
    )
    service.start()
    try:
        token = hub.create_user("owner")
        with httpx.Client(
            base_url=f"{served.api_url}repos/{REPOSITORY}/",
            headers={"Authorization": f"Bearer {token}"},
            timeout=60,
        ) as owner:
            number = owner.post("issues", json={"title": "A new op"}).json()["number"]
            owner.post(f"issues/{number}/comments", json={"body": "/liger help"}).raise_for_status()

            def answered() -> bool:
                bodies = [one["body"] for one in owner.get(f"issues/{number}/comments").json()]
                return any("one command a comment" in body for body in bodies)

            wait_for(answered, 20, "the bot answers `/liger help`")
            assert hub.deliveries_done()
            code, found = doctor_process(folder)
            assert (code, failures(found)) == (0, {}), failures(found)
            assert {"this machine", "the App", REPOSITORY} == {one["about"] for one in found["findings"]}
            assert (
                "everything runs on the service's machine"
                in failures(found, "remark")["verification workflow"]
            )
            break_one_after_the_other(hub, owner, folder)
    finally:
        service.stop()
    log = service.log.read_text()
    said_in_log = [json.loads(line) for line in log.splitlines()]
    assert said_in_log[-1]["message"].startswith("liger-bot is down"), log[-2000:]
    assert secret not in log
    assert "PRIVATE KEY" not in log


def break_one_after_the_other(hub: LocalHub, owner: httpx.Client, folder: Path) -> None:
    """Each fault is found, and what to do is said."""
    put(owner, ".github/workflows/gpu.yml", RISKY)
    put(owner, ".github/liger-bot.yml", "runners:\n  sm_90: [self-hosted, h100]\n  gfx942: [mi300]\n")
    hub.add_runner(REPOSITORY, "box", ["self-hosted", "h100"], status="offline")
    code, found = doctor(folder, REPOSITORY)
    wrong = failures(found)
    assert code == 1
    assert "job test runs on self-hosted, h100" in wrong["workflow at risk"]
    assert "`liger-bot workflow`" in wrong["verification workflow"]
    assert wrong["runner for sm_90"].startswith("box offline → start the runner")
    assert "carries the labels mi300" in failures(found, "remark")["runner for gfx942"]

    put(owner, ".github/liger-bot.yml", "runers: {}\n")
    assert (
        "line 1: unknown key `runers`, did you mean `runners`?"
        in failures(doctor(folder)[1])["configuration"]
    )

    (folder / ".liger-bot/secrets/private-key.pem").write_text("not a key")
    code, found = doctor(folder)
    assert code == 1
    assert "PEM text" in failures(found)["credentials"]


def put(owner: httpx.Client, path: str, text: str) -> None:
    known = owner.get(f"contents/{path}")
    body = {"message": "m", "content": base64.b64encode(text.encode()).decode()}
    body |= {"sha": known.json()["sha"]} if known.status_code == 200 else {}
    owner.put(f"contents/{path}", json=body).raise_for_status()
