"""The whole of what the service does on GitHub, by githubkit and git, from comment to merge."""

import base64
from pathlib import Path

from githubkit.webhooks import parse, verify

from tests.contract.localhub.conftest import OWNER, REPO, SECRET, World, git


def push_branch(world: World, folder: Path, branch: str, token: str) -> str:
    git("clone", "--quiet", world.clone_url(token), str(folder))
    git("checkout", "-q", "-b", branch, cwd=folder)
    (folder / "src" / "relu2.py").write_text("def relu2(x):\n    return x.clamp(min=0) ** 2\n")
    git("add", ".", cwd=folder)
    git("-c", "user.name=bot", "-c", "user.email=bot@x", "commit", "-q", "-m", "Add relu2", cwd=folder)
    git("push", "-q", "origin", f"HEAD:refs/heads/{branch}", cwd=folder)
    return git("rev-parse", "HEAD", cwd=folder)


def test_comment_to_merged_pull_request(world: World, tmp_path: Path) -> None:
    ear = world.ear
    maintainer, bot = world.as_maintainer(), world.as_bot()
    issue = maintainer.rest.issues.create(OWNER, REPO, title="relu2 is missing", body="Please.").parsed_data
    command = maintainer.rest.issues.create_comment(
        OWNER, REPO, issue.number, body="/liger dev relu2"
    ).parsed_data

    heard = ear.wait_for("issue_comment", "created")[0]
    assert verify(SECRET, heard.raw, heard.headers["X-Hub-Signature-256"])
    event = parse("issue_comment", heard.raw)
    assert (event.comment.id, event.sender.login, event.installation.id) == (
        command.id,
        "maintainer",
        world.installation_id,
    )

    permission = bot.rest.repos.get_collaborator_permission_level(OWNER, REPO, "maintainer").parsed_data
    assert permission.permission == "write"
    assert (
        bot.rest.reactions.create_for_issue_comment(OWNER, REPO, command.id, content="eyes").status_code
        == 201
    )
    profile = bot.rest.issues.create_comment(OWNER, REPO, issue.number, body="the profile").parsed_data
    assert profile.user.login == "liger-bot[bot]"
    assert profile.performed_via_github_app.id == world.app.id

    maintainer.rest.reactions.create_for_issue_comment(OWNER, REPO, profile.id, content="+1")
    reactions = bot.rest.reactions.list_for_issue_comment(OWNER, REPO, profile.id, content="+1").parsed_data
    assert [(item.user.login, item.user.type) for item in reactions] == [("maintainer", "User")]

    sha = push_branch(world, tmp_path / "clone", "liger-bot/1-relu2", world.bot_token())
    pull = bot.rest.pulls.create(
        OWNER, REPO, title="Add relu2", head="liger-bot/1-relu2", base="main", body="Generated.", draft=True
    ).parsed_data
    assert (pull.head.sha, pull.draft, pull.commits, pull.changed_files, pull.mergeable_state) == (
        sha,
        True,
        1,
        1,
        "draft",
    )

    run = bot.rest.checks.create(
        OWNER, REPO, name="liger-bot / style", head_sha=sha, external_id="job-1", status="in_progress"
    ).parsed_data
    done = bot.rest.checks.update(
        OWNER, REPO, run.id, conclusion="success", output={"title": "clean", "summary": "nothing to say"}
    ).parsed_data
    assert (done.status, done.conclusion, done.external_id) == ("completed", "success", "job-1")
    assert (
        bot.rest.checks.list_for_ref(OWNER, REPO, sha).parsed_data.check_runs[0].pull_requests[0].number
        == pull.number
    )

    files = maintainer.rest.pulls.list_files(OWNER, REPO, pull.number).parsed_data
    assert [(item.filename, item.status, item.additions) for item in files] == [("src/relu2.py", "added", 2)]
    maintainer.graphql(
        "mutation($id: ID!) { markPullRequestReadyForReview(input: {pullRequestId: $id}) { pullRequest { isDraft } } }",
        {"id": pull.node_id},
    )
    merged = maintainer.rest.pulls.merge(OWNER, REPO, pull.number, merge_method="squash").parsed_data
    closed = parse("pull_request", ear.wait_for("pull_request", "closed")[0].raw)
    assert closed.pull_request.merged
    content = maintainer.rest.repos.get_content(OWNER, REPO, "src/relu2.py").parsed_data
    assert base64.b64decode(content.content).startswith(b"def relu2")
    assert maintainer.rest.repos.get_branch(OWNER, REPO, "main").parsed_data.commit.sha == merged.sha
