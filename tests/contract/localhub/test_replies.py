"""Replies beyond the happy path: pages, ETags, rate limits, filters; each parsed by githubkit's models."""

import base64

import httpx
import pytest
from githubkit.exception import RequestFailed

from tests.contract.localhub.conftest import OWNER, REPO, World, branch_on


def test_lists_come_in_pages_with_links(world: World) -> None:
    maintainer = world.as_maintainer()
    for number in range(5):
        maintainer.rest.issues.create(OWNER, REPO, title=str(number))
    reply = maintainer.rest.issues.list_for_repo(OWNER, REPO, per_page=2, page=2)
    assert [item.title for item in reply.parsed_data] == ["2", "1"]
    links = {
        part.split('rel="')[1].rstrip('"'): part.split(">")[0].strip(" <")
        for part in reply.headers["Link"].split(", ")
    }
    assert set(links) == {"prev", "first", "next", "last"}
    following = httpx.get(links["next"], headers={"Authorization": f"Bearer {world.maintainer}"}).json()
    assert [item["title"] for item in following] == ["0"]
    everything = maintainer.rest.paginate(
        maintainer.rest.issues.list_for_repo, owner=OWNER, repo=REPO, per_page=2
    )
    assert [item.title for item in everything] == ["4", "3", "2", "1", "0"]


def test_etag_is_each_tokens_own_and_a_304_is_free(world: World) -> None:
    url = f"{world.served.api_url}repos/{OWNER}/{REPO}"

    def get(token: str, etag: str = "") -> httpx.Response:
        return httpx.get(
            url, headers={"Authorization": f"Bearer {token}", **({"If-None-Match": etag} if etag else {})}
        )

    first, second = world.bot_token(), world.bot_token()
    fresh = get(first)
    again = get(first, fresh.headers["ETag"])
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["X-RateLimit-Used"] == fresh.headers["X-RateLimit-Used"]
    assert get(second, fresh.headers["ETag"]).status_code == 200
    maintainer = world.as_maintainer()
    maintainer.rest.issues.create(OWNER, REPO, title="changes open_issues")
    assert get(first, fresh.headers["ETag"]).status_code == 200


def test_rate_limit_is_told_and_asking_is_free(shared: World) -> None:
    bot = shared.as_bot()
    bot.rest.repos.get(OWNER, REPO)
    first = bot.rest.rate_limit.get().parsed_data.resources.core
    second = bot.rest.rate_limit.get().parsed_data.resources.core
    assert (first.limit, first.used) == (5000, second.used)


def test_reaction_again_is_200_and_only_ones_own_can_be_taken_back(shared: World) -> None:
    maintainer, stranger = shared.as_maintainer(), shared.as_stranger()
    issue = maintainer.rest.issues.create(OWNER, REPO, title="t").parsed_data
    note = maintainer.rest.issues.create_comment(OWNER, REPO, issue.number, body="n").parsed_data
    made = [
        maintainer.rest.reactions.create_for_issue_comment(OWNER, REPO, note.id, content="rocket")
        for _ in range(2)
    ]
    assert [reply.status_code for reply in made] == [201, 200]
    reaction = made[0].parsed_data
    with pytest.raises(RequestFailed):
        stranger.rest.reactions.delete_for_issue_comment(OWNER, REPO, note.id, reaction.id)
    shown = maintainer.rest.issues.get_comment(OWNER, REPO, note.id).parsed_data
    assert (shown.reactions.rocket, shown.reactions.total_count) == (1, 1)
    maintainer.rest.reactions.delete_for_issue_comment(OWNER, REPO, note.id, reaction.id)
    assert maintainer.rest.reactions.list_for_issue_comment(OWNER, REPO, note.id).parsed_data == []
    assert (
        maintainer.rest.reactions.create_for_issue(OWNER, REPO, issue.number, content="+1").status_code == 201
    )
    assert (
        len(maintainer.rest.reactions.list_for_issue(OWNER, REPO, issue.number, content="+1").parsed_data)
        == 1
    )


def test_comments_since_a_moment_across_the_repository(shared: World) -> None:
    maintainer = shared.as_maintainer()
    issue = maintainer.rest.issues.create(OWNER, REPO, title="t").parsed_data
    note = maintainer.rest.issues.create_comment(OWNER, REPO, issue.number, body="here").parsed_data
    found = maintainer.rest.issues.list_comments_for_repo(
        OWNER, REPO, since=note.updated_at, per_page=100
    ).parsed_data
    assert note.id in [item.id for item in found]
    none = maintainer.rest.issues.list_comments(
        OWNER, REPO, issue.number, since="2099-01-01T00:00:00Z"
    ).parsed_data
    assert none == []


