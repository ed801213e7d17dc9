"""Clients that nobody here wrote, untouched: octokit and Probot from npm, PyGithub, and gh from Debian."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import github
import pytest

from tests.contract.localhub.conftest import OWNER, REPO, SECRET, World, branch_on, git
from tests.npm import npm_packages
from tests.service_process import free_port, wait_for

SCRIPTS = Path(__file__).with_name("foreign")
FULL_NAME = f"{OWNER}/{REPO}"


@pytest.fixture(scope="module")
def npm_folder() -> Path:
    return npm_packages("clients", "octokit@5.0.5", "probot@14.3.2")


def placed(script: str, folder: Path) -> Path:
    """The script beside its packages: node looks for them from where the script lies."""
    return Path(shutil.copyfile(SCRIPTS / script, folder / script))


def test_octokit_does_a_bots_work(world: World, npm_folder: Path) -> None:
    given = {
        "url": world.served.url,
        "appId": world.app.id,
        "installationId": world.installation_id,
        "privateKey": world.app.private_key,
        "userToken": world.maintainer,
        "owner": OWNER,
        "repo": REPO,
    }
    done = subprocess.run(
        ["node", str(placed("octokit_drive.mjs", npm_folder)), json.dumps(given)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "slug": "liger-bot",
        "repositories": [FULL_NAME],
        "reactions": [{"content": "THUMBS_UP", "user": {"login": "maintainer"}}],
        "check": "success",
        "files": ["src/octokit.py"],
        "refused": 403,
    }


@contextmanager
def probot(world: World, folder: Path, log: Path) -> Iterator[None]:
    """A bot by Probot, registered as an App of its own, which hears the hub's webhooks and acts through the hub."""
    port = free_port()
    app = world.hub.register_app("probot-bot", OWNER, f"http://127.0.0.1:{port}/api/github/webhooks", SECRET)
    world.hub.install_app("probot-bot", OWNER, [REPO])
    environment = {
        "PATH": os.environ["PATH"], "APP_ID": str(app.id), "PRIVATE_KEY": app.private_key, "WEBHOOK_SECRET": SECRET,
        "GHE_HOST": f"127.0.0.1:{world.served.port}", "GHE_PROTOCOL": "http", "PORT": str(port), "HOST": "127.0.0.1",
        "NODE_ENV": "production", "LOG_FORMAT": "json",
    }  # fmt: skip
    with log.open("wb") as written:
        process = subprocess.Popen(
            ["node", str(placed("probot_bot.mjs", folder))], env=environment, cwd=folder, stdout=written, stderr=written
        )  # fmt: skip
    try:
        wait_for(lambda: answers(port) or process.poll() is not None, 30, "Probot came up")
        assert process.poll() is None, log.read_text()[-2000:]
        yield
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(10)


def answers(port: int) -> bool:
    """Whether something listens there."""
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


def test_probot_hears_and_answers(world: World, npm_folder: Path, tmp_path: Path) -> None:
    person = world.as_maintainer()
    maintainer = person.rest
    log = tmp_path / "probot.log"
    with probot(world, npm_folder, log):
        number = maintainer.issues.create(OWNER, REPO, title="for Probot").parsed_data.number
        asked = maintainer.issues.create_comment(OWNER, REPO, number, body="/probot hello").parsed_data

        def comments() -> list[tuple[str | None, str | None]]:
            found = maintainer.issues.list_comments(OWNER, REPO, number).parsed_data
            return [(one.user.login if one.user else None, one.body or None) for one in found[1:]]

        wait_for(comments, 20, f"Probot answered; its log: {log.read_text()[-3000:]}")
        assert comments() == [("probot-bot[bot]", "none from issue_comment: write")]
        reactions = maintainer.reactions.list_for_issue_comment(OWNER, REPO, asked.id).parsed_data
        assert [one.content for one in reactions] == ["eyes"]
        check = maintainer.checks.list_for_ref(OWNER, REPO, "main").parsed_data.check_runs[0]
        assert (check.name, check.conclusion) == ("probot", "failure")
        maintainer.checks.rerequest_run(OWNER, REPO, check.id)
        wait_for(
            lambda: maintainer.checks.get(OWNER, REPO, check.id).parsed_data.conclusion == "success",
            20,
            "Probot heard of it",
        )


