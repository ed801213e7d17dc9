"""app.repository against the local GitHub, over git's smart HTTP."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from git import Repo

from app.checkout import CheckoutTree
from app.github import GitHubRepository
from app.policy import ForbiddenWriteError
from app.repository import BranchMovedError, Identity, RepositoryError, TargetRepository
from tests.contract.app.conftest import FULL_NAME, Place

BOT = Identity("liger-bot[bot]", "1+liger-bot[bot]@users.noreply.github.com")
AT = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
BRANCH = "liger-bot/relu-squared-abc"


@pytest.fixture
def target(place: Place, tmp_path: Path) -> TargetRepository:
    return TargetRepository(tmp_path / "data", FULL_NAME, f"{place.served.url}/{FULL_NAME}.git")


async def fetched(target: TargetRepository, repository: GitHubRepository) -> str:
    return target.fetch_branch(await repository.token(contents="read"), "main")


async def test_a_checkout_holds_plain_files_only(target: TargetRepository, repository: GitHubRepository):
    sha = await fetched(target, repository)
    assert sha == (await repository.default_branch()).sha
    root = target.checkout(sha)
    assert (root / "src" / "ops.py").read_text() == "one = 1\n"
    assert not (root / ".git").exists()
    assert not (root / "link").is_symlink()
    assert target.links(sha) == ["link"]
    assert target.checkout(sha) == root


async def test_the_same_files_are_the_same_commit(target: TargetRepository, repository: GitHubRepository):
    base = await fetched(target, repository)
    files = {"src/ops.py": "one = 2\n", "src/new.py": "two = 2\n"}
    first = target.commit(base, files, listed=list(files), message="Add two", author=BOT, at=AT)
    assert (
        target.commit(base, files, listed=list(files), message="Add two", author=BOT, at=AT) == first != base
    )
    assert target.commit(first, files, listed=list(files), message="Nothing new", author=BOT, at=AT) == first
    assert CheckoutTree(target.checkout(first)).read("src/new.py") == "two = 2\n"


async def test_a_pushed_branch_is_there_and_pushing_again_is_nothing(
    target: TargetRepository, repository: GitHubRepository
):
    base = await fetched(target, repository)
    sha = target.commit(
        base, {"src/new.py": "two = 2\n"}, listed=["src/new.py"], message="Add two", author=BOT, at=AT
    )
    token = await repository.token(contents="write")
    target.push(sha, BRANCH, token)
    target.push(sha, BRANCH, token)
    assert (await repository.branch(BRANCH)).sha == sha
    pull = await repository.create_draft_pull(BRANCH, "main", "Add two", "body")
    assert pull.draft
    assert await repository.create_draft_pull(BRANCH, "main", "Add two", "body") == pull


async def test_someone_elses_commits_on_the_branch_are_not_overwritten(
    target: TargetRepository, repository: GitHubRepository
):
    base = await fetched(target, repository)
    token = await repository.token(contents="write")
    target.push(
        target.commit(base, {"a.py": "1\n"}, listed=["a.py"], message="theirs", author=BOT, at=AT),
        BRANCH,
        token,
    )
    ours = target.commit(base, {"b.py": "1\n"}, listed=["b.py"], message="ours", author=BOT, at=AT)
    with pytest.raises(BranchMovedError):
        target.push(ours, BRANCH, token)


async def test_no_other_branch_and_no_other_path_is_written(
    target: TargetRepository, repository: GitHubRepository
):
    base = await fetched(target, repository)
    with pytest.raises(ForbiddenWriteError):
        target.push(base, "main", "token")
    with pytest.raises(ForbiddenWriteError):
        target.commit(base, {"link": "x"}, listed=["link"], message="m", author=BOT, at=AT)
    with pytest.raises(ForbiddenWriteError):
        target.commit(base, {"conftest.py": "x"}, listed=["conftest.py"], message="m", author=BOT, at=AT)


async def test_a_token_leaves_no_trace_on_disk(
    target: TargetRepository, repository: GitHubRepository, tmp_path: Path
):
    token = await repository.token(contents="read")
    target.fetch_branch(token, "main")
    files = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert files
    assert [path for path in files if token.encode() in path.read_bytes()] == []


async def test_a_refused_push_says_so_without_the_token(
    target: TargetRepository, repository: GitHubRepository
):
    base = await fetched(target, repository)
    sha = target.commit(base, {"a.py": "1\n"}, listed=["a.py"], message="m", author=BOT, at=AT)
    token = await repository.token(contents="read")
    with pytest.raises(RepositoryError) as caught:
        target.push(sha, BRANCH, token)
    assert token not in str(caught.value)


def test_a_clone_that_lacks_objects_is_answered_in_one_line(tmp_path: Path):
    source = tmp_path / "source"
    made = Repo.init(source, initial_branch="main")
    (source / "large.txt").write_text("large\n")
    made.index.add(["large.txt"])
    made.index.commit("One file")
    blob = made.head.commit.tree["large.txt"].hexsha
    (source / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises(
        RepositoryError, match="lacks objects, as a partial or damaged clone does; clone it whole"
    ) as raised:
        TargetRepository(tmp_path / "data", "source", str(source)).fetch_head()
    assert "\n" not in str(raised.value)