def test_pull_requests_are_found_by_head_only_with_the_owner(shared: World) -> None:
    branch_on(shared, "liger-bot/found", "src/found.py", "f = 1\n")
    bot = shared.as_bot()
    pull = bot.rest.pulls.create(OWNER, REPO, title="t", head="liger-bot/found", base="main").parsed_data
    assert [
        item.number for item in bot.rest.pulls.list(OWNER, REPO, head=f"{OWNER}:liger-bot/found").parsed_data
    ] == [pull.number]
    assert bot.rest.pulls.list(OWNER, REPO, head="someone:liger-bot/found").parsed_data == []
    assert pull.number in [
        item.number for item in bot.rest.pulls.list(OWNER, REPO, head="liger-bot/found").parsed_data
    ]
    assert bot.rest.issues.get(OWNER, REPO, pull.number).parsed_data.pull_request.merged_at is None
    assert (
        bot.rest.pulls.list_commits(OWNER, REPO, pull.number).parsed_data[0].commit.message
        == "Add src/found.py"
    )


def test_check_runs_of_a_name_newest_first_and_the_suite_follows(shared: World) -> None:
    sha = branch_on(shared, "liger-bot/checked", "src/checked.py", "c = 1\n")
    bot = shared.as_bot()
    first = bot.rest.checks.create(OWNER, REPO, name="n", head_sha=sha, conclusion="failure").parsed_data
    second = bot.rest.checks.create(OWNER, REPO, name="n", head_sha=sha, status="in_progress").parsed_data
    assert [run.id for run in bot.rest.checks.list_for_ref(OWNER, REPO, sha).parsed_data.check_runs] == [
        second.id
    ]
    everything = bot.rest.checks.list_for_ref(
        OWNER, REPO, "liger-bot/checked", filter_="all", check_name="n"
    ).parsed_data
    assert [run.id for run in everything.check_runs] == [second.id, first.id]
    suite = bot.rest.checks.get_suite(OWNER, REPO, first.check_suite.id).parsed_data
    assert (suite.status, suite.latest_check_runs_count) == ("in_progress", 1)
    bot.rest.checks.update(OWNER, REPO, second.id, conclusion="neutral")
    assert bot.rest.checks.get_suite(OWNER, REPO, suite.id).parsed_data.conclusion == "failure"


def test_annotations_add_up(shared: World) -> None:
    sha = branch_on(shared, "liger-bot/annotated", "src/annotated.py", "c = 1\n")
    bot = shared.as_bot()
    remark = {
        "path": "src/annotated.py",
        "start_line": 1,
        "end_line": 1,
        "annotation_level": "warning",
        "message": "m",
    }
    output = {"title": "t", "summary": "s", "annotations": [remark] * 50}
    run = bot.rest.checks.create(OWNER, REPO, name="n", head_sha=sha, output=output).parsed_data
    again = bot.rest.checks.update(OWNER, REPO, run.id, output=output).parsed_data
    assert again.output.annotations_count == 100
    listed = bot.rest.checks.list_annotations(OWNER, REPO, run.id, per_page=100).parsed_data
    assert (len(listed), listed[0].message) == (100, "m")


def test_run_left_alone_for_14_days_is_stale(world: World) -> None:
    sha = branch_on(world, "liger-bot/stale", "src/stale.py", "c = 1\n")
    bot = world.as_bot()
    # Read as it comes: the published schema of a check run leaves `stale` out, which GitHub sends all the same.
    body = {"name": "n", "head_sha": sha, "status": "in_progress", "started_at": "2026-01-01T00:00:00Z"}
    reply = bot.request("POST", f"/repos/{OWNER}/{REPO}/check-runs", json=body).json()
    assert (reply["status"], reply["conclusion"]) == ("completed", "stale")


