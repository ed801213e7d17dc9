"""git itself against the hub: clone, fetch, push, and what a push is refused for."""

from pathlib import Path

import pytest

from tests.contract.localhub.conftest import OWNER, REPO, World, branch_on, commit_file, git, run_git


@pytest.fixture
def clone(world: World, tmp_path: Path) -> Path:
    folder = tmp_path / "clone"
    git("clone", "-q", world.clone_url(world.bot_token()), str(folder))
    return folder


def push(folder: Path, branch: str, *flags: str, url: str = "origin") -> tuple[int, str]:
    done = run_git("push", *flags, url, f"HEAD:refs/heads/{branch}", cwd=folder)
    return done.returncode, done.stderr


def test_public_repository_is_cloned_by_anyone_with_links_and_modes(shared: World, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    git("clone", "-q", shared.clone_url(), str(folder))
    assert git("rev-parse", "HEAD", cwd=folder) == shared.root_sha
    assert (folder / "link").is_symlink()
    git("clone", "-q", shared.clone_url().removesuffix(".git"), str(tmp_path / "d"))


def test_private_repository_asks_for_credentials(world: World, tmp_path: Path) -> None:
    world.hub.create_repository(OWNER, "secret", private=True)
    url = world.clone_url().replace(REPO, "secret")
    assert "could not read Username" in run_git("clone", "-q", url, str(tmp_path / "a")).stderr
    with_stranger = url.replace("http://", f"http://x:{world.stranger}@")
    assert "not found" in run_git("clone", "-q", with_stranger, str(tmp_path / "b")).stderr


def test_one_commit_is_fetched_by_its_sha(shared: World, tmp_path: Path) -> None:
    sha = branch_on(shared, "liger-bot/by-sha", "src/by_sha.py", "s = 1\n")
    folder = tmp_path / "f"
    git("init", "-q", str(folder))
    git("fetch", "-q", "--depth", "1", "--filter=blob:none", shared.clone_url(), sha, cwd=folder)
    assert git("rev-parse", "FETCH_HEAD", cwd=folder) == sha


def test_push_by_the_bot_tells_apps_and_moves_its_pull_request(world: World, clone: Path) -> None:
    first = commit_file(clone, "src/a.py", "a = 1\n")
    assert push(clone, "liger-bot/a")[0] == 0
    bot = world.as_bot()
    pull = bot.rest.pulls.create(OWNER, REPO, title="t", head="liger-bot/a", base="main").parsed_data
    second = commit_file(clone, "src/a.py", "a = 2\n")
    assert push(clone, "liger-bot/a")[0] == 0
    event = world.ear.wait_for("pull_request", "synchronize")[0].body
    assert (event["before"], event["after"], event["pull_request"]["head"]["sha"]) == (first, second, second)
    assert bot.rest.pulls.get(OWNER, REPO, pull.number).parsed_data.commits == 2
    world.hub.deliveries_done()
    assert [item.body["check_suite"]["head_sha"] for item in world.ear.of("check_suite", "requested")] == [
        first,
        second,
    ]
    fetched = git("ls-remote", world.clone_url(), f"refs/pull/{pull.number}/head", cwd=clone)
    assert fetched.startswith(second)


def test_push_again_of_the_same_commit_tells_nothing(world: World, clone: Path) -> None:
    commit_file(clone, "src/a.py", "a = 1\n")
    push(clone, "liger-bot/a")
    world.hub.deliveries_done()
    heard = len(world.ear.of("push"))
    assert push(clone, "liger-bot/a")[0] == 0
    world.hub.deliveries_done()
    assert len(world.ear.of("push")) == heard == 1


def test_force_push_says_so(world: World, clone: Path) -> None:
    commit_file(clone, "src/a.py", "a = 1\n")
    push(clone, "liger-bot/a")
    git("reset", "-q", "--hard", "HEAD~1", cwd=clone)
    commit_file(clone, "src/a.py", "a = 2\n")
    assert push(clone, "liger-bot/a")[0] != 0
    assert push(clone, "liger-bot/a", "--force")[0] == 0
    assert [item.body["forced"] for item in world.ear.wait_for("push", count=2)] == [False, True]


def test_app_may_not_touch_workflow_files_and_nothing_moves(world: World, clone: Path) -> None:
    commit_file(clone, ".github/workflows/evil.yml", "on: push\n")
    code, said = push(clone, "liger-bot/w")
    assert code != 0
    assert (
        "refusing to allow a GitHub App to create or update workflow `.github/workflows/evil.yml` without `workflows` permission"
        in said
    )
    assert git("ls-remote", world.clone_url(), "refs/heads/liger-bot/w", cwd=clone) == ""
    assert push(clone, "people", url=world.clone_url(world.maintainer))[0] == 0, "a person may"


def test_branch_that_has_the_default_branchs_workflows_is_welcome(world: World, clone: Path) -> None:
    commit_file(clone, "src/z.py", "z = 1\n")
    assert push(clone, "liger-bot/z")[0] == 0


@pytest.mark.parametrize(
    ("who", "message"),
    [
        ("nobody", "could not read Username"),
        ("stranger", "denied"),
        ("reader", "denied"),
        ("forged", "Authentication failed"),
    ],
)
def test_push_needs_write_access(world: World, clone: Path, who: str, message: str) -> None:
    commit_file(clone, "src/a.py", "a = 1\n")
    token = {
        "nobody": "",
        "stranger": world.stranger,
        "reader": world.bot_token(permissions={"contents": "read"}),
        "forged": "ghs_1_forged",
    }[who]
    code, said = push(clone, "liger-bot/a", url=world.clone_url(token))
    assert code != 0
    assert message in said


def test_hidden_and_odd_refs_are_refused(world: World, clone: Path) -> None:
    commit_file(clone, "src/a.py", "a = 1\n")
    for ref, message in (("refs/pull/1/head", "deny updating a hidden ref"), ("refs/odd/x", "funny ref")):
        done = run_git("push", "origin", f"HEAD:{ref}", cwd=clone)
        assert done.returncode != 0
        assert message in done.stderr


def test_deleting_the_branch_closes_its_pull_request(world: World, clone: Path) -> None:
    commit_file(clone, "src/a.py", "a = 1\n")
    push(clone, "liger-bot/a")
    bot = world.as_bot()
    pull = bot.rest.pulls.create(OWNER, REPO, title="t", head="liger-bot/a", base="main").parsed_data
    git("push", "-q", "origin", ":liger-bot/a", cwd=clone)
    assert bot.rest.pulls.get(OWNER, REPO, pull.number).parsed_data.state == "closed"


def test_large_push_arrives_whole(world: World, clone: Path) -> None:
    text = "\n".join(f"value_{index} = {index * 7919 % 65_537}" for index in range(200_000))
    sha = commit_file(clone, "src/large.py", text)
    assert push(clone, "liger-bot/large")[0] == 0
    bot = world.as_bot()
    raw = bot.request(
        "GET",
        f"/repos/{OWNER}/{REPO}/contents/src/large.py?ref={sha}",
        headers={"Accept": "application/vnd.github.raw+json"},
    )
    assert raw.content == text.encode()


def test_clone_url_in_the_api_is_the_one_that_works(shared: World, tmp_path: Path) -> None:
    nobody = shared.as_nobody()
    url = nobody.rest.repos.get(OWNER, REPO).parsed_data.clone_url
    git("clone", "-q", url, str(tmp_path / "x"))
