"""app.github against the local GitHub, over HTTP."""

from __future__ import annotations

import httpx
import pytest

from app.github import (
    Annotation,
    Check,
    ForbiddenError,
    GitHubApp,
    GitHubRepository,
    NotFoundError,
    RejectedError,
    UnreachableError,
    redact,
)
from tests.contract.app.conftest import FULL_NAME, Place


async def test_the_app_knows_who_it_is(github: GitHubApp, place: Place):
    identity = await github.identity()
    assert (identity.app_id, identity.slug, identity.login) == (place.app.id, "liger-bot", "liger-bot[bot]")


@pytest.mark.parametrize(
    ("login", "permission"), [("maintainer", "write"), ("reader", "read"), ("nobody-at-all", "none")]
)
async def test_permissions_are_read(repository: GitHubRepository, login: str, permission: str):
    assert await repository.permission(login) == permission


async def test_a_stranger_may_at_most_read(repository: GitHubRepository):
    assert await repository.permission("stranger") in {"read", "none"}


async def test_a_comment_is_found_by_its_marker_and_edited(repository: GitHubRepository, place: Place):
    issue = place.open_issue()
    place.comment(issue, "<!-- liger-bot:request=abc --> written by a person, so not ours")
    assert await repository.find_comment(issue, "<!-- liger-bot:request=abc -->") is None
    made = await repository.create_comment(issue, "<!-- liger-bot:request=abc -->\nfirst")
    found = await repository.find_comment(issue, "<!-- liger-bot:request=abc -->")
    assert found is not None
    assert found.id == made.id
    edited = await repository.update_comment(made.id, "<!-- liger-bot:request=abc -->\nsecond")
    assert (await repository.comment(made.id)).body.endswith("second")
    assert edited.login == "liger-bot[bot]"


async def test_a_comment_is_found_beyond_the_first_page(repository: GitHubRepository, place: Place):
    issue = place.open_issue()
    with place.as_user("maintainer") as client:
        for number in range(101):
            client.post(
                f"/repos/{FULL_NAME}/issues/{issue}/comments", json={"body": f"comment {number}"}
            ).raise_for_status()
    made = await repository.create_comment(issue, "<!-- liger-bot:request=far -->")
    found = await repository.find_comment(issue, "<!-- liger-bot:request=far -->")
    assert found is not None
    assert found.id == made.id


async def test_reacting_twice_is_reacting_once(repository: GitHubRepository, place: Place):
    comment = place.comment(place.open_issue(), "/liger dev relu2")
    await repository.react(comment, "eyes")
    await repository.react(comment, "eyes")
    assert [(one.content, one.login, one.user_type) for one in await repository.reactions(comment)] == [
        ("eyes", "liger-bot[bot]", "Bot")
    ]


async def test_one_question_tells_which_comments_were_answered(repository: GitHubRepository, place: Place):
    issue = place.open_issue()
    comments = [await repository.create_comment(issue, f"profile {number}") for number in range(3)]
    place.react(comments[1].id, "+1", "stranger")
    place.react(comments[2].id, "heart")
    assert (await repository.reacted([one.node_id for one in comments])).keys() == {comments[1].node_id}
    (reaction,) = await repository.reactions(comments[1].id)
    assert (reaction.content, reaction.login, reaction.user_type) == ("+1", "stranger", "User")


async def test_files_and_branches_are_read(repository: GitHubRepository):
    branch = await repository.default_branch()
    assert branch.name == "main"
    assert await repository.read_file("src/ops.py", branch.sha) == "one = 1\n"
    with pytest.raises(NotFoundError):
        await repository.read_file("src/none.py", branch.sha)
    with pytest.raises(RejectedError):
        await repository.read_file("src", branch.sha)


async def test_a_public_file_comes_with_its_commit(repository: GitHubRepository):
    text, commit = await repository.read_public_file(FULL_NAME, "src/ops.py", "main")
    assert (text, commit) == ("one = 1\n", (await repository.default_branch()).sha)


async def test_a_token_reaches_only_what_it_was_minted_for(repository: GitHubRepository, place: Place):
    token = await repository.token(contents="read", metadata="read")
    issue = place.open_issue()
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {token}"}) as client:
        url = f"{place.served.url}/api/v3/repos/{FULL_NAME}/issues/{issue}/comments"
        assert (await client.post(url, json={"body": "no"})).status_code == 403


async def test_a_check_run_is_created_once_and_updated_in_place(repository: GitHubRepository, place: Place):
    sha = (await repository.default_branch()).sha
    first = await repository.put_check(sha, Check("liger-bot / style", "job-1", "running", "started"))
    again = await repository.put_check(sha, Check("liger-bot / style", "job-1", "running", "started"))
    assert first == again
    remarks = [Annotation("src/ops.py", 1, f"remark {number}", "warning") for number in range(120)]
    done = Check(
        "liger-bot / style", "job-1", "all good", "**fine**", conclusion="success", annotations=remarks
    )
    assert await repository.put_check(sha, done, first) == first
    with place.as_user("maintainer") as client:
        runs = client.get(f"/repos/{FULL_NAME}/commits/{sha}/check-runs").json()["check_runs"]
    assert [(run["status"], run["conclusion"], run["output"]["title"]) for run in runs] == [
        ("completed", "success", "all good")
    ]
    assert runs[0]["output"]["annotations_count"] == 120


async def test_another_job_is_another_check_run(repository: GitHubRepository):
    sha = (await repository.default_branch()).sha
    ids = {
        await repository.put_check(sha, Check("liger-bot / style", f"job-{number}", "t", "s"))
        for number in (1, 2)
    }
    assert len(ids) == 2


async def test_github_says_why_it_refused(repository: GitHubRepository, place: Place):
    with pytest.raises(RejectedError, match=r"422.*65536"):
        await repository.create_comment(place.open_issue(), "x" * 65_537)


async def test_a_key_that_is_not_the_apps_is_refused(place: Place):
    other = place.hub.register_app("other", "acme")
    github = GitHubApp(place.app.id, other.private_key, place.served.api_url)
    with pytest.raises(ForbiddenError):
        await github.identity()
    await github.close()


async def test_a_server_that_is_not_there_is_unreachable(place: Place):
    github = GitHubApp(place.app.id, place.app.private_key, "http://127.0.0.1:9/api/v3/")
    with pytest.raises(UnreachableError):
        await github.identity()
    await github.close()


def test_tokens_are_cut_out_of_messages():
    token = "ghs_123_" + "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiI0MiJ9.c2lnbmF0dXJl"
    text = redact(
        f"fatal: could not read from https://x:{token}@host, Authorization: Basic eC1hY2Nlc3MtdG9rZW46c2VjcmV0"
    )
    assert "eyJ" not in text
    assert "eC1hY2Nlc3M" not in text
    assert text.startswith("fatal: could not read")