def test_contents_of_files_folders_and_links(shared: World) -> None:
    bot = shared.as_bot()
    readme = bot.rest.repos.get_content(OWNER, REPO, "README.md").parsed_data
    assert base64.b64decode(readme.content).startswith(b"# kernels")
    listed = bot.rest.repos.get_content(OWNER, REPO, "").parsed_data
    assert {(item.name, item.type) for item in listed} >= {
        ("src", "dir"),
        ("README.md", "file"),
        ("link", "symlink"),
    }
    assert bot.rest.repos.get_content(OWNER, REPO, "link").parsed_data.target == "README.md"
    raw = bot.request(
        "GET",
        f"/repos/{OWNER}/{REPO}/contents/src/ops.py",
        headers={"Accept": "application/vnd.github.raw+json"},
    )
    assert raw.text.startswith("def relu")


def test_contents_are_written_and_removed_with_the_blob_they_replace(shared: World) -> None:
    sha = branch_on(shared, "liger-bot/written", "src/written.py", "w = 1\n")
    bot = shared.as_bot()
    blob = bot.rest.repos.get_content(OWNER, REPO, "src/written.py", ref="liger-bot/written").parsed_data.sha
    new = base64.b64encode(b"w = 2\n").decode()
    with pytest.raises(RequestFailed) as caught:
        bot.rest.repos.create_or_update_file_contents(
            OWNER, REPO, "src/written.py", message="m", content=new, branch="liger-bot/written"
        )
    assert caught.value.response.status_code == 422
    with pytest.raises(RequestFailed) as caught:
        bot.rest.repos.create_or_update_file_contents(
            OWNER, REPO, "src/written.py", message="m", content=new, branch="liger-bot/written", sha=sha
        )
    assert caught.value.response.status_code == 409
    done = bot.rest.repos.create_or_update_file_contents(
        OWNER, REPO, "src/written.py", message="m", content=new, branch="liger-bot/written", sha=blob
    )
    assert done.status_code == 200
    gone = bot.rest.repos.delete_file(
        OWNER,
        REPO,
        "src/written.py",
        message="m",
        sha=done.parsed_data.content.sha,
        branch="liger-bot/written",
    )
    assert gone.parsed_data.content is None
    with pytest.raises(RequestFailed) as caught:
        bot.rest.repos.create_or_update_file_contents(
            OWNER, REPO, ".github/workflows/x.yml", message="m", content=new, branch="liger-bot/written"
        )
    assert caught.value.response.status_code == 403


def test_git_objects_one_by_one(shared: World) -> None:
    bot = shared.as_bot()
    main = bot.rest.git.get_ref(OWNER, REPO, "heads/main").parsed_data.object_.sha
    commit = bot.rest.git.get_commit(OWNER, REPO, main).parsed_data
    tree = bot.rest.git.create_tree(
        OWNER,
        REPO,
        base_tree=commit.tree.sha,
        tree=[{"path": "src/new.py", "mode": "100644", "type": "blob", "content": "n = 1\n"}],
    ).parsed_data
    made = bot.rest.git.create_commit(
        OWNER,
        REPO,
        message="m",
        tree=tree.sha,
        parents=[main],
        author={"name": "a", "email": "a@example.com", "date": "2026-01-02T03:04:05Z"},
    ).parsed_data
    assert made.author.date.isoformat() == "2026-01-02T03:04:05+00:00"
    ref = bot.rest.git.create_ref(OWNER, REPO, ref="refs/heads/liger-bot/objects", sha=made.sha).parsed_data
    assert ref.object_.sha == made.sha
    whole = bot.rest.git.get_tree(OWNER, REPO, made.sha, recursive="1").parsed_data
    assert "src/new.py" in [item.path for item in whole.tree]
    comparison = bot.rest.repos.compare_commits(OWNER, REPO, "main...liger-bot/objects").parsed_data
    assert (comparison.status, comparison.ahead_by, [item.filename for item in comparison.files]) == (
        "ahead",
        1,
        ["src/new.py"],
    )
    assert [
        item.ref for item in bot.rest.git.list_matching_refs(OWNER, REPO, "heads/liger-bot/obj").parsed_data
    ] == ["refs/heads/liger-bot/objects"]
    with pytest.raises(RequestFailed) as caught:
        bot.rest.git.update_ref(
            OWNER,
            REPO,
            "heads/liger-bot/objects",
            sha=bot.rest.git.create_commit(OWNER, REPO, message="x", tree=tree.sha).parsed_data.sha,
        )
    assert caught.value.response.json()["message"] == "Update is not a fast forward"
    blob = bot.rest.git.create_blob(OWNER, REPO, content="aGk=", encoding="base64").parsed_data
    assert base64.b64decode(bot.rest.git.get_blob(OWNER, REPO, blob.sha).parsed_data.content) == b"hi"
    assert bot.rest.repos.get_commit(OWNER, REPO, made.sha).parsed_data.stats.additions == 1
    assert bot.rest.git.delete_ref(OWNER, REPO, "heads/liger-bot/objects").status_code == 204


