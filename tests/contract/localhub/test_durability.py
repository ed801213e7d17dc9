"""The hub is killed with SIGKILL and started again on the same folder."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.contract.localhub.conftest import Ear, commit_file, git, listening, write_source


@contextmanager
def running(data: Path, port: int = 0) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    command = [sys.executable, "-m", "app.localhub", "--data", str(data), "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    try:
        yield line.rsplit(" ", 1)[1].strip(), process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdout.close()


def post(url: str, path: str, body: object, token: str = "") -> dict[str, object]:
    reply = httpx.post(
        f"{url}{path}", json=body, headers={"Authorization": f"Bearer {token}"} if token else {}, timeout=10
    )
    assert reply.status_code < 300, reply.text
    return reply.json() if reply.content else {}


def prepare(url: str, source: Path, ear: Ear) -> str:
    token = str(post(url, "/_hub/users", {"login": "maintainer"})["token"])
    post(url, "/_hub/repositories", {"owner": "acme", "name": "kernels", "directory": str(source)})
    post(url, "/_hub/collaborators", {"repository": "acme/kernels", "login": "maintainer", "role": "write"})
    post(
        url,
        "/_hub/apps",
        {"slug": "liger-bot", "owner": "acme", "webhook_url": ear.url, "webhook_secret": "s"},
    )
    post(url, "/_hub/installations", {"slug": "liger-bot", "account": "acme"})
    return token


def test_state_tokens_and_waiting_webhooks_survive_a_kill(tmp_path: Path) -> None:
    source = write_source(tmp_path / "source")
    with listening() as ear:
        with running(tmp_path / "hub") as (url, process):
            token = prepare(url, source, ear)
            post(url, "/_hub/faults/deliveries", {"kind": "delay", "events": ["issues"], "seconds": 0.8})
            post(url, "/repos/acme/kernels/issues", {"title": "before the kill"}, token)
            ear.wait_for("installation", "created")
            time.sleep(0.2)
            process.send_signal(signal.SIGKILL)
            process.wait()
        assert ear.of("issues") == []
        with running(tmp_path / "hub") as (url, process):
            ear.wait_for("issues", "opened", seconds=8)
            listed = httpx.get(
                f"{url}/repos/acme/kernels/issues", headers={"Authorization": f"Bearer {token}"}
            ).json()
            assert [item["title"] for item in listed] == ["before the kill"]
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=60) == 0
        assert len(ear.of("issues", "opened")) == 1


def test_push_cut_off_by_a_kill_is_told_of_at_the_next_start(tmp_path: Path) -> None:
    source = write_source(tmp_path / "source")
    with listening() as ear:
        with running(tmp_path / "hub") as (url, process):
            token = prepare(url, source, ear)
            clone = tmp_path / "clone"
            git("clone", "-q", f"{url.replace('http://', f'http://x:{token}@')}/acme/kernels.git", str(clone))
            commit_file(clone, "src/a.py", "a = 1\n")
            git("push", "-q", "origin", "HEAD:refs/heads/topic", cwd=clone)
            post(url, "/repos/acme/kernels/pulls", {"title": "t", "head": "topic", "base": "main"}, token)
            ear.wait_for("pull_request", "opened")
            process.kill()
            process.wait()
        second = commit_file(clone, "src/a.py", "a = 2\n")
        bare = next((tmp_path / "hub" / "git").iterdir())
        git(
            "push", "-q", str(bare), "HEAD:refs/heads/topic", cwd=clone
        )  # as if the hub had died after git took it
        with running(tmp_path / "hub"):
            assert ear.wait_for("pull_request", "synchronize")[0].body["after"] == second


def test_port_in_use_is_said_in_one_line(tmp_path: Path) -> None:
    with running(tmp_path / "one") as (url, _):
        port = url.rsplit(":", 1)[1]
        command = [sys.executable, "-m", "app.localhub", "--data", str(tmp_path / "two"), "--port", port]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        1,
        f"port {port} is in use; choose another with --port",
    )