def test_pygithub_does_a_bots_work(world: World) -> None:
    auth = github.Auth.AppAuth(world.app.id, world.app.private_key)
    integration = github.GithubIntegration(auth=auth, base_url=world.served.api_url)
    assert integration.get_app().slug == "liger-bot"
    bot = integration.get_github_for_installation(world.installation_id)
    person = github.Github(auth=github.Auth.Token(world.maintainer), base_url=world.served.api_url)
    here, there = bot.get_repo(FULL_NAME), person.get_repo(FULL_NAME)

    issue = there.create_issue("by PyGithub", labels=["bug"])
    comment = here.get_issue(issue.number).create_comment("profile")
    there.get_issue(issue.number).get_comment(comment.id).create_reaction("+1")
    assert [(one.content, one.user.login) for one in comment.get_reactions()] == [("+1", "maintainer")]
    assert here.get_collaborator_permission("maintainer") == "write"

    ref = here.create_git_ref("refs/heads/liger-bot/pygithub", here.get_branch("main").commit.sha)
    here.create_file("src/pygithub.py", "m", "p = 1\n", branch="liger-bot/pygithub")
    assert here.get_contents("src/pygithub.py", ref=ref.ref).decoded_content == b"p = 1\n"  # type: ignore[union-attr]
    pull = here.create_pull("main", "liger-bot/pygithub", title="t", body="b", draft=True)
    assert (pull.draft, [file.filename for file in pull.get_files()]) == (True, ["src/pygithub.py"])
    run = here.create_check_run("c", pull.head.sha, status="in_progress")
    run.edit(conclusion="success", output={"title": "t", "summary": "s"})
    found = here.get_commit(pull.head.sha).get_check_runs()
    assert [(one.name, one.conclusion) for one in found] == [("c", "success")]
    workflow = here.get_workflow("verify.yml")
    assert workflow.create_dispatch("main", {"nonce": "n"})
    assert [one.display_title for one in workflow.get_runs()] == ["verify n"]
    assert bot.get_rate_limit().rate.limit == 5000
    with pytest.raises(github.UnknownObjectException):
        here.get_issue(9999)
    assert [one.title for one in there.get_issues(state="open")] == ["t", "by PyGithub"]


@contextmanager
def unix_socket(folder: Path, port: int) -> Iterator[Path]:
    """A Unix socket that leads to the port: gh speaks plain HTTP to the host github.localhost, but only on port 80."""
    path = folder / "hub.sock"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def copy(source: socket.socket, target: socket.socket) -> None:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)

    def accept() -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return  # closed
            far = socket.create_connection(("127.0.0.1", port))
            for pair in ((near, far), (far, near)):
                threading.Thread(target=copy, args=pair, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield path
    listener.close()


def test_gh_does_a_maintainers_work(world: World, tmp_path: Path) -> None:
    gh = shutil.which("gh")
    if gh is None:
        pytest.skip("gh is not installed")
    branch_on(world, "liger-bot/gh", "src/gh.py", "g = 1\n")
    with unix_socket(tmp_path, world.served.port) as path:
        environment = {
            "PATH": os.environ["PATH"], "GH_HOST": "github.localhost", "GH_TOKEN": world.maintainer, "GH_REPO": f"github.localhost/{FULL_NAME}",
            "GH_CONFIG_DIR": str(tmp_path / "gh"), "GH_PROMPT_DISABLED": "1", "NO_COLOR": "1", "HOME": str(tmp_path),
        }  # fmt: skip
        (tmp_path / "gh").mkdir()
        (tmp_path / "gh" / "config.yml").write_text(f"http_unix_socket: {path}\n")

        def run(*arguments: str) -> str:
            done = subprocess.run([gh, *arguments], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)  # fmt: skip
            assert done.returncode == 0, (arguments, done.stdout, done.stderr)
            return done.stdout.strip()

        assert json.loads(run("api", f"repos/{FULL_NAME}"))["full_name"] == FULL_NAME
        made = run("api", f"repos/{FULL_NAME}/issues", "-f", "title=by gh", "--jq", ".number")
        run("api", f"repos/{FULL_NAME}/issues/{made}/comments", "-f", "body=/liger dev relu2")
        query = "query($id: ID!) { node(id: $id) { ... on IssueComment { body } } }"
        comments = json.loads(run("api", f"repos/{FULL_NAME}/issues/{made}/comments", "--paginate"))
        answer = json.loads(
            run("api", "graphql", "-f", f"query={query}", "-f", f"id={comments[0]['node_id']}")
        )
        assert answer == {"data": {"node": {"body": "/liger dev relu2"}}}
        run("workflow", "run", "verify.yml", "-f", "nonce=by-gh")
        assert json.loads(run("run", "list", "--json", "status", "--limit", "5"))[0]["status"] == "queued"
        assert "verify" in run("workflow", "list")
        pull = json.loads(
            run(
                "api",
                f"repos/{FULL_NAME}/pulls",
                "-f",
                "title=t",
                "-f",
                "head=liger-bot/gh",
                "-f",
                "base=main",
                "-F",
                "draft=true",
            )
        )
        listed = json.loads(run("pr", "list", "--json", "number,title,isDraft,headRefName"))
        assert listed == [
            {"number": pull["number"], "title": "t", "isDraft": True, "headRefName": "liger-bot/gh"}
        ]
        run("pr", "ready", str(pull["number"]))
        assert json.loads(run("pr", "view", str(pull["number"]), "--json", "isDraft,state")) == {
            "isDraft": False,
            "state": "OPEN",
        }
        assert git("ls-remote", world.clone_url(world.maintainer), "refs/heads/liger-bot/gh")