def test_merge_conflict_draft_and_moved_head(world: World) -> None:
    maintainer, bot = world.as_maintainer(), world.as_bot()
    sha = branch_on(world, "liger-bot/conflict", "src/new.py", "a = 1\n")
    pull = bot.rest.pulls.create(
        OWNER, REPO, title="t", head="liger-bot/conflict", base="main", draft=True
    ).parsed_data

    def merge(**how: str) -> tuple[int, str]:
        with pytest.raises(RequestFailed) as caught:
            maintainer.rest.pulls.merge(OWNER, REPO, pull.number, **how)
        return caught.value.response.status_code, caught.value.response.json()["message"]

    assert merge() == (405, "Pull Request is still a draft")
    maintainer.graphql(
        "mutation($i: ID!) {markPullRequestReadyForReview(input: {pullRequestId: $i}) {clientMutationId}}",
        {"i": pull.node_id},
    )
    assert merge(sha="0" * 40)[0] == 409
    maintainer.rest.repos.create_or_update_file_contents(
        OWNER, REPO, "src/new.py", message="m", content=base64.b64encode(b"a = 2\n").decode(), branch="main"
    )
    assert merge() == (405, "Pull Request is not mergeable")
    assert bot.rest.pulls.get(OWNER, REPO, pull.number).parsed_data.mergeable_state == "dirty"
    assert sha == bot.rest.pulls.get(OWNER, REPO, pull.number).parsed_data.head.sha
    with pytest.raises(RequestFailed) as caught:
        bot.rest.pulls.create_review(OWNER, REPO, pull.number, event="APPROVE")
    assert caught.value.response.status_code == 422
    assert (
        maintainer.rest.pulls.create_review(OWNER, REPO, pull.number, event="APPROVE").parsed_data.state
        == "APPROVED"
    )
    assert [item.state for item in bot.rest.pulls.list_reviews(OWNER, REPO, pull.number).parsed_data] == [
        "APPROVED"
    ]


def test_app_and_installation_routes(shared: World) -> None:
    app, bot = shared.as_app(), shared.as_bot()
    assert app.rest.apps.get_authenticated().parsed_data.slug == "liger-bot"
    assert [item.id for item in app.rest.apps.list_installations().parsed_data] == [shared.installation_id]
    assert app.rest.apps.get_installation(shared.installation_id).parsed_data.account.login == OWNER
    assert app.rest.apps.get_repo_installation(OWNER, REPO).parsed_data.id == shared.installation_id
    assert app.rest.apps.get_org_installation(OWNER).parsed_data.app_slug == "liger-bot"
    reachable = bot.rest.apps.list_repos_accessible_to_installation().parsed_data
    assert [item.full_name for item in reachable.repositories] == [f"{OWNER}/{REPO}"]
    assert bot.rest.users.get_by_username("liger-bot[bot]").parsed_data.type == "Bot"
    assert bot.rest.repos.list_collaborators(OWNER, REPO).parsed_data[0].login == "maintainer"
    assert "main" in [
        item.name for item in bot.rest.repos.list_branches(OWNER, REPO, per_page=100).parsed_data
    ]
    assert "bug" in [item.name for item in bot.rest.issues.list_labels_for_repo(OWNER, REPO).parsed_data]


def test_locked_issue_is_closed_to_strangers(shared: World) -> None:
    maintainer, stranger = shared.as_maintainer(), shared.as_stranger()
    issue = maintainer.rest.issues.create(OWNER, REPO, title="t").parsed_data
    maintainer.rest.issues.lock(OWNER, REPO, issue.number)
    with pytest.raises(RequestFailed) as caught:
        stranger.rest.issues.create_comment(OWNER, REPO, issue.number, body="b")
    assert caught.value.response.status_code == 403
    maintainer.rest.issues.unlock(OWNER, REPO, issue.number)
    assert stranger.rest.issues.create_comment(OWNER, REPO, issue.number, body="b").status_code == 201
